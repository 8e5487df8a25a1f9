"""What a stranger might send to bring the reader down: one generator of pcap records for each idea.

`size` scales an attack: the tests of every day run a fraction, the slow ones the size that the limits in
docs/reliability.md are about.
"""

from __future__ import annotations

import gzip
import random
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.hostile.wire import HEADER, START, Flow, packets

Records = Iterator[bytes | NDArray[Any]]
CHUNK = 50_000
SECOND = 10**9


def header(key: int, version: int, corr: int, client: bytes = b"x") -> bytes:
    """A request header of version 1."""
    return struct.pack(">hhih", key, version, corr, len(client)) + client


def framed(message: bytes) -> bytes:
    return struct.pack(">i", len(message)) + message


def metadata(corr: int, topics: Iterable[bytes] = (), client: bytes = b"x") -> bytes:
    """Metadata v0 for these topics."""
    names = [struct.pack(">h", len(topic)) + topic for topic in topics]
    return framed(header(3, 0, corr, client) + struct.pack(">i", len(names)) + b"".join(names))


def described(corr: int) -> bytes:
    """A Metadata v0 response that names nothing."""
    return framed(struct.pack(">iii", corr, 0, 0))


# Connections


def one_byte_connections(size: int, port: int = 9092) -> Records:
    """`size` connections, each of one packet with one byte."""
    for first in range(0, size, CHUNK):
        number = np.arange(first, min(first + CHUNK, size))
        rows = packets(len(number), 1, clients=number, port=port, time_ns=START * SECOND + number * 1000)
        yield rows


def talking_connections(size: int) -> Records:
    """`size` connections that stay open, each with an answered and an unanswered request of 4 KB."""
    topic = b"t" * 200
    ask = metadata(1, [topic] * 20)
    reply = described(1)
    more = metadata(2, [topic] * 20)
    for first in range(0, size, 5000):
        number = np.arange(first, min(first + 5000, size))
        at = 1
        for side, data in ((0, ask), (1, reply), (0, more)):
            rows = packets(
                len(number), len(data), clients=number, from_broker=bool(side),
                seq=1 if side else at, ack=at if side else 1,
                time_ns=START * SECOND + number * 1000 + at,
            )  # fmt: skip
            rows["payload"] = np.void(data)
            at += 0 if side else len(data)
            yield rows


