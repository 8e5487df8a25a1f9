from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from kwsniff.analysis.report import Report
from kwsniff.analysis.statistics import TABLES

from . import oracle
from .events import START, batch, batches, call, event
from .samples import mixture, topics_of

ROWS = mixture(700)


def report(*rows: dict[str, Any], size: int = 100, **options: Any) -> Report:
    return Report.from_events(batches(rows, size), **options)


def one(report: Report, table: str, **where: Any) -> dict[str, Any]:
    """The single row of a table with those values, null as None."""
    frame = report.tables[table]
    for name, value in where.items():
        frame = frame[frame[name] == value]
    assert len(frame) == 1
    return {name: None if pd.isna(value) else value for name, value in frame.iloc[0].items()}


def assert_figures(row: dict[str, Any], rows: list[dict[str, Any]], without: tuple[str, ...] = ()) -> None:
    for name, expected in oracle.figures(rows).items():
        if name not in without:
            assert row[name] == (pytest.approx(expected) if expected is not None else None), name


def plain(frame: pd.DataFrame) -> list[dict[str, Any]]:
    return [
        {name: None if pd.isna(value) else value for name, value in row.items()}
        for row in frame.to_dict(orient="records")
    ]


@pytest.mark.parametrize("size", [1, 37, 700])
def test_every_table_holds_what_plain_python_counts(size: int) -> None:
    tables = report(*ROWS, size=size).tables
    keys = {
        "api": lambda row: [row["api"]],
        "client": lambda row: [(row["client_id"], row["client_ip"])],
        "broker": lambda row: [row["broker_ip"]],
        "error": lambda row: [(row["error"], row["api"])] if row["error_code"] else [],
    }
    found = {
        "api": lambda row: row["api"],
        "client": lambda row: (row["client_id"], row["client_ip"]),
        "broker": lambda row: row["broker"].removesuffix(":9092").strip("[]"),
        "error": lambda row: (row["error"], row["api"]),
    }
    for name, key in keys.items():
        expected = oracle.grouped(ROWS, key)
        rows = {found[name](row): row for row in plain(tables[name])}
        assert rows.keys() == expected.keys()
        for group, calls in expected.items():
            without = ("errors", "error_ratio") if name == "error" else ()
            assert_figures(rows[group], calls, without)


@pytest.mark.parametrize("size", [1, 37, 700])
def test_a_call_counts_for_each_topic_it_names_by_name_or_uuid(size: int) -> None:
    rows = {row["topic"]: row for row in plain(report(*ROWS, size=size).tables["topic"])}
    expected = oracle.grouped(ROWS, topics_of)
    assert rows.keys() == expected.keys()
    for topic, calls in expected.items():
        assert_figures(rows[topic], calls)


def test_errors_are_named_with_their_part_of_the_calls() -> None:
    row = one(report(*ROWS), "api", api="Metadata")
    calls = [row for row in ROWS if row["api"] == "Metadata"]
    names = oracle.error_names(calls)
    shown = dict(text.split("=") for text in row["errors_by_name"].split("; "))
    assert shown == {name: f"{count} ({100 * count / len(calls):.3g}%)" for name, count in names.items()}


def test_tables_have_the_declared_columns_and_arrow_types_also_without_any_event() -> None:
    for tables in (report().tables, report(*ROWS).tables):
        assert list(tables) == list(TABLES)
        for name, columns in TABLES.items():
            assert list(tables[name]) == [column.name for column in columns]
            assert [dtype.pyarrow_dtype for dtype in tables[name].dtypes] == [
                column.type for column in columns
            ]


def test_rows_are_sorted_by_calls_then_name() -> None:
    tables = report(
        call(),
        call(api_key=9, api="OffsetFetch"),
        call(api_key=9, api="OffsetFetch"),
        call(api_key=1, api="Fetch"),
    )
    assert tables.tables["api"]["api"].tolist() == ["OffsetFetch", "Fetch", "Metadata"]


# Waiting


def fetch(latency: float, waited: float = 0.0) -> dict[str, Any]:
    parts = {"waited_us": waited, "broker_us": latency - waited, "broker_least_us": latency - waited}
    return call(latency=latency, api_key=1, api="Fetch", max_wait_ms=500, **parts)


