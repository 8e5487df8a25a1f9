"""Databases, telephony, industry and finance, made byte by byte after their published layouts."""

from __future__ import annotations

import random
import struct

from exchanges.noise import Spoken
from exchanges.stage import CLIENT, SERVER, made


@made("tds")
def tds(number: int) -> Spoken:
    def packet(kind: int, body: bytes) -> bytes:
        return struct.pack(">BBHHBB", kind, 1, len(body) + 8, 0, 1, 0) + body

    login = bytes.fromhex("00001500060100 1b000102001c000103001d0004ff 0000000000000200000000000000")
    yield CLIENT, packet(0x12, login)
    yield SERVER, packet(4, bytes.fromhex("00000b00060100 11000 1ff 0f000fa00000".replace(" ", "")[:36]))
    for batch in range(4):
        text = f"select * from orders where id = {number + batch}".encode("utf-16-le")
        yield CLIENT, packet(1, struct.pack("<IIHQI", 22, 18, 2, 0, 1) + text)
        row = b"\x81\x01\0\0\0\0\0\0\0\x38\x02i\0d\0\xd1" + struct.pack("<I", number)
        yield SERVER, packet(4, row + b"\xfd\x10\0\xc1\0" + bytes(8))


@made("oracle-tns")
def oracle_tns(number: int) -> Spoken:
    def packet(kind: int, body: bytes) -> bytes:
        return struct.pack(">HHBBH", len(body) + 8, 0, kind, 0, 0) + body

    where = b"(DESCRIPTION=(CONNECT_DATA=(SERVICE_NAME=shop)(CID=(PROGRAM=app)(USER=u%d)))" % number
    head = struct.pack(">10HIBB", 316, 300, 0x0C41, 8192, 32767, 0x4F98, 0, 1, len(where), 58, 0, 0, 0)
    yield CLIENT, packet(1, head + bytes(24) + where)
    yield SERVER, packet(2, struct.pack(">HHHHHHHH", 316, 0x0C41, 8192, 32767, 256, 0, 32, 0) + bytes(8))
    for call in range(1, 6):
        asked = b"\x61\x80\0\0\0\0\0\0\x20select id from orders where n=%02d" % call
        yield CLIENT, packet(6, b"\0\0\x03\x5e" + bytes([call]) + asked)
        noise = random.Random(number).randbytes(40)
        yield SERVER, packet(6, b"\0\0\x10\x17" + noise + b"\x08\x01\x06" + bytes(60))


@made("drda")
def drda(number: int) -> Spoken:
    def dss(kind: int, correlation: int, codepoint: int, body: bytes) -> bytes:
        size = len(body)
        return struct.pack(">HBBHHH", size + 10, 0xD0, kind, correlation, size + 4, codepoint) + body

    for correlation in range(1, 6):
        name = f"app{number}".encode("cp500")
        yield CLIENT, dss(1, correlation, 0x1041, struct.pack(">HH", len(name) + 4, 0x115E) + name)
        yield SERVER, dss(2, correlation, 0x1443, struct.pack(">HH", 12, 0x1147) + "QDB2/NT ".encode("cp500"))


@made("cassandra")
def cassandra(number: int) -> Spoken:
    def frame(version: int, stream: int, opcode: int, body: bytes) -> bytes:
        return struct.pack(">BBhBI", version, 0, stream, opcode, len(body)) + body

    yield CLIENT, frame(4, 0, 5, b"")
    yield SERVER, frame(0x84, 0, 6, b"\0\x01\0\x0bCQL_VERSION\0\x01\0\x053.4.5")
    yield CLIENT, frame(4, 1, 1, b"\0\x01\0\x0bCQL_VERSION\0\x053.0.0")
    yield SERVER, frame(0x84, 1, 2, b"")
    for stream in range(2, 8):
        text = b"SELECT * FROM orders WHERE id=%d" % number
        yield CLIENT, frame(4, stream, 7, struct.pack(">I", len(text)) + text + b"\0\x01\0")
        head = struct.pack(">IIIH", 2, 1, 1, 4) + b"shop\0\x06orders\0\x02id\0\x09"
        yield SERVER, frame(0x84, stream, 8, head + struct.pack(">III", 1, 4, number))


