"""Whatever strangers send: the run ends, in bounded memory, and says which limit it met.

Sizes here are a fraction of those in docs/reliability.md, which `python -m tests.hostile.peak` measures and
the slow tests repeat.
"""

from __future__ import annotations

import struct
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from kwsniff.capture.source import segments
from kwsniff.config import LEAST_MEMORY, Config
from kwsniff.engine import requests
from kwsniff.engine.analyze import Engine, analyze
from kwsniff.engine.machine import PARTS, ROWS
from kwsniff.engine.tables import REQUESTS
from kwsniff.net.segments import segment_columns
from kwsniff.rows.events import ANOMALIES, UNANSWERED_REASONS
from kwsniff.run.offline import events
from tests.hostile.attacks import ATTACKS, FULL, Records, described, framed, header, metadata
from tests.hostile.peak import run
from tests.hostile.wire import Flow, write
from tests.samples import Row
from tests.strength import ALL

LIMIT_MB = 512

SMALL = {
    "one_byte_connections": 3000, "talking_connections": 300, "half_frames": 70_000_000, "holes": 8_000_000,
    "same_ids": 2000,
    "outstanding": 3000, "outstanding_everywhere": 20_000, "tiny_answers": 4000, "distinct_names": 2000,
    "distinct_ids": 20, "emptied_tables": 20_000, "drip": 150_000, "drip_unknown": 60_000,
    "early_answers": 20_000_000, "unasked": 4000, "just_below": 300, "long_names": 3_200_000,
    "long_client_ids": 1_920_000, "long_software": 300_000, "many_partitions": 20_000,
    "repeated_names": 5000, "long_prefix": 2_000_000,
    "many_elements": 500, "endless_varints": 200,
    "true_elements": 100_000, "empty_names": 300_000, "bombs": 50_000_000, "tiny_records": 100_000,
    "deep_nesting": 40, "overlaps": 300, "time_travel": 100, "many_holes": 3000, "fragments": 5000,
    "tiny_fragments": 2000, "labels": 20,
}  # fmt: skip

TIGHT = {
    "max_connections": 100, "max_outstanding": 500, "max_outstanding_total": 1000,
    "max_buffered_bytes": 4_000_000, "max_connection_bytes": 70_000_000, "max_reorder_bytes": 300_000,
    "max_decompressed_bytes": 1_000_000, "max_elements": 10_000,
}  # fmt: skip

LEAVES = {
    "one_byte_connections": "connection_limit", "talking_connections": "connection_limit",
    "half_frames": "buffer_limit", "holes": "reorder_limit", "outstanding": "outstanding_limit",
    "outstanding_everywhere": "outstanding_limit", "long_prefix": "frame_size_invalid",
    "many_elements": "array_too_long", "endless_varints": "varint_too_long", "true_elements": "element_limit",
    "empty_names": "element_limit", "bombs": "decompressed_size_limit",
    "tiny_records": "decompressed_size_limit",
    "drip": "frame_incomplete", "drip_unknown": "buffer_limit", "early_answers": "buffer_limit",
    "long_names": "outstanding_limit", "many_partitions": "element_limit",
    "overlaps": "overlap_differs", "time_travel": "time_backwards", "many_holes": "reorder_limit",
    "fragments": "fragment_lost", "labels": "packet_malformed", "same_ids": "correlation_id_reused",
    "deep_nesting": "nesting_limit",
}  # fmt: skip


def rows(path: Path, **choices: object) -> list[Row]:
    return [row for batch in events([str(path)], Config(**choices)) for row in batch.to_pylist()]  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_ends_and_leaves_the_anomaly_of_its_limit(name: str, tmp_path: Path) -> None:
    path = write(tmp_path / "attack.pcap", ATTACKS[name](SMALL[name]))
    found = rows(path, records=True, full=True, **TIGHT)
    codes = {row["code"] for row in found if row["event"] == "anomaly"}
    assert codes <= set(ANOMALIES)
    assert {row["unanswered_because"] for row in found} <= {None, *UNANSWERED_REASONS}
    if name in LEAVES:
        assert LEAVES[name] in codes


