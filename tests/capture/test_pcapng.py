"""pcapng files: blocks, sections, interfaces, times, and damage."""

from __future__ import annotations

import random
import struct
import time

import pytest
from files import (
    SECOND,
    START,
    brief,
    expected,
    frame,
    frames,
    ng_block,
    ng_enhanced,
    ng_interface,
    ng_obsolete,
    ng_section,
    ng_simple,
    notes,
    pcapng,
    read,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from scapy.layers.l2 import Ether
from scapy.utils import PcapNgWriter

from kwsniff.capture.source import CaptureError, CaptureTotals
from tests.strength import examples

TSRESOL, TSOFFSET, COMMENT = 9, 14, 1


@pytest.fixture
def write(tmp_path):
    def write(data):
        path = tmp_path / "test.pcapng"
        path.write_bytes(data)
        return str(path)

    return write


@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize("block_bytes", [1, 100, 1000, 1 << 20])
@pytest.mark.parametrize("block_packets", [1, 7, 1000])
def test_both_byte_orders_are_read_in_blocks_of_any_size(write, order, block_bytes, block_packets):
    packets = frames(60)
    rows = read(write(pcapng(packets, order)), block_bytes=block_bytes, block_packets=block_packets)
    assert brief(rows) == expected(packets)


def test_sections_of_different_byte_order_and_interfaces_follow_one_another(write):
    packets = frames(30)
    data = pcapng(packets[:10], "<") + pcapng(packets[10:20], ">") + pcapng(packets[20:], "<")
    for size in (100, 1 << 20):
        assert brief(read(write(data), block_bytes=size)) == expected(packets)


@given(st.lists(st.tuples(st.sampled_from("<>"), st.integers(0, 3), st.integers(0, 4)), max_size=12))
@settings(max_examples=examples(60))
@pytest.mark.parametrize("block_bytes", [1, 300, 1 << 20])
def test_sections_of_any_order_with_any_number_of_interfaces_and_packets_are_read(
    tmp_path_factory, block_bytes, sections
):
    # Interfaces of every section differ in resolution and offset: those of another would show another time.
    data, told = ng_section() + ng_interface(), []
    for order, interfaces, packets in sections:
        data += ng_section(order)
        for number in range(interfaces):
            options = [(TSRESOL, bytes([9 - 3 * number])), (TSOFFSET, struct.pack(order + "q", len(told)))]
            data += ng_interface(order, options=options)
        for number in range(packets if interfaces else 0):
            which, payload = number % interfaces, bytes(len(told))
            ticks = START // 1000**which
            data += ng_enhanced((START, frame(len(told), payload)), order, which, ticks=ticks)
            told.append((START + (len(told) - number) * SECOND, len(told), payload))
    path = tmp_path_factory.mktemp("sections") / "test.pcapng"
    path.write_bytes(data)
    rows = read(str(path), block_bytes=block_bytes)
    assert [(row["time"], row["seq"], row["payload"]) for row in rows] == told


@pytest.mark.parametrize("orders", ["<", "<>"])
def test_a_section_before_each_packet_costs_little(tmp_path, orders):
    # Each once cost a millisecond: 15 s.
    packets = [(START, frame(number)) for number in range(15_000)]
    path = tmp_path / "many.pcapng"
    path.write_bytes(b"".join(pcapng([each], orders[at % len(orders)]) for at, each in enumerate(packets)))
    assert spent(lambda: read(str(path))) < 5


def test_an_interface_for_each_packet_costs_little(tmp_path):
    # All packets were once gone through for each: 11 s.
    count = 20_000
    offsets = (ng_interface(options=[(TSOFFSET, struct.pack("<q", each))]) for each in range(count))
    data = [ng_section(), *offsets, *(ng_enhanced((START, b""), interface=each) for each in range(count))]
    path = tmp_path / "many.pcapng"
    path.write_bytes(b"".join(data))
    assert spent(lambda: read(str(path), block_bytes=1 << 24)) < 5


def spent(act):
    """Seconds of processor time."""
    before = time.process_time()
    act()
    return time.process_time() - before


def test_interfaces_have_their_own_link_type_and_resolution(write):
    time, data = START + 123_456_789, frame(5, b"x")
    blocks = [
        ng_section(),
        ng_interface(linktype=1, options=[(TSRESOL, b"\x09")]),
        ng_interface(linktype=101),
        ng_enhanced((time, data), interface=0, ticks=time),
        ng_enhanced((time, data[14:]), interface=1),
        ng_interface(linktype=101, options=[(TSRESOL, b"\x03")]),
        ng_enhanced((time, data[14:]), interface=2, ticks=time // 10**6),
        ng_enhanced((time, data), interface=0, ticks=time + 1),
    ]
    rows = read(write(b"".join(blocks)))
    assert [row["time"] for row in rows] == [
        time,
        time // 1000 * 1000,
        time // 10**6 * 10**6,
        time + 1,
    ]
    assert {row["payload"] for row in rows} == {b"x"}


@pytest.mark.parametrize(
    ("resolution", "ticks", "expected_time"),
    [
        (0, 1_700_000_000, START),
        (1, 17_000_000_005, START + 500_000_000),
        (6, 1_700_000_000_123_456, START + 123_456_000),
        (9, START + 1, START + 1),
        (12, 1_700_000_000_123_456_789_999, None),
        (10, 17_000_000_001_234_567_891, START + 123_456_789),
        (0x80, 1_700_000_000, START),
        (0x80 | 20, (1_700_000_000 << 20) + (1 << 19), START + 500_000_000),
        (0x80 | 32, (1_700_000_000 << 32) + 1, START),
        (0x80 | 32, (1_700_000_000 << 32) + 43, START + 10),
        (0x80 | 33, (1_700_000_000 << 33) + (3 << 31), START + 750_000_000),
    ],
)
def test_time_resolutions_are_powers_of_ten_or_two(write, resolution, ticks, expected_time):
    interface = ng_interface(options=[(TSRESOL, bytes([resolution]))])
    packet = ng_enhanced((0, frame(1)), ticks=ticks & (2**64 - 1))
    (row,) = read(write(ng_section() + interface + packet))
    wrapped = (ticks & (2**64 - 1)) * SECOND // 10**12
    assert row["time"] == (wrapped if expected_time is None else expected_time)


@pytest.mark.parametrize("offset", [3600, -3600])
@pytest.mark.parametrize("order", "<>")
def test_a_time_offset_is_added(write, offset, order):
    options = [(COMMENT, b"shifted"), (TSOFFSET, struct.pack(order + "q", offset))]
    data = ng_section(order) + ng_interface(order, options=options) + ng_enhanced((START, frame(1)), order)
    assert [row["time"] for row in read(write(data))] == [START + offset * SECOND]


@pytest.mark.parametrize("order", "<>")
def test_enhanced_simple_and_obsolete_packets_keep_their_order(write, order):
    packets = frames(9, size=lambda index: 1 + index)
    blocks = [ng_section(order), ng_interface(order)]
    for index, packet in enumerate(packets):
        kind = (ng_enhanced, ng_obsolete, lambda each, order: ng_simple(each[1], order))[index % 3]
        blocks.append(kind(packet, order))
    rows = read(write(b"".join(blocks)))
    times = [time if index % 3 < 2 else packets[index - 1][0] for index, (time, _) in enumerate(packets)]
    assert brief(rows) == expected([(time, data) for time, (_, data) in zip(times, packets, strict=True)])


def test_a_simple_packet_is_cut_at_the_snaplen_of_the_first_interface(write):
    whole = frame(1, b"y" * 100)
    data = ng_section() + ng_interface(snaplen=80) + ng_simple(whole[:80], origlen=len(whole))
    (row,) = read(write(data))
    assert (row["length"], row["payload"], row["time"]) == (100, b"y" * 26, 0)


def test_other_blocks_and_options_are_stepped_over(write):
    packets = frames(10)
    others = [
        ng_block(4, b"\x01\x00\x08\x00\x0a\x00\x00\x01host\x00\x00\x00\x00"),
        ng_block(10, b"secrets!" * 9),
        ng_block(0xBAD, b"\x01\x02\x03\x04private data"),
        ng_block(0x40000BAD, b"\x01\x02\x03\x04private data"),
        ng_block(0x77777777, b""),
    ]
    data = ng_section() + ng_interface(options=[(2, b"eth0"), (COMMENT, b"a comment")])
    for index, packet in enumerate(packets):
        data += others[index % len(others)]
        data += ng_enhanced(packet, options=[(COMMENT, b"seen " * 40), (2, b"\x01\x00\x00\x00")])
    rows = read(write(data))
    assert brief(rows) == expected(packets)
    assert notes(rows) == []


def test_a_file_written_by_scapy_is_read(tmp_path):
    path = str(tmp_path / "scapy.pcapng")
    packets = frames(20)
    with PcapNgWriter(path) as writer:
        for time, data in packets:
            packet = Ether(data)
            packet.time = time / 1e9
            packet.comment = "by scapy"
            writer.write(packet)
    assert [row[2:] for row in brief(read(path))] == [row[2:] for row in expected(packets)]


def test_drops_of_the_last_statistics_of_each_interface_are_counted(write):
    def statistics(interface, *counts):
        body = struct.pack("<III", interface, 0, 0)
        for code, count in counts:
            body += struct.pack("<HHQ", code, 8, count)
        return ng_block(5, body + bytes(4))

    totals = CaptureTotals()
    data = ng_section() + ng_interface() * 2 + statistics(0, (4, 100), (5, 3))
    data += statistics(0, (4, 200), (5, 7), (7, 2)) + statistics(1, (5, 1))
    read(write(data + pcapng([]) + statistics(0, (5, 10))), totals)
    assert totals.dropped == 7 + 2 + 1 + 10


def test_every_truncation_of_a_file_gives_the_packets_before_it(write):
    packets = frames(3, size=lambda index: 2)
    data = pcapng(packets)
    start, size = len(ng_section() + ng_interface()), len(ng_enhanced(packets[0]))
    for end in range(28, len(data)):
        totals = CaptureTotals()
        rows = read(write(data[:end]), totals)
        whole = max(end - start, 0) // size
        assert brief(rows) == expected(packets[:whole]), end
        on_edge = end in (28, start) or (end > start and (end - start) % size == 0)
        assert notes(rows) == ([] if on_edge else ["capture_cut_short"]), end
        assert totals.cut_short == (not on_edge)


@pytest.mark.parametrize("end", [4, 11, 27])
def test_a_file_that_ends_in_its_section_header_is_no_capture(write, end):
    with pytest.raises(CaptureError, match=r"test\.pcapng: ends inside its section header"):
        read(write(pcapng([])[:end]))


GARBAGE = {
    "zeros": bytes(5000),
    "ones": b"\xff" * 5001,
    "text": b"the quick brown fox " * 250,
    "random": random.Random(3).randbytes(5003),
    "one byte": b"x",
    "two lengths that differ": struct.pack("<II", 6, 64) + bytes(52) + struct.pack("<I", 60),
    "a broken section header": struct.pack("<IIII", 0x0A0D0D0A, 28, 5, 5) + bytes(12),
    "a length beyond the file": struct.pack("<II", 6, 1 << 24),
}


@pytest.mark.parametrize("kind", GARBAGE)
@pytest.mark.parametrize("block_bytes", [500, 2000, 1 << 20])
@pytest.mark.parametrize("order", "<>")
def test_garbage_between_blocks_is_skipped_and_counted(write, kind, block_bytes, order):
    packets = frames(60)
    head = pcapng(packets[:30], order)
    data = head + GARBAGE[kind] + b"".join(ng_enhanced(packet, order) for packet in packets[30:])
    totals = CaptureTotals()
    rows = read(write(data), totals, block_bytes=block_bytes)
    assert brief(rows) == expected(packets)
    assert notes(rows) == ["capture_damaged"]
    assert totals.skipped_bytes == len(GARBAGE[kind])


def test_a_packet_longer_than_its_block_or_of_no_interface_is_skipped(write):
    packets = frames(3)
    too_long = bytearray(ng_enhanced(packets[1]))
    struct.pack_into("<I", too_long, 20, 5000)
    for bad in (bytes(too_long), ng_enhanced(packets[1], interface=9), ng_block(6, bytes(4))):
        data = pcapng(packets[:1]) + bad + ng_enhanced(packets[2])
        rows = read(write(data))
        assert brief(rows) == expected(packets[:1]) + expected(packets[2:], first=2)
        assert notes(rows) == ["capture_damaged"]


def test_a_block_length_that_is_no_multiple_of_four_stands_for_the_next_one(write):
    time, data = START, frame(1, b"abc")
    body = (
        struct.pack("<IIIII", 0, time // 1000 >> 32, time // 1000 & 0xFFFFFFFF, len(data), len(data)) + data
    )
    size = struct.pack("<I", len(body) + 12)
    block = struct.pack("<I", 6) + size + body + bytes(-len(body) % 4) + size
    assert len(data) % 4
    packets = [(START, data)]
    assert brief(read(write(pcapng([]) + block + ng_enhanced(packets[0])))) == expected(packets * 2)


@given(data=st.data())
@settings(max_examples=examples(100))
def test_bytes_lost_from_the_middle_cost_the_packets_they_touch_and_maybe_a_neighbour(tmp_path_factory, data):
    packets = frames(40, size=lambda index: 40 + index)
    starts = [len(pcapng([]))]
    for packet in packets:
        starts.append(starts[-1] + len(ng_enhanced(packet)))
    whole = pcapng(packets)
    first = data.draw(st.integers(starts[10], starts[20]))
    last = first + data.draw(st.integers(1, 900))
    touched = {index for index in range(40) if starts[index + 1] > first and starts[index] < last}
    path = tmp_path_factory.getbasetemp() / "lost.pcapng"
    path.write_bytes(whole[:first] + whole[last:])
    found = [row[2:] for row in brief(read(str(path)))]
    rows = list(enumerate(row[2:] for row in expected(packets)))
    untouched = [row for index, row in rows if index not in touched]
    far = [row for index, row in rows if not {index - 1, index, index + 1} & touched]
    # What is left of two blocks may fit together, or end where the next one has an equal length.
    assert [row for row in found if row in far] == far
    assert len(set(untouched) - set(found)) <= 1
    assert len(set(found) - set(untouched)) <= 1


@given(st.binary(max_size=2000), st.sampled_from([64, 1000, 1 << 16]))
@settings(max_examples=examples(200))
def test_no_bytes_behind_a_section_header_make_reading_raise(tmp_path_factory, body, block_bytes):
    path = tmp_path_factory.getbasetemp() / "fuzz.pcapng"
    path.write_bytes(pcapng([]) + body)
    for row in read(str(path), block_bytes=block_bytes):
        assert row["anomaly"]


@given(st.data())
@settings(max_examples=examples(300))
def test_flipped_bytes_never_make_reading_raise_and_it_ends(tmp_path_factory, data):
    content = bytearray(pcapng(frames(12)) + pcapng(frames(5), ">"))
    for _ in range(data.draw(st.integers(1, 5))):
        content[data.draw(st.integers(28, len(content) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.getbasetemp() / "flip.pcapng"
    path.write_bytes(content)
    assert len(brief(read(str(path), block_bytes=data.draw(st.sampled_from([64, 300, 1 << 16]))))) <= 17
