"""Conversations to be cut into segments: two streams of bytes, and which of them has to wait for which.

Made ones hold what reads like Kafka inside of Kafka: rows of OffsetCommit and ListOffsets that look like
request headers, Kafka messages and small numbers as record values, correlation ids that don't rise. Recorded
ones are whole connections of `captures/`. Bodies are written from the protocol guide.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from struct import pack

import crc32c

from tests.intact.packets import packets
from tests.intact.reading import Reading, frames, reading
from tests.intact.tcp import Stream, whole

CAPTURES = Path(__file__).parent.parent.parent / "captures"
RECORDED = ("quorum.pcapng.zst", "sasl.pcapng", "sasl-0.10.pcap", "java-groups.pcapng.zst", "kafka-0.8.pcap",
            "librdkafka-produce.pcapng", "kafkajs-tansu.pcapng", "kafka-python-kafka.pcapng",
            "librdkafka-transactions.pcap", "mock-produce.pcapng", "java-streams.pcapng.zst")  # fmt: skip
PRODUCE, FETCH, LIST_OFFSETS, METADATA, OFFSET_COMMIT, HEARTBEAT = 0, 1, 2, 3, 8, 12


@dataclass(frozen=True)
class Conversation:
    """What a client and its broker say to each other."""

    name: str
    streams: tuple[bytes, bytes]
    needs: tuple[tuple[tuple[int, int], ...], tuple[tuple[int, int], ...]]
    """For each frame of a stream its end, and how much of the other stream has to arrive before."""


class Script:
    """A conversation being written."""

    def __init__(self, depth: int = 5, client_id: str | None = "made", first: int = 0) -> None:
        self.depth, self.client_id, self.ident = depth, client_id, first
        self.streams = [b"", b""]
        self.needs: list[list[tuple[int, int]]] = [[], []]
        self.answers: list[int] = []
        """Where the responses end."""

    def ask(
        self, api: int, version: int, body: bytes, answer: bytes | None, ident: int | None = None
    ) -> None:
        """A request with header v1, which waits until less than `depth` are in flight, and its response with
        header v0."""
        if ident is None:
            self.ident += 1
            ident = self.ident
        self._frame(0, request(api, version, ident, body, self.client_id), self._awaited())
        if answer is not None:
            self._frame(1, response(ident, answer), len(self.streams[0]))
            self.answers.append(len(self.streams[1]))

    def _awaited(self) -> int:
        return self.answers[-self.depth] if len(self.answers) >= self.depth else 0

    def _frame(self, side: int, data: bytes, need: int) -> None:
        self.streams[side] += data
        self.needs[side].append((len(self.streams[side]), need))

    def heartbeat(self, ident: int | None = None) -> None:
        self.ask(HEARTBEAT, 0, text("group") + pack(">i", 1) + text("member"), pack(">h", 0), ident)

    def done(self, name: str) -> Conversation:
        return Conversation(
            name, (self.streams[0], self.streams[1]), (tuple(self.needs[0]), tuple(self.needs[1]))
        )


def text(value: str | None) -> bytes:
    return b"\xff\xff" if value is None else pack(">h", len(value)) + value.encode()


def request(api: int, version: int, ident: int, body: bytes, client_id: str | None = "made") -> bytes:
    frame = pack(">hhi", api, version, ident) + text(client_id) + body
    return pack(">i", len(frame)) + frame


def response(ident: int, body: bytes) -> bytes:
    return pack(">ii", len(body) + 4, ident) + body


def varint(value: int) -> bytes:
    """Zigzag, as in records."""
    value, out = value << 1 if value >= 0 else (-value << 1) - 1, b""
    while value > 127:
        out += bytes((value & 127 | 128,))
        value >>= 7
    return out + bytes((value,))


def batch(values: Sequence[bytes]) -> bytes:
    """A record batch of magic 2 (KIP-98), not compressed."""
    records = b""
    for index, value in enumerate(values):
        record = b"\0" + varint(0) + varint(index) + varint(-1) + varint(len(value)) + value + varint(0)
        records += varint(len(record)) + record
    count = len(values)
    body = pack(">hiqqqhii", 0, count - 1, 1_700_000_000_000, 1_700_000_000_000, -1, -1, -1, count) + records
    return pack(">qiibI", 0, len(body) + 9, 0, 2, crc32c.crc32c(body)) + body


def produce(script: Script, acks: int, values: Sequence[bytes]) -> None:
    records = batch(values)
    body = (
        text(None)
        + pack(">hii", acks, 30_000, 1)
        + text("topic")
        + pack(">iii", 1, 0, len(records))
        + records
    )
    answer = pack(">i", 1) + text("topic") + pack(">iihqqi", 1, 0, 0, 7, -1, 0)
    script.ask(PRODUCE, 3, body, answer if acks else None)


def fetch(script: Script, values: Sequence[bytes]) -> None:
    asked = pack(">iiiibi", -1, 500, 1, 1 << 20, 0, 1) + text("topic") + pack(">iiqi", 1, 0, 100, 1 << 20)
    records = batch(values)
    answer = (
        pack(">ii", 0, 1) + text("topic") + pack(">iihqqii", 1, 0, 0, 900, 900, -1, len(records)) + records
    )
    script.ask(FETCH, 4, asked, answer)


def commit(script: Script, version: int, partitions: int, rng: random.Random) -> None:
    """Partition and offset of a row read like length and correlation id of a request to come; the metadata
    like its client id."""
    rows, answered = b"", b""
    first, note = rng.choice((0, 0, 8, 20)), rng.choice((None, "", "a note"))
    for partition in range(first, first + partitions):
        offset = max(script.ident, 0) + 1 + rng.choice((partition, rng.randrange(64), rng.randrange(20_000)))
        epoch = pack(">i", rng.choice((-1, 0, 5))) if version >= 6 else b""
        rows += pack(">iq", partition, offset) + epoch + text(note)
        answered += pack(">ih", partition, 0)
    head = text("group") + pack(">i", 1) + text("member")
    head += text(None) if version >= 7 else pack(">q", -1)
    asked = head + pack(">i", 1) + text("topic") + pack(">i", partitions) + rows
    answer = pack(">i", 1) + text("topic") + pack(">i", partitions) + answered
    script.ask(OFFSET_COMMIT, version, asked, (pack(">i", 0) if version >= 3 else b"") + answer)


def list_offsets(script: Script, partitions: int, rng: random.Random) -> None:
    asked = answered = b""
    for partition in range(partitions):
        ahead = max(script.ident, 0) + 1 + rng.randrange(200)
        asked += pack(">iq", partition, rng.choice((-1, -2, ahead)))
        answered += pack(">ihqq", partition, 0, -1, ahead)
    head = pack(">i", 1) + text("topic") + pack(">i", partitions)
    script.ask(LIST_OFFSETS, 1, pack(">i", -1) + head + asked, head + answered)


def metadata(script: Script, ident: int | None = None) -> None:
    script.ask(METADATA, 0, pack(">i", 0), pack(">ii", 0, 0), ident)


def lookalikes(script: Script, rng: random.Random, count: int) -> list[bytes]:
    """Record values that are Kafka messages: requests to come, responses to requests in flight, batches."""
    found = []
    for _ in range(count):
        ident = max(script.ident, 0) + rng.randint(-3, 40)
        found.append(
            rng.choice(
                (
                    request(HEARTBEAT, 0, ident, text("group") + pack(">i", 1) + text("member")),
                    request(
                        METADATA, rng.choice((0, 1)), ident, pack(">i", 0), rng.choice((None, "", "made"))
                    ),
                    response(ident, pack(">h", 0)),
                    response(ident, pack(">ii", 0, 0)),
                    request(METADATA, 0, ident, pack(">i", 0))
                    + request(METADATA, 0, ident + 1, pack(">i", 0)),
                    pack(">i", 12) + pack(">hhi", 18, 0, ident) + text("ab"),
                )
            )
        )
    return found


def commits(rng: random.Random) -> Script:
    script = Script(
        rng.choice((1, 2, 5, 8)), rng.choice(("rdkafka", None, "consumer-1")), rng.choice((0, 200, 690))
    )
    for _ in range(rng.randint(2, 5)):
        commit(script, rng.choice((2, 7)), rng.choice((30, 100, 533, 700)), rng)
        for _ in range(rng.randrange(3)):
            script.heartbeat()
    return script


def produces(rng: random.Random) -> Script:
    script = Script(rng.choice((1, 5)), "producer")
    for _ in range(rng.randint(3, 8)):
        produce(script, rng.choice((-1, 1, 0)), lookalikes(script, rng, rng.randint(1, 40)))
    metadata(script)
    return script


def numbers(rng: random.Random) -> Script:
    script = Script(5, "producer")
    for _ in range(rng.randint(2, 6)):
        form = rng.choice((">i", ">q", ">hh", ">ii"))
        values = [pack(form, *(rng.randrange(64) for _ in form[1:])) for _ in range(rng.randint(5, 200))]
        produce(script, rng.choice((1, 1, 0)), values)
        fetch(script, values[:50])
    return script


def fetches(rng: random.Random) -> Script:
    script = Script(rng.choice((1, 2, 5)), "consumer")
    for _ in range(rng.randint(2, 6)):
        fetch(script, lookalikes(script, rng, rng.randint(1, 80)))
        script.heartbeat()
    return script


def offsets(rng: random.Random) -> Script:
    script = Script(rng.choice((1, 3)), rng.choice(("consumer", "", None)))
    for _ in range(rng.randint(2, 5)):
        list_offsets(script, rng.choice((5, 60, 600)), rng)
        metadata(script)
    return script


def unordered(rng: random.Random) -> Script:
    """Java clients number a request when it is made, not when it is sent."""
    script = Script(rng.choice((2, 5, 10)), rng.choice(("java", None)))
    idents = list(range(10, 50))
    for at in range(0, 40, 4):
        few = idents[at : at + 4]
        rng.shuffle(few)
        idents[at : at + 4] = few
    for ident in idents:
        rng.choice((script.heartbeat, lambda ident: metadata(script, ident)))(ident)
    return script


def scattered(rng: random.Random) -> Script:
    """Correlation ids all over their range, or past its end."""
    script = Script(rng.choice((1, 5)), rng.choice(("made", None, "")), 2**31 - 10)
    any_ids = rng.random() < 0.5
    for index in range(20):
        ident = rng.randrange(-(2**31), 2**31) if any_ids else (2**31 - 10 + index + 2**31) % 2**32 - 2**31
        rng.choice((script.heartbeat, lambda ident: metadata(script, ident)))(ident)
    return script


def constant(rng: random.Random) -> Script:
    """One request at a time, all with the same correlation id."""
    script = Script(1, rng.choice(("made", None)))
    ident = rng.choice((0, 1, 77))
    for _ in range(8):
        script.heartbeat(ident)
    return script


def unnamed(rng: random.Random) -> Script:
    script = Script(rng.choice((1, 5)), rng.choice((None, "")))
    for _ in range(rng.randint(4, 20)):
        rng.choice((script.heartbeat, lambda: metadata(script)))()
    return script


def unanswered(rng: random.Random) -> Script:
    """acks=0, to which brokers say nothing."""
    script = Script(5, "producer")
    metadata(script)
    for _ in range(rng.randint(5, 20)):
        produce(script, 0, lookalikes(script, rng, rng.randint(1, 5)))
    metadata(script)
    return script


def large(rng: random.Random) -> Script:
    """A flight of more than a mebibyte."""
    script = Script(2, "replica")
    for size in (rng.randint(1_300_000, 3_000_000), rng.randint(10, 2_000)):
        value = b"".join(lookalikes(script, rng, 200)) * (size // 4000)
        rng.choice((fetch, lambda script, values: produce(script, 1, values)))(script, [value, b"end"])
        script.heartbeat()
    return script


MAKERS: dict[str, Callable[[random.Random], Script]] = {
    maker.__name__: maker
    for maker in (
        *(commits, produces, numbers, fetches, offsets, unordered, scattered, constant, unnamed, unanswered),
        large,
    )
}
EACH = 5
"""Made conversations of each kind."""


@cache
def made() -> dict[str, Conversation]:
    """The made conversations by name."""
    found = {}
    for kind, maker in MAKERS.items():
        for number in range(EACH):
            name = f"{kind}-{number}"
            found[name] = maker(random.Random(name)).done(name)
    return found


@cache
def recorded() -> dict[str, Conversation]:
    """Some whole connections of the recordings: of each the ones with most calls that aren't long."""
    found = {}
    for file in RECORDED:
        readings = [one for one in map(reading, whole(packets(CAPTURES / file))) if _is_usable(one)]
        readings.sort(key=lambda one: -len({(call.api_key, call.version) for call in one.calls}))
        for one in readings[:3]:
            name = f"{file.split('.')[0]}-{one.connection.first_packet}"
            found[name] = _recorded(name, one)
    return found


def _is_usable(one: Reading) -> bool:
    streams = one.connection.streams
    return (
        not one.why_not and len(one.calls) >= 2 and not any(one.tails) and one.connection.reset is None
        and max(len(stream.data) for stream in streams) < 60_000
    )  # fmt: skip


def _recorded(name: str, one: Reading) -> Conversation:
    """A frame waits for what had been captured of the other end before its first packet."""
    client, broker = one.connection.streams[one.client], one.connection.streams[1 - one.client]
    sides = [list(_spans(client)), list(_spans(broker))]
    needs = []
    for own, other in (sides, sides[::-1]):
        waits = []
        for first, _, end in own:
            waits.append((end, max((far for _, last, far in other if last < first), default=0)))
        needs.append(tuple(waits))
    return Conversation(name, (bytes(client.data), bytes(broker.data)), (needs[0], needs[1]))


def _spans(stream: Stream) -> Iterator[tuple[int, int, int]]:
    """First and last packet of each frame, and its end."""
    for frame in frames(stream)[0]:
        first = stream.completed(frame.start, frame.start + 1)
        yield first, stream.completed(frame.start, frame.end), frame.end


def conversations() -> dict[str, Conversation]:
    """All, by name."""
    return made() | recorded()