def half_frames(size: int) -> Records:
    """Connections that each announce a frame of 60 MB and send all but its end; `size` bytes in all."""
    announced = 60_000_000
    for number in range(size // announced + 1):
        flow = Flow(number)
        first = struct.pack(">i", announced) + header(0, 3, 1)
        yield from flow.stream(0, [first, bytes(min(announced - 1000, size))])


def holes(size: int) -> Records:
    """Connections that each lose their first byte and send 7 MB behind the hole; `size` bytes in all."""
    for number in range(size // 7_000_000 + 1):
        flow = Flow(number)
        yield from flow.open()
        flow.sent[0] += 1
        yield from flow.stream(0, [bytes(7_000_000)])


# Requests


def outstanding(size: int) -> Records:
    """One connection with `size` requests and no response."""
    yield from Flow().stream(0, (metadata(corr, [b"orders"]) for corr in range(size)))


def same_ids(size: int) -> Records:
    """One connection with `size` requests of one correlation id, and as many answers behind them."""
    flow = Flow()
    yield from flow.stream(0, (metadata(7, [b"orders"]) for _ in range(size)))
    yield from flow.stream(1, (described(7) for _ in range(size)))


def outstanding_everywhere(size: int) -> Records:
    """`size` unanswered requests over a thousand connections."""
    for number in range(1000):
        yield from Flow(number).stream(0, (metadata(corr, [b"orders"]) for corr in range(size // 1000)))


def tiny_answers(size: int) -> Records:
    """`size` of the smallest requests and their answers, packed into full segments."""
    flow = Flow()
    for first in range(0, size, 2000):
        ids = range(first, first + 2000)
        yield from flow.stream(0, [framed(struct.pack(">hhih", 18, 0, corr, -1)) for corr in ids])
        yield from flow.stream(1, [framed(struct.pack(">ihi", corr, 0, 0)) for corr in ids])


def distinct_names(size: int) -> Records:
    """`size` requests, each with a client id and a topic of its own, all answered."""
    flow = Flow()
    for first in range(0, size, 200):
        ids = range(first, min(first + 200, size))
        yield from flow.stream(
            0, [metadata(corr, [b"topic-%08d" % corr], b"client-%08d" % corr) for corr in ids]
        )
        yield from flow.stream(1, [described(corr) for corr in ids])


def distinct_ids(size: int) -> Records:
    """As `distinct_names`, with client ids of the greatest length."""
    flow = Flow()
    for corr in range(size):
        name = b"%08d" % corr + b"n" * 500
        yield from flow.stream(0, [metadata(corr, [name * 60], name)])
        yield from flow.stream(1, [described(corr)])


# What is kept of a connection


def emptied_tables(size: int) -> Records:
    """`size` requests over a thousand connections, all answered but the last of each."""
    each = size // 1000
    for number in range(1000):
        flow = Flow(number)
        yield from flow.stream(0, (metadata(corr) for corr in range(each)))
        yield from flow.stream(1, (described(corr) for corr in range(each - 1)))


def drip(size: int) -> Records:
    """`size` segments of one byte that begin frames of 40 MB, over ten connections."""
    for number in range(10):
        flow = Flow(number)
        yield from flow.open()
        yield flow.send(0, struct.pack(">i", 40_000_000) + header(0, 3, 1))
        rest = np.arange(size // 10)
        at, time = flow.sent[0], flow.time_ns
        yield packets(len(rest), 1, clients=number, seq=at + rest, time_ns=time + rest * 1000)


def drip_unknown(size: int) -> Records:
    """`size` segments of one byte, on unknown ports, of requests that are too long to be judged."""
    each = 60_000
    for number in range(max(size // each, 1)):
        flow = Flow(number, port=5555)
        yield from flow.open()
        yield flow.send(0, struct.pack(">i", 40_000_000) + header(0, 3, 1))
        rest = np.arange(min(each, size))
        at, time = flow.sent[0], flow.time_ns
        yield packets(len(rest), 1, clients=number, seq=at + rest, time_ns=time + rest * 1000, port=5555)


def early_answers(size: int) -> Records:
    """Responses of a megabyte each that no request asked for, `size` bytes in all, within a second."""
    for number in range(10):
        flow = Flow(number)
        yield from flow.stream(0, [metadata(1)])
        yield from flow.stream(1, [described(1)])
        for corr in range(size // 10_000_000):
            yield from flow.stream(1, [framed(struct.pack(">i", 1000 + corr) + bytes(1_000_000))])


def unasked(size: int) -> Records:
    """`size` Produce requests that want no answer, a thousand on each connection."""
    body = struct.pack(">hhi", -1, 0, 1000) + struct.pack(">i", 0)
    for number in range(max(size // 1000, 1)):
        flow = Flow(number)
        yield from flow.stream(0, (framed(header(0, 3, corr) + body) for corr in range(min(1000, size))))


def just_below(size: int) -> Records:
    """`size` connections that are all open at the end, which together come near each limit over all of them:
    requests in flight, ids of requests without reply, unfinished frames, latest segments."""
    asks = [metadata(2 + corr, [b"t" * 100]) for corr in range(4)]
    part = struct.pack(">i", 1_000_000) + header(0, 3, 100) + bytes(1900)
    for number in range(1, size + 1):
        flow = Flow(number, opened=True)
        yield from flow.stream(0, [metadata(1)])
        yield from flow.stream(1, [described(1)])
        ids = range(1000, 1000 + min(250, 40_000 // number))
        sends = [framed(header(0, 3, corr) + struct.pack(">hhii", -1, 0, 1000, 0)) for corr in ids]
        yield from flow.stream(0, [*sends, *asks, part])


def long_names(size: int) -> Records:
    """Unanswered requests, each for a topic with a name of 32 KB; `size` bytes in all."""
    flow = Flow()
    for corr in range(size // 32_000):
        yield from flow.stream(0, [metadata(corr, [b"%08d" % corr + b"t" * 31_992])])


def long_client_ids(size: int) -> Records:
    """Connections that each use sixty client ids of 32 KB; `size` bytes in all."""
    for number in range(max(size // 1_920_000, 1)):
        flow = Flow(number)
        for corr in range(60):
            yield from flow.stream(0, [metadata(corr, [], b"%08d" % corr + b"c" * (31_992 if corr else 8))])
            yield from flow.stream(1, [described(corr)])


def long_software(size: int) -> Records:
    """Connections whose client library has a name of 100 KB; `size` bytes in all."""
    name = b"s" * 100_000
    asked = struct.pack(">hhih", 18, 3, 1, 1) + b"x\0" + b"\xa1\x8d\x06" + name + b"\2v\0"
    for number in range(max(size // 100_000, 1)):
        flow = Flow(number)
        yield from flow.stream(0, [framed(asked)])
        yield from flow.stream(1, [framed(struct.pack(">ih", 1, 0) + b"\1" + bytes(5))])


# Sizes that lie


def _then_good(flow: Flow) -> Records:
    """A good call at the end, to see that reading goes on."""
    yield from flow.stream(0, [metadata(7777, [b"after"])])
    yield from flow.stream(1, [described(7777)])


def long_prefix(size: int) -> Records:
    """A length prefix of 2 GB in the middle of a good connection, and `size` bytes after it."""
    flow = Flow()
    yield from flow.stream(0, [metadata(1)])
    yield from flow.stream(1, [described(1)])
    yield from flow.stream(0, [b"\x7f\xff\xff\xff", bytes(size)])
    yield from _then_good(flow)


def many_elements(size: int) -> Records:
    """Arrays that claim 2³¹-1 elements, in every request that has room for one; `size` requests."""
    flow = Flow()
    for corr in range(size):
        key = corr % 90
        body = b"\x7f\xff\xff\xff" * 8 if corr & 1 else b"\xff\xff\xff\xff\x07" * 8
        yield from flow.stream(0, [framed(header(key, corr % 3, corr) + body)])
        yield from flow.stream(1, [framed(struct.pack(">i", corr) + body)])
    yield from _then_good(flow)


def endless_varints(size: int) -> Records:
    """Flexible messages in which every varint goes on, from header or body on; `size` requests."""
    flow = Flow()
    for corr in range(size):
        tags = b"\0" if corr & 1 else b""
        yield from flow.stream(0, [framed(header(3, 12, corr) + tags + b"\xff" * 2000)])
        yield from flow.stream(1, [framed(struct.pack(">i", corr) + tags + b"\xff" * 2000)])
    yield from _then_good(flow)


def true_elements(size: int) -> Records:
    """Fetch requests whose arrays do hold the partitions they claim, `size` in all, unanswered."""
    each = 2_000_000
    for number in range(max(size // each, 1)):
        count = min(each, size)
        flow = Flow(number)
        partitions = bytes(16) * count
        body = struct.pack(">iii", -1, 100, 1) + struct.pack(">ih1si", 1, 1, b"t", count) + partitions
        yield from flow.stream(0, [framed(header(1, 0, number) + body)])


def empty_names(size: int) -> Records:
    """A Metadata request with `size` empty topic names."""
    flow = Flow()
    yield from flow.stream(0, [framed(header(3, 0, 1) + struct.pack(">i", size) + bytes(2 * size))])
    yield from flow.stream(1, [described(1)])


def _fetched(topic: bytes, count: int, calls: int) -> Records:
    """Fetch v0, answered with `count` partitions of a topic and no records, `calls` times."""
    flow = Flow()
    ask = struct.pack(">iiii", -1, 100, 1, 0)
    reply = struct.pack(">ih", 1, len(topic)) + topic
    reply += struct.pack(">i", count) + struct.pack(">ihqi", 1, 0, 0, -1) * count
    for corr in range(calls):
        yield from flow.stream(0, [framed(header(1, 0, corr) + ask)])
        yield from flow.stream(1, [framed(struct.pack(">i", corr) + reply)])


def many_partitions(size: int) -> Records:
    """Answers with `size` partitions in all, as many in each as it may have, of a topic with the longest name
    that a topic can have."""
    each = min(140_000, size)
    yield from _fetched(b"t" * 249, each, size // each)


def repeated_names(size: int) -> Records:
    """As `many_partitions`, a thousand in each, with a name of 30 KB."""
    yield from _fetched(b"t" * 30_000, 1000, size // 1000)


# Record data


def produce(corr: int, records: bytes) -> bytes:
    """Produce v3 with one partition."""
    body = struct.pack(">hhi", -1, 1, 1000) + struct.pack(">ih1sii", 1, 1, b"t", 1, 0)
    return framed(header(0, 3, corr) + body + struct.pack(">i", len(records)) + records)


def batch(codec: int, count: int, payload: bytes) -> bytes:
    """A record batch of magic 2 (without a valid CRC)."""
    after = struct.pack(">ibIhiqqqhii", 0, 2, 0, codec, count - 1, 0, 0, -1, -1, -1, count) + payload
    return struct.pack(">qi", 0, len(after)) + after


def bomb(codec: int, size: int) -> bytes:
    """`size` zero bytes, compressed."""
    zeros = bytes(size)
    if codec == 1:
        return gzip.compress(zeros, 9)
    if codec == 2:
        import cramjam

        return bytes(cramjam.snappy.compress_raw(zeros))
    if codec == 3:
        import lz4.frame

        packed: bytes = lz4.frame.compress(zeros, store_size=False)
        return packed
    import zstandard

    return zstandard.ZstdCompressor(level=19, write_content_size=False).compress(zeros)


def bombs(size: int) -> Records:
    """For each codec, one batch that becomes `size` bytes, and one of records of seven bytes each."""
    flow = Flow()
    tiny = zlib.compressobj(9, wbits=31)
    records = tiny.compress(b"\x0c\0\0\0\1\1\0" * (size // 7)) + tiny.flush()
    sent = [*(batch(codec, 1, bomb(codec, size)) for codec in (1, 2, 3, 4)), batch(1, size // 7, records)]
    for corr, data in enumerate(sent):
        yield from flow.stream(0, [produce(corr, data)])
    yield from _then_good(flow)


def tiny_records(size: int) -> Records:
    """Uncompressed batches of `size` records of seven bytes."""
    yield from Flow().stream(0, [produce(1, batch(0, size, b"\x0c\0\0\0\1\1\0" * size))])


def deep_nesting(size: int) -> Records:
    """A message set in a message set in a message set ... (magic 1, gzip), `size` deep."""
    inner = b""
    for depth in range(size):
        packed = gzip.compress(inner) if depth else b"end"
        message = struct.pack(">bbqi", 1, 1 if depth else 0, 0, -1) + struct.pack(">i", len(packed)) + packed
        message = struct.pack(">I", zlib.crc32(message)) + message
        inner = struct.pack(">qi", 0, len(message)) + message
    flow = Flow()
    body = struct.pack(">hi", -1, 1000) + struct.pack(">ih1sii", 1, 1, b"t", 1, 0)
    yield from flow.stream(0, [framed(header(0, 1, 1) + body + struct.pack(">i", len(inner)) + inner)])
    yield from _then_good(flow)


# TCP and time


def overlaps(size: int) -> Records:
    """`size` segments that overlap in every way around a stream that also comes whole."""
    chance = random.Random(6)
    flow = Flow()
    yield from flow.open()
    whole = b"".join(metadata(corr, [b"orders"]) for corr in range(size))
    for _ in range(size):
        start = chance.randrange(len(whole))
        piece = bytearray(whole[start : start + chance.randrange(1, 3000)])
        if chance.random() < 0.2:
            piece[chance.randrange(len(piece))] ^= 0xFF
        yield flow.send(0, bytes(piece), seq=1 + 1 + start)
    yield from flow.stream(0, [whole])


def time_travel(size: int) -> Records:
    """Calls between which time runs backwards or jumps a century, `size` of them."""
    chance = random.Random(7)
    flow = Flow()
    yield from flow.open()
    for corr in range(size):
        flow.time_ns = chance.choice([0, START, START + 100 * 365 * 86_400, 2**32 - 1]) * SECOND
        yield from flow.stream(0, [metadata(corr)])
        yield from flow.stream(1, [described(corr)])


def many_holes(size: int) -> Records:
    """One connection of which every second byte is missing: `size` segments of one byte."""
    flow = Flow()
    yield from flow.open()
    number = np.arange(size)
    rows = packets(size, 1, clients=1, seq=10 + 2 * number, time_ns=START * SECOND + number)
    yield rows


def fragments(size: int) -> Records:
    """First fragments of `size` datagrams that never become whole."""
    for first in range(0, size, CHUNK):
        number = np.arange(first, min(first + CHUNK, size))
        rows = packets(len(number), 1000, clients=number, time_ns=START * SECOND + number * 1000)
        rows["head"]["fragment"] = 0x2000
        rows["head"]["ident"] = number & 0xFFFF
        yield rows


def tiny_fragments(size: int) -> Records:
    """`size` datagrams of UDP, each in two fragments of eight bytes."""
    for first in range(0, size, CHUNK):
        number = np.repeat(np.arange(first, min(first + CHUNK, size)), 2)
        rows = packets(len(number), 0, clients=number, time_ns=START * SECOND + number * 1000)
        rows["head"]["fragment"] = np.tile([0x2000, 1], len(number) // 2)
        rows["head"]["ident"], rows["head"]["total"], rows["head"]["protocol"] = number & 0xFFFF, 28, 17
        yield rows


def labels(size: int) -> Records:
    """`size` packets of 60 KB of MPLS labels."""
    packet = np.zeros(1, np.dtype([("head", HEADER), ("payload", "V60000")]))
    packet["head"]["ethertype"], packet["head"]["caplen"], packet["head"]["origlen"] = 0x8847, 60_054, 60_054
    for number in range(size):
        packet["head"]["seconds"], packet["head"]["nanos"] = START, number
        yield packet.tobytes()


ATTACKS: dict[str, Callable[[int], Records]] = {
    function.__name__: function
    for function in (
        one_byte_connections, talking_connections, half_frames, holes, outstanding, outstanding_everywhere,
        same_ids,
        tiny_answers, distinct_names, distinct_ids, emptied_tables, drip, drip_unknown, early_answers,
        unasked, just_below, long_names, long_client_ids, long_software, long_prefix, many_elements,
        endless_varints, true_elements, many_partitions, repeated_names, empty_names, bombs, tiny_records,
        deep_nesting, overlaps, time_travel, many_holes, fragments, tiny_fragments, labels,
    )
}  # fmt: skip

FULL = {
    "one_byte_connections": 1_000_000, "talking_connections": 60_000, "half_frames": 900_000_000,
    "holes": 700_000_000, "outstanding": 1_000_000, "outstanding_everywhere": 3_000_000, "same_ids": 300_000,
    "tiny_answers": 1_000_000, "distinct_names": 1_000_000, "distinct_ids": 10_000,
    "emptied_tables": 3_000_000, "drip": 2_000_000, "drip_unknown": 1_200_000, "early_answers": 900_000_000,
    "unasked": 6_000_000, "just_below": 28_000, "long_names": 900_000_000, "long_client_ids": 900_000_000,
    "long_software": 900_000_000, "long_prefix": 50_000_000, "many_elements": 20_000,
    "endless_varints": 10_000, "true_elements": 20_000_000, "many_partitions": 20_000_000,
    "repeated_names": 200_000, "empty_names": 30_000_000, "bombs": 1_000_000_000, "tiny_records": 8_000_000,
    "deep_nesting": 200, "overlaps": 50_000, "time_travel": 20_000, "many_holes": 1_000_000,
    "fragments": 200_000, "tiny_fragments": 500_000, "labels": 1000,
}  # fmt: skip
"""The size of each attack that docs/reliability.md reports on."""
