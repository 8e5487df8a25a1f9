"""Length-prefixed protocols of services and storage, made byte by byte after their published layouts."""

from __future__ import annotations

import json
import pickle
import random
import struct

from exchanges.noise import Spoken, framed
from exchanges.stage import CLIENT, SERVER, made


def varint(value: int) -> bytes:
    """Protocol buffers' unsigned varint."""
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def field(number: int, value: int | bytes) -> bytes:
    """A field of a protocol buffer: a number, or bytes with their length."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


@made("protobuf-rpc")
def protobuf_rpc(number: int) -> Spoken:
    for id_ in range(6):
        asked = field(3, field(1, b"order-%d" % number))
        yield CLIENT, framed(field(1, id_) + field(2, b"shop.Orders/Get") + asked)
        yield SERVER, framed(field(1, id_) + field(4, field(1, 0) + field(2, b"book") * (number % 7)))


@made("json-rpc")
def json_rpc(number: int) -> Spoken:
    for id_ in range(6):
        asked = {"jsonrpc": "2.0", "id": id_, "method": "orders.get", "params": [number]}
        yield CLIENT, framed(json.dumps(asked).encode())
        yield SERVER, framed(json.dumps({"jsonrpc": "2.0", "id": id_, "result": {"total": number}}).encode())


@made("msgpack-rpc")
def msgpack_rpc(number: int) -> Spoken:
    for id_ in range(6):
        yield CLIENT, b"\x94\x00" + bytes([id_]) + b"\xa3get\x91" + b"\xce" + struct.pack(">I", number)
        yield SERVER, b"\x94\x01" + bytes([id_]) + b"\xc0\x92\xa4book\xcd" + struct.pack(">H", number)


@made("pulsar")
def pulsar(number: int) -> Spoken:
    """Pulsar: total size, command size, command; messages with a checksummed payload behind it."""

    def command(kind: int, body: bytes, payload: bytes = b"") -> bytes:
        inner = field(1, kind) + field(kind, body)
        return framed(framed(inner) + payload)

    yield CLIENT, command(2, field(1, b"3.1.0") + field(4, 20))
    yield SERVER, command(3, field(1, b"Pulsar Server3.1.0") + field(2, 20))
    yield CLIENT, command(5, field(1, b"persistent://public/default/orders") + field(2, number) + field(3, 1))
    yield SERVER, command(17, field(1, 1) + field(2, b"standalone-0-%d" % number))
    for sequence in range(5):
        batch = b"\x0e\x01" + random.Random(sequence).randbytes(4)
        batch += framed(field(1, b"p") + field(2, sequence)) + b"order placed"
        which = field(1, number) + field(2, sequence)
        yield CLIENT, command(6, which, batch)
        yield SERVER, command(7, which + field(3, field(1, 3) + field(2, sequence)))
    yield CLIENT, command(18, b"")
    yield SERVER, command(19, b"")


@made("bookkeeper")
def bookkeeper(number: int) -> Spoken:
    """Bookies of version 2: length, a word of version, operation and flags, ledger, entry, master key."""
    for entry in range(6):
        word = struct.pack(">I", 2 << 24 | 1 << 16)
        ids = struct.pack(">qq", number, entry)
        digest = random.Random(entry).randbytes(8)
        yield CLIENT, framed(word + bytes(20) + ids + struct.pack(">qq", entry - 1, 100) + digest + b"entry")
        yield SERVER, framed(word + ids + struct.pack(">i", 0))


@made("hadoop-ipc")
def hadoop_ipc(number: int) -> Spoken:
    context = field(1, field(1, b"hdfs")) + field(3, b"org.apache.hadoop.hdfs.protocol.ClientProtocol")
    opening = field(1, 2) + field(3, 0) + field(4, random.Random(number).randbytes(16))

    def delimited(*parts: bytes) -> bytes:
        return framed(b"".join(varint(len(part)) + part for part in parts))

    yield CLIENT, b"hrpc\x09\x00\x00" + delimited(opening, context)
    for call in range(5):
        header = field(1, 2) + field(2, 0) + field(3, call) + field(4, bytes(16))
        yield CLIENT, delimited(header, field(1, b"getFileInfo"), field(1, b"/orders/%d" % number))
        head, found = field(1, call) + field(2, 0) + field(3, 9), field(1, field(1, 2) + field(3, number))
        yield SERVER, delimited(head, found)


@made("elasticsearch")
def elasticsearch(number: int) -> Spoken:
    """Nodes of a cluster: "ES", length, request id of 64 bits, status, version, action."""

    def message(id_: int, status: int, body: bytes) -> bytes:
        inner = struct.pack(">qBI", id_, status, 8_110_099) + struct.pack(">I", 0) + body
        return b"ES" + framed(inner)

    for id_ in range(1, 6):
        yield CLIENT, message(id_, 0, b"\x1einternal:tcp/handshake\x04" + struct.pack(">I", number))
        yield SERVER, message(id_, 1, b"\x04" + struct.pack(">I", 8_110_099))
        yield CLIENT, b"ES\xff\xff\xff\xff"


@made("avro-rpc")
def avro_rpc(number: int) -> Spoken:
    """Avro's socket transport (Flume): serial, number of buffers, each with its length."""
    for serial in range(5):
        call = [b"\0" * 16 + b"\x00\x00", b"\x0cappend" + b"\x08body" * (number % 5 + 1)]
        yield CLIENT, struct.pack(">II", serial, len(call)) + b"".join(map(framed, call))
        answer = [b"\0\0\0", b"\x00", b"\x00"]
        yield SERVER, struct.pack(">II", serial, len(answer)) + b"".join(map(framed, answer))