@made("smpp")
def smpp(number: int) -> Spoken:
    def pdu(command: int, sequence: int, body: bytes = b"") -> bytes:
        return struct.pack(">IIII", len(body) + 16, command, 0, sequence) + body

    yield CLIENT, pdu(9, 1, b"esme%d\0none\0\0\x34\0\0\0" % number)
    yield SERVER, pdu(0x8000_0009, 1, b"smsc\0")
    for sequence in range(2, 7):
        yield CLIENT, pdu(4, sequence, b"\0\x01\x014912\0\x01\x014913\0\0\0\0\0\0\x01\0\0\0\x05hello")
        yield SERVER, pdu(0x8000_0004, sequence, b"%d\0" % sequence)
        yield CLIENT, pdu(0x15, sequence + 100)
        yield SERVER, pdu(0x8000_0015, sequence + 100)


@made("skinny")
def skinny(number: int) -> Spoken:
    def message(kind: int, body: bytes) -> bytes:
        return struct.pack("<III", len(body) + 4, 0, kind) + body

    yield CLIENT, message(1, b"SEP%012d\0" % number + bytes(32))
    yield SERVER, message(0x81, struct.pack("<II", 30, 0) + b"D/M/YA\0\0" + struct.pack("<II", 30, 0))
    for _ in range(6):
        yield CLIENT, message(0, b"")
        yield SERVER, message(0x100, b"")
        yield CLIENT, message(3, struct.pack("<III", number % 12, 1, 0))


@made("diameter")
def diameter(number: int) -> Spoken:
    def message(flags: int, command: int, hop: int) -> bytes:
        avps = struct.pack(">IBBH", 264, 0x40, 0, 18) + b"peer.test\0\0\0"
        avps += struct.pack(">IBBHI", 278, 0x40, 0, 12, number)
        words = (1 << 24 | len(avps) + 20, flags << 24 | command, 0, hop, hop)
        return struct.pack(">5I", *words) + avps

    for hop, command in enumerate((257, 280, 272, 272, 280, 282)):
        yield CLIENT, message(0x80, command, hop)
        yield SERVER, message(0, command, hop)


@made("openflow")
def openflow(number: int) -> Spoken:
    def message(kind: int, id_: int, body: bytes = b"") -> bytes:
        return struct.pack(">BBHI", 4, kind, len(body) + 8, id_) + body

    yield CLIENT, message(0, 1)
    yield SERVER, message(0, 1)
    yield SERVER, message(5, 2)
    yield CLIENT, message(6, 2, struct.pack(">QIBBHII", number, 256, 254, 0, 0, 0x4F, 0))
    for id_ in range(3, 9):
        yield SERVER, message(14, id_, bytes(40) + struct.pack(">HHI", 1, 4, 0))
        yield CLIENT, message(2, id_)
        yield SERVER, message(3, id_)


@made("iec104")
def iec104(number: int) -> Spoken:
    yield CLIENT, bytes.fromhex("680407000000")
    yield SERVER, bytes.fromhex("68040b000000")
    for sent in range(8):
        yield SERVER, struct.pack("<BBHHBBHHBH", 0x68, 14, sent * 2, 2, 1, 1, 3, 1, number % 250, 0) + b"\x01"
        yield CLIENT, struct.pack("<BBHH", 0x68, 4, 1, sent * 2 + 2)


@made("s7comm")
def s7comm(number: int) -> Spoken:
    yield CLIENT, bytes.fromhex("0300001611e00000000100c0010ac1020100c2020102")
    yield SERVER, bytes.fromhex("0300001611d00001000100c0010ac1020100c2020102")
    for reference in range(6):
        read = struct.pack(">BBHHHH", 0x32, 1, 0, reference, 14, 0)
        read += bytes.fromhex("0401120a1002000100") + struct.pack(">HBH", number, 0x84, 0)
        told = struct.pack(">BBHHHHH", 0x32, 3, 0, reference, 2, 6, 0)
        told += b"\x04\x01\xff\x04\0\x10" + struct.pack(">H", number)
        for speaker, body in ((CLIENT, read), (SERVER, told)):
            yield speaker, struct.pack(">BBH", 3, 0, len(body) + 7) + b"\x02\xf0\x80" + body


@made("ethernet-ip")
def ethernet_ip(number: int) -> Spoken:
    yield CLIENT, struct.pack("<HHIIQIHH", 0x65, 4, 0, 0, 0, 0, 1, 0)
    yield SERVER, struct.pack("<HHIIQIHH", 0x65, 4, number, 0, 0, 0, 1, 0)
    for context in range(6):
        body = struct.pack("<IHHHHHH", 0, 10, 2, 0, 0, 0xB2, 6) + b"\x0e\x02\x20\x01\x24\x01"
        head = struct.pack("<HHIIQI", 0x6F, len(body), number, 0, context, 0)
        yield CLIENT, head + body
        yield SERVER, head + body.replace(b"\x0e\x02", b"\x8e\0")