def test_waiting_is_told_apart_from_service_time() -> None:
    rows = [fetch(500_100, 500_000.0), fetch(502_000, 500_000.0), fetch(900), fetch(1100)]
    row = one(report(*rows), "api", api="Fetch")
    assert (row["calls"], row["waited_calls"]) == (4, 2)
    assert (row["latency_p50_us"], row["latency_max_us"]) == (1000.0, 1100.0)
    assert row["duration_max_us"] == 1120.0
    assert (row["waited_p50_us"], row["waited_max_us"]) == (501_050.0, 502_000.0)
    assert row["wait_overrun_max_us"] == 2000.0


# Topics


def test_a_topic_has_the_records_bytes_and_errors_of_its_own_partitions() -> None:
    parts = [
        {"topic": "a", "partition": 0, "error_code": 0, "records": 5, "bytes": 50},
        {"topic": "a", "partition": 1, "error_code": 0, "records": 7, "bytes": 70},
        {"topic": "b", "partition": 0, "error_code": 6, "records": None, "bytes": None},
    ]
    row = call(
        topics=["a", "b"], partitions=parts, status="error", error_code=6, error="NOT_LEADER_OR_FOLLOWER"
    )
    made = report(row, call(topics=["a"], partitions=parts[:1]))
    a, b = one(made, "topic", topic="a"), one(made, "topic", topic="b")
    assert (a["calls"], a["records"], a["record_bytes"], a["partitions_seen"]) == (2, 17, 170, 2)
    assert (a["errors"], a["error_codes"], a["errors_by_name"]) == (0, 0, None)
    assert (b["calls"], b["records"], b["partitions_seen"], b["errors"]) == (1, 0, 1, 1)
    assert b["errors_by_name"] == "NOT_LEADER_OR_FOLLOWER=1 (100%)"
    assert one(made, "error", error="NOT_LEADER_OR_FOLLOWER")["topics"] == "b"


def test_an_error_of_no_partition_counts_for_all_topics_of_the_call() -> None:
    row = call(topics=["a", "b"], status="error", error_code=3, error="UNKNOWN_TOPIC_OR_PARTITION")
    assert report(row).tables["topic"]["errors"].tolist() == [1, 1]


def test_a_uuid_gets_the_name_that_a_later_call_gives_it() -> None:
    by_id = call(topics=[None], topic_ids=["u1"], partitions=[{"topic_id": "u1", "partition": 4, "bytes": 9}])
    by_name = call(topics=["t"], partitions=[{"topic": "t", "partition": 4, "bytes": 1}])
    rows = [by_id, by_name, call(topics=["t"], topic_ids=["u1"]), call(topics=[None], topic_ids=["u2"])]
    for size in (1, 2, 4):
        made = Report.from_events(batches(rows, size))
        assert made.tables["topic"]["topic"].tolist() == ["t", "u2"]
        row = one(made, "topic", topic="t")
        assert (row["calls"], row["record_bytes"], row["partitions_seen"]) == (3, 10, 1)


# Errors


def test_an_error_says_who_is_affected_and_when() -> None:
    failed = {"status": "error", "error_code": 3, "error": "UNKNOWN_TOPIC_OR_PARTITION", "error_count": 2}
    rows = [
        call(at=1000, topics=["x"], **failed),
        call(at=9000, topics=["y"], client_id=None, **failed),
        call(),
        call(api_key=1, api="Fetch", topics=["z"], **failed),
    ]
    made = report(*rows, errors={3: ("UNKNOWN_TOPIC_OR_PARTITION", True)})
    row = one(made, "error", api="Metadata")
    assert (row["error_code"], row["retriable"], row["calls"], row["error_codes"]) == (3, True, 2, 4)
    assert row["api_call_ratio"] == pytest.approx(2 / 3)
    assert (row["topics_affected"], row["topics"]) == (2, "x;y")
    assert (row["clients_affected"], row["clients"]) == (2, "@10.0.0.1;app@10.0.0.1")
    assert row["first_time"] == pd.Timestamp(START + 1000, unit="us", tz="UTC")
    assert row["last_time"] == pd.Timestamp(START + 10_020, unit="us", tz="UTC")


def test_without_error_facts_retriable_is_null_and_an_unknown_code_has_a_number() -> None:
    row = one(report(call(status="error", error_code=999)), "error", error_code=999)
    assert (row["error"], row["retriable"]) == ("ERROR_999", None)