@made("bittorrent")
def bittorrent(number: int) -> Spoken:
    chance = random.Random(number)
    handshake = b"\x13BitTorrent protocol" + bytes(8) + b"torrent of orders..." + b"-KW0001-"
    yield CLIENT, handshake + chance.randbytes(12)
    yield SERVER, handshake + chance.randbytes(12)
    yield CLIENT, framed(b"\x05" + chance.randbytes(20)) + framed(b"\x02")
    yield SERVER, framed(b"\x01")
    for piece in range(5):
        yield CLIENT, framed(b"\x06" + struct.pack(">III", piece, 0, 4096))
        yield SERVER, framed(b"\x07" + struct.pack(">II", piece, 0) + chance.randbytes(4096))
        yield CLIENT, framed(b"")


@made("riak")
def riak(number: int) -> Spoken:
    for code in (1, 7, 9, 11, 15):
        asked = field(1, b"orders") + field(2, b"%d" % number) if code > 7 else b""
        yield CLIENT, framed(bytes([code]) + asked)
        yield SERVER, framed(bytes([code + 1]) + (field(1, b"riak@127.0.0.1") if code == 7 else b""))


@made("voltdb")
def voltdb(number: int) -> Spoken:
    yield CLIENT, framed(b"\x01\x01" + framed(b"database") + framed(b"") + bytes(32))
    yield SERVER, framed(b"\x00\x00" + struct.pack(">iqq", 0, number, 1_700_000_000_000))
    for handle in range(5):
        yield CLIENT, framed(b"\x00" + framed(b"GetOrder") + struct.pack(">qhbi", handle, 1, 5, number))
        yield SERVER, framed(b"\x00" + struct.pack(">qbbbihh", handle, 0, 1, -128, 2, 0, 0))


@made("sap-ni")
def sap_ni(number: int) -> Spoken:
    yield CLIENT, framed(b"NI_PING\0")
    yield SERVER, framed(b"NI_PONG\0")
    for step in range(4):
        yield CLIENT, framed(b"\xff\0\0\0\0\0\0\x0c" + struct.pack(">HH", step, number) + b"    ")
        yield SERVER, framed(b"\0\0\0\x01\0\0\0\0" + b"R3TRANS " * 4)


@made("carbon-pickle")
def carbon_pickle(number: int) -> Spoken:
    for tick in range(6):
        rows = [
            (f"shop.orders.{number}", (1_700_000_000 + tick, 17.5)),
            ("shop.visits", (1_700_000_000, tick)),
        ]
        yield CLIENT, framed(pickle.dumps(rows, protocol=2))


@made("lumberjack")
def lumberjack(number: int) -> Spoken:
    for sequence in range(1, 5):
        text = json.dumps({"message": f"order {number}", "offset": sequence}).encode()
        yield CLIENT, b"2W" + struct.pack(">I", 1) + b"2J" + struct.pack(">I", sequence) + framed(text)
        yield SERVER, b"2A" + struct.pack(">I", sequence)