@made("dnp3")
def dnp3(number: int) -> Spoken:
    chance = random.Random(number)
    for sequence in range(8):
        for speaker, head, body in (
            (CLIENT, b"\x05\x64\x14\xc4\x0a\0\x01\0", b"\xc1\x01\x3c\x02\x06"),
            (SERVER, b"\x05\x64\x1a\x44\x01\0\x0a\0", b"\xe1\x81\0\0\x01\x02\0\0\x07\x01"),
        ):
            before, behind = chance.randbytes(2), chance.randbytes(2)
            yield speaker, head + before + bytes([0xC0 | sequence]) + body + behind


@made("dicom")
def dicom(number: int) -> Spoken:
    def pdu(kind: int, body: bytes) -> bytes:
        return struct.pack(">BBI", kind, 0, len(body)) + body

    title = struct.pack(">HH", 1, 0) + b"ARCHIVE         MODALITY        " + bytes(32)
    yield CLIENT, pdu(1, title + b"\x10\0\0\x151.2.840.10008.3.1.1.1")
    yield SERVER, pdu(2, title + b"\x10\0\0\x151.2.840.10008.3.1.1.1")
    for id_ in range(4):
        body = b"\x01\x03" + struct.pack("<HHIH", 0, 0x100, 2, 0x30) + struct.pack("<HHIH", 0, 0x110, 2, id_)
        yield CLIENT, pdu(4, struct.pack(">I", len(body)) + body)
        yield SERVER, pdu(4, struct.pack(">I", len(body)) + body)
    yield CLIENT, pdu(5, bytes(4))
    yield SERVER, pdu(6, struct.pack(">I", number % 2 * 0))


@made("fix")
def fix(number: int) -> Spoken:
    def message(kind: str, sequence: int, more: str = "") -> bytes:
        body = f"35={kind}|49=BUY|56=SELL|34={sequence}|{more}".replace("|", "\x01").encode()
        head = b"8=FIX.4.4\x019=%d\x01" % len(body) + body
        return head + b"10=%03d\x01" % (sum(head) % 256)

    for sequence in range(1, 8):
        yield CLIENT, message("A" if sequence == 1 else "D", sequence, f"11={number}|55=KFK|38=100|")
        yield SERVER, message("A" if sequence == 1 else "8", sequence, "39=2|150=F|")


@made("hl7")
def hl7(number: int) -> Spoken:
    for id_ in range(5):
        head = f"MSH|^~\\&|LAB|A|EHR|B|20240101||{{}}|{id_}|P|2.5\r"
        asked = head.format("ORU^R01") + f"PID|1||{number}\rOBX|1|NM|GLU||5\r"
        yield CLIENT, b"\x0b" + asked.encode() + b"\x1c\r"
        yield SERVER, b"\x0b" + (head.format("ACK") + f"MSA|AA|{id_}\r").encode() + b"\x1c\r"


@made("rtmp")
def rtmp(number: int) -> Spoken:
    noise = random.Random(number).randbytes(1528)
    yield CLIENT, b"\x03" + bytes(8) + noise
    yield SERVER, b"\x03" + bytes(8) + noise[::-1] + bytes(8) + noise
    connect = b"\x02\0\x07connect\0\x3f\xf0" + bytes(6) + b"\x03\0\x03app\x02\0\x04live\0\0\x09"
    yield CLIENT, b"\x03\0\0\0\0\0" + bytes([len(connect)]) + b"\x14\0\0\0\0" + connect
    yield SERVER, bytes.fromhex("02000000000004050000000000004c4b40 020000000000050600000000004c4b4002")
    for tick in range(5):
        yield CLIENT, b"\x04" + tick.to_bytes(3) + b"\0\0\x60\x09\x01\0\0\0" + bytes(96)


@made("bitcoin")
def bitcoin(number: int) -> Spoken:
    def message(command: bytes, body: bytes) -> bytes:
        head = b"\xf9\xbe\xb4\xd9" + command.ljust(12, b"\0") + struct.pack("<I", len(body))
        return head + b"\x5d\xf6\xe0\xe2" + body

    for speaker in (CLIENT, SERVER):
        yield speaker, message(b"version", struct.pack("<iQq", 70016, 1, 1_700_000_000) + bytes(70))
        yield speaker, message(b"verack", b"")
    for _ in range(4):
        yield CLIENT, message(b"ping", struct.pack("<Q", number))
        yield SERVER, message(b"pong", struct.pack("<Q", number))


