"""SEGMENTS batches: payloads are views, notes are rows."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest
from files import ETHERNET, START, frame, pcap, read, record
from hypothesis import given, settings
from hypothesis import strategies as st

from kwsniff.capture.batch import segment_batch
from kwsniff.capture.source import blocks, segments
from kwsniff.net.dissect import Dissector
from kwsniff.net.packets import CaptureTotals
from tests.strength import examples

PAYLOADS = [bytes(range(size)) for size in (0, 1, 4, 11, 12, 13, 14, 100)]


@pytest.fixture
def capture(tmp_path):
    def capture(data):
        path = tmp_path / "test.pcap"
        path.write_bytes(data)
        return str(path)

    return capture


def test_payloads_of_all_sizes_are_views_into_the_buffer_of_the_block(capture):
    path = capture(pcap([(START, frame(1, payload)) for payload in PAYLOADS]))
    (block,) = blocks(path)
    batch = segment_batch(Dissector(CaptureTotals()).dissect(block))
    payload = batch.column("payload")
    assert payload.to_pylist() == PAYLOADS
    assert payload.buffers()[2].address == block.data.ctypes.data
    batch.validate(full=True)


@given(st.lists(st.binary(max_size=20), max_size=12))
@settings(max_examples=examples(100))
def test_payloads_at_the_very_end_of_a_buffer_are_whole(payloads):
    from kwsniff.net.packets import PacketBlock

    frames = [frame(1, payload) for payload in payloads]
    caplen = np.array([len(each) for each in frames], np.int64)
    times = np.zeros(len(frames), np.int64)
    linktype = np.ones(len(frames), np.int64)
    number = np.arange(1, len(frames) + 1, dtype=np.int64)
    data = np.frombuffer(b"".join(frames), np.uint8)
    block = PacketBlock("t", data, np.cumsum(caplen) - caplen, caplen, caplen, times, number, linktype)
    batch = segment_batch(Dissector(CaptureTotals()).dissect(block))
    batch.validate(full=True)
    assert batch.column("payload").to_pylist() == payloads


def test_payloads_of_joined_fragments_are_in_a_buffer_of_their_own(capture):
    whole = frame(5, bytes(range(100)))
    header, body = bytearray(whole[14:34]), whole[34:]

    def piece(offset, size, more):
        header[2:4] = (20 + size).to_bytes(2, "big")
        header[6:8] = (offset // 8 | more << 13).to_bytes(2, "big")
        return START, ETHERNET + bytes(header) + body[offset : offset + size]

    plain = (START, frame(1, b"a plain packet of more than 12 bytes"))
    path = capture(pcap([plain, piece(0, 64, True), plain, piece(64, len(body) - 64, False), plain]))
    (batch,) = segments([path])
    batch.validate(full=True)
    assert batch.column("packet").to_pylist() == [1, 3, 4, 5]
    assert batch.column("payload").to_pylist() == [plain[1][54:]] * 2 + [bytes(range(100))] + [plain[1][54:]]


def test_a_note_is_a_row_in_front_of_its_packet_with_nothing_but_what_is_known(capture):
    malformed = frame(2)[:46] + b"\x00" + frame(2)[47:]
    path = capture(pcap([(START, frame(1, b"x" * 20)), (START + 1000, malformed), (START, frame(3))]))
    first, note, last = read(path)
    assert (first["packet"], last["packet"]) == (1, 3)
    assert first["payload"] == b"x" * 20
    assert note == {
        **dict.fromkeys(note),
        "capture": path,
        "packet": 2,
        "time": START + 1000,
        "anomaly": "packet_malformed",
        "detail": "TCP header",
    }


def test_a_captured_payload_never_exceeds_its_length(capture):
    padded = frame(1, b"ab") + bytes(20)
    (row,) = read(capture(pcap([]) + record((START, padded))))
    assert (row["length"], row["payload"]) == (2, b"ab")


def test_a_batch_survives_a_round_trip_through_arrow_ipc(capture):
    path = capture(pcap([(START, frame(1, payload)) for payload in PAYLOADS]))
    (batch,) = segments([path])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    assert pa.ipc.open_stream(sink.getvalue()).read_all().to_batches()[0].equals(batch)


def test_reading_plain_packets_loads_neither_scapy_nor_pandas(capture):
    path = capture(pcap([(START, frame(1, payload)) for payload in PAYLOADS]))
    code = (
        "import sys\n"
        "from kwsniff.capture.source import segments\n"
        "assert sum(map(len, segments([sys.argv[1]]))) == 8\n"
        "print([name for name in ('scapy', 'pandas') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code, path], check=True, capture_output=True, text=True)
    assert done.stdout == "[]\n"