# Other figures


def test_rates_are_per_second_of_covered_time_without_the_time_between_captures() -> None:
    hour = 3_600_000_000
    rows = [
        call(at=0, capture="a"),
        call(at=1_998_980, capture="a"),
        call(at=hour, capture="b", latency=1_999_980),
    ]
    made = report(*rows)
    assert made.covered_s == pytest.approx(4.0)
    assert one(made, "api", api="Metadata")["calls_per_s"] == pytest.approx(0.75)


def test_overlapping_captures_are_covered_once_and_connections_count() -> None:
    rows = [call(capture="a", latency=999_980), call(capture="b", latency=999_980)]
    first, last = START - 1_000_000, START + 500_000
    rows.append(event(event="connection", capture="a", first_time=first, last_time=last))
    assert report(*rows).covered_s == pytest.approx(2.0)


def test_an_orphan_beside_known_apis_has_no_name_either() -> None:
    row = call(api_key=None, api=None, client_id=None, status="orphan", request_time=None, latency_us=None)
    table = Report.from_events(batches([row, call(), call(api_key=999, api=None)], 2)).tables["api"]
    assert sorted(table["api"].dropna()) == ["Metadata", "key 999"]
    assert table["api"].isna().sum() == 1


def test_an_orphan_of_unknown_api_is_a_call_without_name() -> None:
    row = call(api_key=None, api=None, client_id=None, status="orphan", request_time=None, latency_us=None)
    row |= {"request_end_time": None, "duration_us": None, "request_bytes": None, "in_flight": None}
    table = report(row).tables["api"]
    assert table["api"].isna().tolist() == [True]
    assert (table["orphan"][0], table["calls"][0], table["response_bytes"][0]) == (1, 1, 200)
    assert table["in_flight_max"].isna().tolist() == [True]


def test_an_unknown_key_goes_by_its_number() -> None:
    assert report(call(api_key=99, api=None)).tables["api"]["api"].tolist() == ["key 99"]


def test_client_libraries_are_named_once_seen() -> None:
    version = {"software_name": "librdkafka", "software_version": "2.3.0"}
    made = report(call(**version), call(), call(client_id="b"))
    assert one(made, "client", client_id="app")["software"] == "librdkafka 2.3.0"
    assert one(made, "client", client_id="b")["software"] is None


def test_an_ipv6_broker_stands_in_brackets() -> None:
    assert report(call(broker_ip="fd00::1")).tables["broker"]["broker"].tolist() == ["[fd00::1]:9092"]


def test_anomalies_and_connections_are_no_calls() -> None:
    made = report(call(), event(event="anomaly", code="gap"), event(event="connection", capture="a.pcap"))
    assert made.tables["api"]["calls"].sum() == 1


@pytest.mark.parametrize("samples", [None, 0, 10_000])
@pytest.mark.parametrize("name", ["api", "client", "broker"])
def test_a_table_is_the_same_where_nothing_is_asked_by_topic(name: str, samples: int | None) -> None:
    made = Report.from_events([batch(*ROWS)], only=[name], samples=samples)
    assert list(made.arrow) == [name]
    assert made.arrow[name].equals(report(*ROWS).arrow[name])


def test_a_client_that_gives_no_id_has_its_software() -> None:
    one = call(client_id=None, client_ip="10.0.0.1", software_name="librdkafka", software_version="2.3.0")
    row = report(one).arrow["client"].select(["client_id", "software"]).to_pylist()
    assert row == [{"client_id": None, "software": "librdkafka 2.3.0"}]


def test_cubes_grow_without_changing_a_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = report(*ROWS).tables
    monkeypatch.setattr("kwsniff.count.keyed._ROWS", 1)
    monkeypatch.setattr("kwsniff.count.spool.BATCH_ROWS", 10)
    for name, frame in report(*ROWS, size=5).tables.items():
        pd.testing.assert_frame_equal(frame, expected[name])


def test_a_sliced_batch_counts_only_its_own_rows() -> None:
    whole = batch(*ROWS)
    parts = [whole.slice(0, 100), whole.slice(300, 50)]
    expected = report(*ROWS[:100], *ROWS[300:350]).tables
    for name, frame in Report.from_events(parts).tables.items():
        pd.testing.assert_frame_equal(frame, expected[name])