@made("bgp-monitoring")
def bmp(number: int) -> Spoken:
    for kind in (4, 3, 0, 0, 0, 1, 0, 0):
        body = bytes(42) + b"\xff" * 16 + struct.pack(">HBHH", 23, 2, 0, number % 3 * 0)
        yield CLIENT, struct.pack(">BIB", 3, len(body) + 6, kind) + body


@made("rpki-rtr")
def rpki(number: int) -> Spoken:
    yield CLIENT, struct.pack(">BBHI", 1, 2, 0, 8)
    yield SERVER, struct.pack(">BBHI", 1, 3, number % 9, 8)
    for prefix in range(30):
        yield SERVER, struct.pack(">BBHIBBBBII", 1, 4, 0, 20, 1, 24, 24, 0, 0x0A000000 + (prefix << 8), 64500)
    yield SERVER, struct.pack(">BBHIIIII", 1, 7, number % 9, 24, 5, 3600, 600, 7200)


@made("tacacs")
def tacacs(number: int) -> Spoken:
    chance = random.Random(number)
    for sequence in (1, 3, 5):
        yield CLIENT, struct.pack(">BBBBII", 0xC0, 1, sequence, 0, number, 40) + chance.randbytes(40)
        yield SERVER, struct.pack(">BBBBII", 0xC0, 1, sequence + 1, 0, number, 18) + chance.randbytes(18)


@made("radius")
def radius(number: int) -> Spoken:
    chance = random.Random(number)
    for id_ in range(5):
        yield CLIENT, struct.pack(">BBH", 1, id_, 38) + chance.randbytes(16) + b"\x01\x12user of the shop"
        yield SERVER, struct.pack(">BBH", 2, id_, 20) + chance.randbytes(16)


@made("rdp")
def rdp(number: int) -> Spoken:
    yield CLIENT, bytes.fromhex("030000130ee000000000000100080003000000")
    yield SERVER, bytes.fromhex("030000130ed000001234000209080002000000")
    for step in range(4):
        body = b"\x02\xf0\x80\x7f\x65\x82" + random.Random(number + step).randbytes(200)
        yield CLIENT, struct.pack(">BBH", 3, 0, len(body) + 4) + body
        yield SERVER, struct.pack(">BBH", 3, 0, 11) + b"\x02\xf0\x80\x2e\0\0\x08"


@made("rtsp")
def rtsp(number: int) -> Spoken:
    for sequence, verb in enumerate(("OPTIONS", "DESCRIBE", "SETUP", "PLAY"), 1):
        yield CLIENT, f"{verb} rtsp://127.0.0.1/camera/{number} RTSP/1.0\r\nCSeq: {sequence}\r\n\r\n".encode()
        yield SERVER, f"RTSP/1.0 200 OK\r\nCSeq: {sequence}\r\nSession: {number:08}\r\n\r\n".encode()
    for packet in range(12):
        head = struct.pack(">BBHHI", 0x80, 96, packet, 0, packet * 3000) + struct.pack(">I", number)
        noise = random.Random(packet).randbytes(300)
        yield SERVER, b"$\0" + struct.pack(">H", len(head) + 300) + head[:12] + noise


@made("ibm-mq")
def ibm_mq(number: int) -> Spoken:
    for step in range(5):
        body = struct.pack(">HHI", 273, 1208, number) + b"SYSTEM.DEF.SVRCONN  " + bytes(40)
        for speaker, flags in ((CLIENT, 0x31), (SERVER, 0x30)):
            head = struct.pack(">IBBBBQIHH", len(body) + 28, 1, 1 + step, flags, 0, 0, 273, 819, 0)
            yield speaker, b"TSH " + head + body


@made("lpd")
def lpd(number: int) -> Spoken:
    control = f"Hshop\nPorder\nfdfA{number:03}shop\n".encode()
    for words in (
        b"\x02lp\n",
        b"\x02%d cfA%03dshop\n" % (len(control), number),
        control + b"\0",
        b"\x0340 dfA%03dshop\n" % number,
        b"book" * 10 + b"\0",
    ):
        yield CLIENT, words
        yield SERVER, b"\0"


@made("whois")
def whois(number: int) -> Spoken:
    yield CLIENT, b"order-%d.example\r\n" % number
    yield SERVER, b"% no such domain\r\n\r\n% Kafka, F.\r\n"