@made("fluentd")
def fluentd(number: int) -> Spoken:
    for tick in range(5):
        tag = b"shop.orders"
        event = struct.pack(">II", 1_700_000_000 + tick, 0) + b"\x81\xa2id" + bytes([number % 100])
        head = b"\x93" + bytes([0xA0 | len(tag)]) + tag + b"\x91\x92\xd7\x00"
        yield CLIENT, head + event + b"\x81\xa5chunk\xa4" + b"%04d" % tick
        yield SERVER, b"\x81\xa3ack\xa4" + b"%04d" % tick


@made("memcached-binary")
def memcached_binary(number: int) -> Spoken:
    for opaque in range(6):
        key = b"order-%d" % number
        yield CLIENT, struct.pack(">BBHBBHIIQ", 0x80, 0, len(key), 0, 0, 0, len(key), opaque, 0) + key
        yield SERVER, struct.pack(">BBHBBHIIQ", 0x81, 0, 0, 4, 0, 0, 8, opaque, 7) + bytes(4) + b"book"


@made("aerospike")
def aerospike(number: int) -> Spoken:
    for generation in range(5):
        body = struct.pack(">BBBBBBIIIHH", 22, 3, 0, 0, 0, 0, generation, 0, 1000, 1, 0) + framed(
            b"\x00orders"
        )
        yield CLIENT, struct.pack(">Q", 2 << 56 | 3 << 48 | len(body)) + body
        answer = struct.pack(">BBBBBBIIIHH", 22, 0, 0, 0, 0, number % 2 * 2, generation, 0, 0, 0, 0)
        yield SERVER, struct.pack(">Q", 2 << 56 | 3 << 48 | len(answer)) + answer


@made("hazelcast")
def hazelcast(number: int) -> Spoken:
    yield CLIENT, b"CP2"
    for correlation in range(1, 6):
        head = struct.pack("<IHIqi", 22, 0xC000, 0x000100, correlation, -1)
        yield CLIENT, head + struct.pack("<IH", 13, 0x2000) + b"orders%d" % (number % 10)
        yield SERVER, struct.pack("<IHIqi", 22, 0xE000, 0x000101, correlation, -1)


@made("ignite")
def ignite(number: int) -> Spoken:
    yield CLIENT, struct.pack("<IBhhhB", 8, 1, 1, 7, 0, 2)
    yield SERVER, struct.pack("<IB", 1, 1)
    for id_ in range(5):
        yield CLIENT, struct.pack("<IhqiBBi", 20, 1000, id_, 1_234_567, 0, 3, number)
        yield SERVER, struct.pack("<IqiBi", 17, id_, 0, 3, number)


@made("bolt")
def bolt(number: int) -> Spoken:
    yield CLIENT, bytes.fromhex("6060b017 00000504 00000404 00000003 00000000")
    yield SERVER, bytes.fromhex("00000504")
    for _ in range(4):
        run = b"\xb3\x10\xd0\x15MATCH (o) RETURN o.id\xa0\xa0"
        yield CLIENT, struct.pack(">H", len(run)) + run + b"\0\0"
        done = b"\xb1\x70\xa1\x86fields\x91\x82id" + bytes([number % 120])
        yield SERVER, struct.pack(">H", len(done)) + done + b"\0\0"


@made("capnproto")
def capnproto(number: int) -> Spoken:
    for question in range(5):
        words = struct.pack("<IIQQQ", 0, 1, 3, question << 32 | 2, number) + bytes(16)
        yield CLIENT, struct.pack("<II", 0, len(words) // 8) + words
        yield SERVER, struct.pack("<II", 0, len(words) // 8) + words[::-1]


@made("mainframe")
def fixed_records(number: int) -> Spoken:
    """A mainframe's records: a length that counts itself, EBCDIC text, packed decimals."""
    for sequence in range(6):
        text = f"ORDER{number:06}{sequence:04}".encode("cp500") + b"\x00\x00\x01\x2c"
        yield CLIENT, struct.pack(">I", len(text) + 4) + text
        yield SERVER, struct.pack(">I", 12) + "OK      ".encode("cp500")
