"""pcap files: formats, blocks, and damage."""

from __future__ import annotations

import random
import struct

import pytest
from files import (
    MICRO,
    MODIFIED,
    NANO,
    START,
    brief,
    expected,
    frame,
    frames,
    notes,
    pcap,
    read,
    record,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from scapy.utils import wrpcap

from kwsniff.capture.source import CaptureError, CaptureTotals, blocks
from tests.strength import examples

HEADER = 24


@pytest.fixture
def write(tmp_path):
    def write(data):
        path = tmp_path / "test.pcap"
        path.write_bytes(data)
        return str(path)

    return write


@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize("magic", [MICRO, NANO, MODIFIED])
def test_both_byte_orders_and_all_magics_are_read(write, order, magic):
    packets = [(START + 123_456_789 // (1 if magic == NANO else 1000) * 1000 + 5000, frame(7, b"x" * 30))]
    packets = [(time // 1000 * 1000 + (1 if magic == NANO else 0), data) for time, data in packets]
    assert brief(read(write(pcap(packets * 3, order, magic)))) == expected(packets * 3)


def test_a_row_carries_every_column(write):
    path = write(pcap([(START, frame(7, b"a payload of 20 byte"))]))
    assert read(path) == [
        {
            "capture": path,
            "packet": 1,
            "time": START,
            "src_hi": 0,
            "src_lo": 0x0000FFFF_0A000001,
            "dst_hi": 0,
            "dst_lo": 0x0000FFFF_0A000002,
            "src_port": 40000,
            "dst_port": 9092,
            "seq": 7,
            "ack": 9,
            "flags": 0x18,
            "tsval": -1,
            "length": 20,
            "payload": b"a payload of 20 byte",
            "anomaly": None,
            "detail": None,
        }
    ]


def test_upper_bits_of_the_link_type_tell_of_a_frame_check_sequence_and_are_ignored(write):
    packets = frames(3)
    assert brief(read(write(pcap(packets, linktype=0x24000001)))) == expected(packets)


def test_a_file_written_by_scapy_is_read(write, tmp_path):
    packets = frames(20)
    path = str(tmp_path / "scapy.pcap")
    from scapy.layers.l2 import Ether

    built = [Ether(data) for _, data in packets]
    for packet, (time, _) in zip(built, packets, strict=True):
        packet.time = time / 1e9
    wrpcap(path, built)
    assert [row[2:] for row in brief(read(path))] == [row[2:] for row in expected(packets)]


def test_a_file_without_packets_gives_nothing(write):
    totals = CaptureTotals()
    assert read(write(pcap([])), totals) == []
    assert (totals.files, totals.packets) == (1, 0)


@pytest.mark.parametrize("block_bytes", [1, 100, 1000, 4096, 1 << 20])
@pytest.mark.parametrize("block_packets", [1, 7, 1000])
def test_blocks_of_any_size_hold_the_same_packets(write, block_bytes, block_packets):
    packets = frames(60)
    rows = read(write(pcap(packets)), block_bytes=block_bytes, block_packets=block_packets)
    assert brief(rows) == expected(packets)


def test_a_block_has_no_more_packets_than_configured(write):
    from kwsniff.config import Config

    path = write(pcap(frames(100)))
    sizes = [len(block) for block in blocks(path, Config(block_packets=30))]
    assert sizes == [30, 30, 30, 10]


def test_a_packet_cut_by_the_snaplen_keeps_its_length(write):
    whole = frame(1, b"x" * 100)
    data = pcap([]) + record((START, whole[:80]), origlen=len(whole))
    (row,) = read(write(data))
    assert (row["length"], row["payload"]) == (100, b"x" * 26)


def test_every_truncation_of_a_file_gives_the_packets_before_it(write):
    packets = frames(4, size=lambda index: 3)
    data = pcap(packets)
    size = len(record(packets[0]))
    for end in range(HEADER, len(data)):
        totals = CaptureTotals()
        rows = read(write(data[:end]), totals)
        whole, over = divmod(end - HEADER, size)
        assert brief(rows) == expected(packets[:whole]), end
        assert notes(rows) == (["capture_cut_short"] if over else [])
        assert totals.cut_short == bool(over)
        assert totals.damaged == 0


def test_a_cut_packet_is_noted_with_its_number_and_place(write):
    packets = frames(3)
    data = pcap(packets)
    *_, last = read(write(data[:-1]))
    assert (last["packet"], last["anomaly"]) == (3, "capture_cut_short")
    assert last["detail"] == f"the file ends inside a packet at offset {len(data) - len(record(packets[2]))}"
    assert last["time"] == packets[1][0]
    assert last["seq"] is None
    assert last["payload"] is None


@pytest.mark.parametrize("end", [0, 3, 4, 23])
def test_a_file_that_ends_in_its_header_is_no_capture(write, end):
    with pytest.raises(CaptureError, match=r"test\.pcap: ") as caught:
        read(write(pcap([])[:end]))
    assert "\n" not in str(caught.value)


# Damage

GARBAGE = {
    "zeros": bytes(5000),
    "ones": b"\xff" * 5000,
    "text": b"the quick brown fox " * 250,
    "random": random.Random(3).randbytes(5000),
    "16 zeros": bytes(16),
    "one byte": b"x",
    "a lie about the length": struct.pack("<IIII", 1_700_000_000, 5, 300_000, 300_000),
}


@pytest.mark.parametrize("kind", GARBAGE)
@pytest.mark.parametrize("block_bytes", [500, 2000, 1 << 20])
@pytest.mark.parametrize("order", "<>")
def test_garbage_between_packets_is_skipped_and_counted(write, kind, block_bytes, order):
    packets = frames(60)
    head, garbage = pcap(packets[:30], order), GARBAGE[kind]
    data = head + garbage + b"".join(record(packet, order) for packet in packets[30:])
    totals = CaptureTotals()
    rows = read(write(data), totals, block_bytes=block_bytes)
    found = [row[2:] for row in brief(rows)]
    wanted = [row[2:] for row in expected(packets)]
    assert notes(rows) == ["capture_damaged"]
    assert [row for row in wanted if row not in found] == []
    assert totals.skipped_bytes == len(garbage)
    assert totals.damaged == 1
    damage = next(row for row in rows if row["anomaly"])
    assert damage["packet"] == 31
    assert damage["detail"] == f"{len(garbage)} bytes at offset {len(head)} are no packets and were skipped"


@pytest.mark.parametrize("kind", GARBAGE)
def test_garbage_at_the_end_costs_no_packet(write, kind):
    packets = frames(30)
    rows = read(write(pcap(packets) + GARBAGE[kind]))
    assert brief(rows) == expected(packets)
    assert len(notes(rows)) == 1


def test_garbage_before_the_first_packet_is_skipped(write):
    packets = frames(30)
    rows = read(write(pcap([]) + b"garbage " * 99 + pcap(packets)[HEADER:]))
    assert brief(rows) == expected(packets)
    assert notes(rows) == ["capture_damaged"]


@given(data=st.data())
@settings(max_examples=examples(100))
def test_bytes_lost_from_the_middle_cost_the_packets_they_touch_and_at_most_the_one_before(
    tmp_path_factory, data
):
    packets = frames(40, size=lambda index: 40 + index)
    starts = [HEADER]
    for packet in packets:
        starts.append(starts[-1] + len(record(packet)))
    whole = pcap(packets)
    first = data.draw(st.integers(starts[10], starts[20]))
    last = first + data.draw(st.integers(1, 900))
    touched = [index for index in range(40) if starts[index + 1] > first and starts[index] < last]
    path = tmp_path_factory.mktemp("lost") / "test.pcap"
    path.write_bytes(whole[:first] + whole[last:])
    found = [row[2:] for row in brief(read(str(path)))]
    for index, row in enumerate(expected(packets)):
        if index not in touched and index + 1 not in touched:
            assert row[2:] in found, (index, touched)
    assert len(found) <= 40


@given(st.binary(max_size=2000), st.sampled_from([64, 1000, 1 << 16]))
@settings(max_examples=examples(200))
def test_no_bytes_behind_a_file_header_make_reading_raise(tmp_path_factory, body, block_bytes):
    path = tmp_path_factory.getbasetemp() / "fuzz.pcap"
    path.write_bytes(pcap([]) + body)
    for row in read(str(path), block_bytes=block_bytes):
        assert row["anomaly"] is None or row["anomaly"] in ("capture_damaged", "capture_cut_short")


@given(st.data())
@settings(max_examples=examples(200))
def test_flipped_bytes_never_make_reading_raise_and_it_ends(tmp_path_factory, data):
    content = bytearray(pcap(frames(20)))
    for _ in range(data.draw(st.integers(1, 5))):
        content[data.draw(st.integers(HEADER, len(content) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.getbasetemp() / "flip.pcap"
    path.write_bytes(content)
    assert len(brief(read(str(path), block_bytes=data.draw(st.sampled_from([64, 300, 1 << 16]))))) <= 21