@pytest.mark.parametrize("name", ["long_prefix", "many_elements", "endless_varints", "deep_nesting", "bombs"])
def test_a_good_call_after_an_attack_is_still_seen(name: str, tmp_path: Path) -> None:
    path = write(tmp_path / "attack.pcap", ATTACKS[name](SMALL[name]))
    last = [row for row in rows(path) if row["event"] == "call"]
    assert [(row["topics"], row["status"]) for row in last if row["correlation_id"] == 7777] == [
        (["after"], "ok")
    ]


def test_limits_do_not_touch_what_keeps_within_them(tmp_path: Path) -> None:
    path = write(tmp_path / "good.pcap", ATTACKS["distinct_names"](500))
    found = [row for row in rows(path) if row["event"] == "call"]
    assert [row["topics"] for row in found] == [[f"topic-{number:08d}"] for number in range(500)]
    assert [row["client_id"] for row in found] == [f"client-{number:08d}" for number in range(500)]


@pytest.mark.parametrize("name", ["one_byte_connections", "outstanding", "tiny_answers"])
def test_the_blocks_in_which_packets_are_taken_change_no_row(name: str, tmp_path: Path) -> None:
    path = write(tmp_path / "attack.pcap", ATTACKS[name](SMALL[name] // (1 if ALL else 3)))
    assert rows(path, block_packets=50, block_bytes=5000) == rows(path)


@pytest.mark.parametrize("name", ["one_byte_connections", "outstanding", "outstanding_everywhere"])
def test_limits_cost_the_same_however_packets_come(name: str, tmp_path: Path) -> None:
    path = write(tmp_path / "attack.pcap", ATTACKS[name](SMALL[name] // 10))
    config = Config(**TIGHT | {"max_outstanding": 50, "max_outstanding_total": 100, "max_connections": 20})  # type: ignore[arg-type]
    given = list(segments([str(path)], config))

    def emitted(packets: int) -> list[Row]:
        parts = (batch.slice(at, packets) for batch in given for at in range(0, len(batch), packets))
        return [row for events in analyze(parts, config) for row in events.to_pylist()]

    whole = emitted(1 << 20)
    assert {row["code"] for row in whole} > {None}
    assert emitted(997) == whole
    assert emitted(64) == whole


@pytest.mark.parametrize("compiled", [False, True])
def test_a_table_of_requests_gives_its_room_back(compiled: bool, tmp_path: Path) -> None:
    path = write(tmp_path / "flood.pcap", answered_at_last(5000))
    config = Config(block_packets=1)
    engine, rooms = Engine(config, compiled=compiled), []
    for batch in segments([str(path)], config):
        for _ in engine.feed(segment_columns(batch)):
            pass
        rooms.append((engine.in_flight, len(engine.machine.t.requests)))
    assert max(rooms)[0] > 4000
    assert max(rooms)[1] > 4000
    assert rooms[-1] == (0, ROWS["requests"])


def answered_at_last(size: int) -> Records:
    """Requests of one connection, and behind them the responses to all of them."""
    flow = Flow()
    yield from flow.stream(0, (metadata(corr) for corr in range(size)))
    yield from flow.stream(1, (described(corr) for corr in range(size)))


@pytest.mark.parametrize("kernels", ["never", "always"])
def test_a_long_topic_is_whole_in_topics_and_cut_in_partitions(kernels: str, tmp_path: Path) -> None:
    path = write(tmp_path / "attack.pcap", ATTACKS["repeated_names"](3000))
    found = [row for row in rows(path, kernels=kernels) if row["event"] == "call"]
    assert [row["topics"] for row in found] == [["t" * 30_000]] * 3
    assert {each["topic"] for row in found for each in row["partitions"]} == {"t" * 249}
    assert [len(row["partitions"]) for row in found] == [1000] * 3


def test_what_a_client_says_of_itself_is_kept_to_512_characters(tmp_path: Path) -> None:
    path = write(tmp_path / "attack.pcap", ATTACKS["long_software"](100_000))
    assert [row["software_name"] for row in rows(path) if row["event"] == "call"] == ["s" * 512]


@pytest.mark.parametrize("compiled", [False, True])
def test_events_are_made_in_parts_however_much_one_packet_brings(compiled: bool, tmp_path: Path) -> None:
    path = write(tmp_path / "attack.pcap", ATTACKS["tiny_answers"](40_000))
    config = Config()
    engine, sizes = Engine(config, compiled=compiled), []
    for batch in segments([str(path)], config):
        for rows_of in engine.feed(segment_columns(batch)):
            sizes.append(len(rows_of))
        assert len(engine.machine.t.calls) <= 4 * PARTS["calls"]
    assert sum(sizes) == 40_000
    assert max(sizes) <= PARTS["calls"] + PARTS["notes"] + PARTS["ends"]


def test_limits_follow_from_the_memory_allowed() -> None:
    assert Config.within(512 * 10**6) == Config()
    assert Config.within(LEAST_MEMORY).max_connections < Config().max_connections
    assert Config.within(4 * 10**9).max_buffered_bytes > 5 * Config().max_buffered_bytes
    below = Config.within(512 * 10**6 - 1)
    assert (
        below.kernels == Config.within(LEAST_MEMORY).kernels == "auto"
    )  # interpreted ones take fifty times as long
    assert 0.99 < below.max_buffered_bytes / Config().max_buffered_bytes <= 1
    with pytest.raises(ValueError, match="less than"):
        Config.within(LEAST_MEMORY - 1)


def test_a_zero_filled_stream_is_searched_as_fast_as_any(tmp_path: Path) -> None:
    # Every byte of zeros once was a candidate header, looked at one by one: 300 s for 700 MB.
    path = write(tmp_path / "attack.pcap", ATTACKS["holes"](7_000_000))
    assert run("decode", str(path), "-q").processor < 5


def test_what_waits_behind_holes_is_not_gone_through_for_each_segment(tmp_path: Path) -> None:
    # 30,000 segments of one byte, each behind a hole of its own, once took 45 s.
    path = write(tmp_path / "attack.pcap", ATTACKS["many_holes"](30_000))
    assert run("decode", str(path), "-q").processor < 10


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("same_ids", 60_000),  # once went through all of them for each: 40 s
        ("tiny_fragments", 30_000),  # once made tables for each datagram: 5 s
        ("labels", 100),
    ],
)
def test_what_costs_little_to_send_costs_little_to_read(name: str, size: int, tmp_path: Path) -> None:
    path = write(tmp_path / "attack.pcap", ATTACKS[name](size))
    made = run("decode", str(path), "-q", "-j", "1", "-o", str(tmp_path / "events.parquet"))
    assert made.processor < 5
    assert made.megabytes < 250  # labels once took 140 MB a megabyte, through scapy


def test_the_command_refuses_too_little_memory_in_one_line() -> None:
    made = run("decode", "captures", "--max-memory", "10M")
    assert (made.code, made.errors.count("\n")) == (2, 1)
    made = run("decode", "captures", "--max-memory", "much")
    assert (made.code, made.errors.count("\n")) == (2, 1)


@pytest.mark.one_of(2)
@pytest.mark.parametrize("form", ["parquet", "jsonl"])
@pytest.mark.parametrize("name", ["true_elements", "tiny_records", "half_frames"])
def test_memory_stays_within_what_was_allowed(name: str, form: str, tmp_path: Path) -> None:
    size = {"true_elements": 4_000_000, "tiny_records": 4_000_000, "half_frames": 300_000_000}[name]
    path = write(tmp_path / "attack.pcap", ATTACKS[name](size))
    shown = ["--records", "--full"] if form == "jsonl" else ["--records"]
    made = run("decode", str(path), "-q", "-j", "1", *shown, "-o", str(tmp_path / f"events.{form}"))
    assert made.code == 0
    assert made.megabytes < LIMIT_MB


@pytest.mark.slow
@pytest.mark.parametrize("name", ATTACKS)
def test_memory_stays_within_512_mb_at_full_size(name: str, tmp_path: Path) -> None:
    path = write(tmp_path / "attack.pcap", ATTACKS[name](FULL[name]))
    out = tmp_path / "events.parquet"
    made = run("decode", str(path), "-q", "-j", "1", "-o", str(out))
    assert made.code == 0
    assert made.megabytes < LIMIT_MB
    assert pq.read_metadata(out).num_rows > 0


@pytest.mark.slow
@pytest.mark.parametrize("name", ["talking_connections", "outstanding_everywhere", "distinct_names"])
def test_memory_stays_within_512_mb_with_all_bodies_as_json(name: str, tmp_path: Path) -> None:
    path = write(tmp_path / "attack.pcap", ATTACKS[name](FULL[name]))
    out = str(tmp_path / "events.jsonl")
    made = run("decode", str(path), "-q", "-j", "1", "--full", "--records", "-o", out, timeout=1800)
    assert made.code == 0
    assert made.megabytes < LIMIT_MB


@pytest.mark.slow
@pytest.mark.parametrize("name", ["distinct_names", "long_names"])
@pytest.mark.parametrize("options", [(), ("--csv",)])
def test_a_report_of_many_or_long_names_stays_within_512_mb(
    options: tuple[str, ...], name: str, tmp_path: Path
) -> None:
    path = write(tmp_path / "attack.pcap", ATTACKS[name](FULL[name]))
    made = run("report", str(path), "-q", "-j", "1", *options, *[str(tmp_path / "csv")] * len(options))
    assert made.code == 0
    assert made.megabytes < LIMIT_MB


@pytest.mark.slow
@pytest.mark.parametrize("name", ["just_below", "many_partitions"])
def test_a_report_of_what_comes_near_the_limits_stays_within_512_mb(name: str, tmp_path: Path) -> None:
    path = write(tmp_path / "attack.pcap", ATTACKS[name](FULL[name]))
    made = run("report", str(path), "-q", "-j", "1")
    assert made.code == 0
    assert made.megabytes < LIMIT_MB


# What is held and remembered for many connections

SEGMENT = 2000


def calls_of_all(connections: int, last: int) -> Records:
    """Each connection has an answered call of about `SEGMENT` bytes in both directions; another one then has
    a request that takes `last` bytes, in many segments."""
    asked = [b"t" * 100] * (SEGMENT // 102)
    told = struct.pack(">ih", 1, SEGMENT) + b"h" * SEGMENT + struct.pack(">i", 9092)
    for number in range(connections):
        flow = Flow(number)
        yield from flow.stream(0, [metadata(1, asked)])
        yield from flow.stream(1, [framed(struct.pack(">ii", 1, 1) + told + struct.pack(">i", 0))])
    flow = Flow(connections)
    yield from flow.open()
    whole = metadata(1, [b"t" * 100] * (last // 102))
    for at in range(0, len(whole), SEGMENT):
        yield flow.send(0, whole[at : at + SEGMENT])
    yield flow.send(1, described(1))


@pytest.mark.parametrize("kernels", ["never", "auto"])
def test_what_retransmissions_are_compared_with_costs_no_frame(kernels: str, tmp_path: Path) -> None:
    # Four kilobytes of each connection once counted as held and were never let go: large requests went.
    path = write(tmp_path / "many.pcap", calls_of_all(100, 100_000))
    found = rows(path, max_buffered_bytes=200_000, kernels=kernels)
    assert [row["code"] for row in found if row["event"] == "anomaly"] == []
    statuses = [row["status"] for row in found if row["event"] == "call"]
    assert statuses == ["ok"] * 101


def sends(connections: int, each: int) -> Records:
    """Connections of an answered request and so many Produce requests that want no reply."""
    body = struct.pack(">hhi", 0, 1000, 0)
    for number in range(connections):
        flow = Flow(number)
        yield from flow.stream(0, [metadata(1)])
        yield from flow.stream(1, [described(1)])
        yield from flow.stream(0, (framed(header(0, 2, 2 + corr) + body) for corr in range(each)))


@pytest.mark.parametrize(("connections", "most"), [(2, 60), (40, 100 * 5), (300, 2 * 100 + 300)])
def test_connections_remember_fewer_ids_when_there_are_many(
    connections: int, most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The n-th connection keeps the n-th part of a hundred: less than 100 (1 + ln 40) in all. From 200 on each
    # keeps one.
    monkeypatch.setattr(requests, "ALL_UNASKED", 100)
    path, config = write(tmp_path / "sends.pcap", sends(connections, 30)), Config()
    engine, emitted = Engine(config, compiled=False), []
    for batch in segments([str(path)], config):
        for rows_of in engine.feed(segment_columns(batch)):
            emitted += rows_of["status"].drop_null().to_pylist()
    assert emitted.count("no_reply_expected") == 30 * connections
    assert 0 < int(engine.machine.t.pools[REQUESTS].used) <= most + 2
