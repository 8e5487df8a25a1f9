"""Figures against pandas over decoded samples, and limits."""

from __future__ import annotations

import tracemalloc
from collections.abc import Mapping
from functools import cache

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from kwsniff.analysis.report import Report
from kwsniff.config import Config
from kwsniff.count.eventrows import waited
from kwsniff.count.percentiles import ERROR
from kwsniff.live.screen.lastminute import NEEDED, QUANTILES, Figures, ScreenStatistics, Snapshot
from kwsniff.live.screen.screenrows import ROWS
from kwsniff.live.session import Health
from kwsniff.rows.schema import EVENTS
from kwsniff.run.offline import events
from tests.live.screen.events import batch, call, health
from tests.samples import sample

SAMPLES = [
    "librdkafka-groups", "librdkafka-errors", "librdkafka-transactions", "java-groups", "mock-errors",
    "mock-produce", "kafka-0.8", "midstream", "throttled", "ipv6", "rotation", "quorum",
]  # fmt: skip
WINDOW_US = 60_000_000
SLOT_US = 3_000_000


@cache
def batches(name: str) -> list[pa.RecordBatch]:
    return list(events(sample(name).paths, Config()))


@cache
def calls(name: str) -> pd.DataFrame:
    """The calls that are in the window when the capture ends, and `seconds`, what they cover."""
    whole = pa.concat_batches(batches(name))
    frame = whole.to_pandas()
    frame["waited"] = waited(whole)
    frame = frame[frame.event == "call"].copy()
    known = frame.response_end_time.fillna(frame.request_end_time).fillna(frame.time)
    now = known.max()
    begin = pd.Timestamp((now.value // 1000 // SLOT_US * SLOT_US - WINDOW_US) * 1000, tz="UTC")
    frame["inside"] = (known >= begin) | (frame.status == "unanswered")
    frame["seconds"] = max((now - max(begin, known.min())).total_seconds(), 1)
    return frame[frame.inside]


def shown(name: str, pieces: int = 1) -> Snapshot:
    statistics = ScreenStatistics()
    for events_batch in batches(name):
        size = max(-(-events_batch.num_rows // pieces), 1)
        for first in range(0, events_batch.num_rows, size):
            statistics.add(events_batch.slice(first, size))
            if pieces > 1:
                statistics.snapshot()
    return statistics.snapshot()


def groups_of(snapshot: Snapshot) -> Mapping[str, Figures]:
    assert snapshot.groups is not None
    return snapshot.groups


def figures(group: Figures) -> dict[tuple[str | None, str], dict[str, int]]:
    """Sums by key; others must have none."""
    assert not any(values[-1] for values in group.sums.values())
    assert group.keys[-1] is None
    return {
        key: {name: int(values[row]) for name, values in group.sums.items()}
        for row, key in enumerate(group.keys)
        if key is not None
    }


def expected(frame: pd.DataFrame, by: list[str]) -> dict[tuple[str, ...], dict[str, int]]:
    measures = pd.DataFrame(
        {
            "calls": 1,
            "errors": frame.error_code.fillna(0) != 0,
            "unanswered": frame.status == "unanswered",
            "waited": frame.waited,
            "bytes": frame.request_bytes.fillna(0) + frame.response_bytes.fillna(0),
        }
    ).astype("int64")
    sums = measures.groupby([frame[column] for column in by], dropna=False).sum()
    found = {}
    for key, row in sums.iterrows():
        parts = key if isinstance(key, tuple) else (key,)
        found[tuple(None if pd.isna(part) else part for part in parts)] = row.to_dict()
    return found


BY = {
    "api": ["api"],
    "client": ["client_id", "client_ip"],
    "broker": ["broker_ip", "broker_port"],
    "group": ["group_id"],
}


@pytest.mark.parametrize("name", SAMPLES)
def test_sums_are_those_of_pandas(name: str) -> None:
    groups = groups_of(shown(name))
    frame = calls(name)
    frame = frame.assign(api=frame.api.fillna("API " + frame.api_key.astype("Int64").astype(str)))
    for grouping, columns in BY.items():
        own = frame[frame.group_id.notna()] if grouping == "group" else frame
        got = {
            (key[0], int(key[1])) if grouping == "broker" else key[: len(columns)]: sums
            for key, sums in figures(groups[grouping]).items()
        }
        assert got == expected(own, columns), grouping


@pytest.mark.parametrize("name", SAMPLES)
def test_calls_and_bytes_by_topic_are_those_of_pandas(name: str) -> None:
    groups = groups_of(shown(name))
    frame = calls(name)
    named = frame[frame.topics.notna()].explode("topics")
    named = named[named.topics.notna()]
    by_name = named.groupby("topics").size().to_dict()
    got = figures(groups["topic"])
    # A topic that only a uuid names has a row by it until its name is learnt.
    assert {key[0]: sums["calls"] for key, sums in got.items() if key[0] in by_name}.keys() == by_name.keys()
    for key, sums in got.items():
        if key[0] in by_name:
            assert sums["calls"] >= by_name[key[0]]
    sizes = sum(part["bytes"] or 0 for parts in frame.partitions.dropna() for part in parts)
    assert sum(sums["bytes"] for sums in got.values()) == sizes


@pytest.mark.parametrize("name", ["librdkafka-groups", "librdkafka-errors", "mock-errors", "java-groups"])
def test_percentiles_are_those_of_pandas_within_the_stated_error(name: str) -> None:
    groups = groups_of(shown(name))
    frame = calls(name)
    served = frame[frame.latency_us.notna() & ~frame.waited]
    exact = served.groupby(["client_id", "client_ip"], dropna=False).latency_us
    compared = 0
    for row, key in enumerate(groups["client"].keys):
        got = groups["client"].quantiles[row]
        values = [] if key is None else [v for k, g in exact for v in g if _same(k, key)]
        if not values:
            assert np.isnan(got).all()
            continue
        wanted = pd.Series(values).quantile(list(QUANTILES)).to_numpy()
        assert got == pytest.approx(wanted, rel=ERROR, abs=1)
        compared += 1
    assert compared > 1


def _same(one: tuple[object, ...], other: tuple[object, ...]) -> bool:
    return all(a == b or (pd.isna(a) and b is None) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("name", ["librdkafka-groups", "mock-errors"])
def test_a_capture_shorter_than_the_window_has_the_report_s_figures(name: str) -> None:
    table = Report.from_events(batches(name)).tables["api"].set_index("api")
    groups = groups_of(shown(name))
    for row, key in enumerate(groups["api"].keys[:-1]):
        assert key is not None
        line = table.loc[key[0]]
        got = {measure: int(values[row]) for measure, values in groups["api"].sums.items()}
        assert got["calls"] == line.calls
        assert got["errors"] == line.errors
        assert got["unanswered"] == line.unanswered
        assert got["waited"] == line.waited_calls
        assert got["bytes"] == line.request_bytes + line.response_bytes
        if pd.notna(line.latency_p99_us):
            assert groups["api"].quantiles[row, 2] == pytest.approx(line.latency_p99_us, rel=ERROR)


@pytest.mark.parametrize("name", ["librdkafka-groups", "mock-errors", "rotation"])
def test_how_events_are_cut_into_batches_changes_no_sum(name: str) -> None:
    whole, pieces = groups_of(shown(name)), groups_of(shown(name, pieces=40))
    for grouping in ("api", "client", "broker", "group"):
        assert figures(whole[grouping]) == figures(pieces[grouping])


@pytest.mark.parametrize("name", SAMPLES)
def test_all_calls_together_are_the_sum_and_cover_the_time(name: str) -> None:
    got, frame = shown(name), calls(name)
    assert got.whole is not None
    assert got.whole.sums["calls"][0] == len(frame)
    assert got.whole.seconds[0] == pytest.approx(frame.seconds.iloc[0], abs=1e-5)
    assert got.calls == sum((np.array(b["event"]) == "call").sum() for b in batches(name))


# By hand


def one(rows: list[dict[str, object]], tick: Health | None = None) -> Snapshot:
    statistics = ScreenStatistics()
    statistics.add(batch(rows))
    if tick:
        statistics.tick(tick)
    return statistics.snapshot()


def by_name(snapshot: Snapshot, grouping: str, measure: str) -> dict[str | None, int]:
    group = groups_of(snapshot)[grouping]
    return {
        key[0]: int(group.sums[measure][row])
        for row, key in enumerate(group.keys)
        if key is not None
    }  # fmt: skip


def test_rates_divide_by_the_time_since_the_start_and_then_by_the_window() -> None:
    for at, seconds in ((0.2, 1.0), (10.0, 10.0), (59.0, 59.0)):
        whole = one([call(at)], health(at)).whole
        assert whole is not None
        assert whole.seconds[0] == pytest.approx(seconds)
    whole = one([call(3599)], health(3600)).whole
    assert whole is not None
    assert 60 <= whole.seconds[0] <= 63


def test_a_quiet_interface_counts_down_to_nothing() -> None:
    statistics = ScreenStatistics()
    statistics.add(batch([call(1.0)]))
    statistics.tick(health(1.0))
    statistics.tick(health(70.0))
    snapshot = statistics.snapshot()
    assert by_name(snapshot, "api", "calls") == {}
    assert snapshot.calls == 1


def test_an_unanswered_call_counts_when_it_becomes_known() -> None:
    statistics = ScreenStatistics()
    statistics.tick(health(700.0))
    statistics.add(batch([call(10.0, None, status="unanswered", unanswered_because="connection_closed")]))
    statistics.tick(health(700.5))
    assert by_name(statistics.snapshot(), "api", "unanswered") == {"Metadata": 1}


def test_a_fetch_that_waited_on_purpose_is_no_latency() -> None:
    fetch = {"api_key": 1, "api": "Fetch"}
    snapshot = one([call(1, 501.0, waited_us=500_000.0, **fetch), call(1.1, 2.0, **fetch)], health(2))
    assert by_name(snapshot, "api", "waited") == {"Fetch": 1}
    assert groups_of(snapshot)["api"].quantiles[0] == pytest.approx([2000] * 3, rel=ERROR)


def part(topic: str | None, error: int = 0, size: int = 0, topic_id: str | None = None) -> dict[str, object]:
    return {"topic": topic, "topic_id": topic_id, "partition": 0, "error_code": error, "bytes": size}


def test_only_the_topics_whose_partitions_failed_have_the_error() -> None:
    rows = [
        call(1, error_code=6, topics=["a", "b"], partitions=[part("a"), part("b", 6)]),
        call(1, error_code=29, topics=["c", "d"]),
        call(1, topics=["a"], partitions=[part("a", 0, 100), part("a", 0, 11)]),
    ]
    snapshot = one(rows)
    assert by_name(snapshot, "topic", "errors") == {"a": 0, "b": 1, "c": 1, "d": 1}
    assert by_name(snapshot, "topic", "calls") == {"a": 2, "b": 1, "c": 1, "d": 1}
    assert by_name(snapshot, "topic", "bytes") == {"a": 111, "b": 0, "c": 0, "d": 0}


UUID = "8a0b6a5e-7f64-4a5e-9f52-7c3f4dfe4c11"


def test_a_topic_named_by_uuid_is_the_one_that_a_response_named() -> None:
    statistics = ScreenStatistics()
    statistics.add(batch([call(1, topics=["orders"], topic_ids=[UUID])]))
    statistics.snapshot()
    by_uuid = {"topics": [None], "topic_ids": [UUID], "partitions": [part(None, 0, 7, UUID)]}
    statistics.add(batch([call(2, **by_uuid)]))
    snapshot = statistics.snapshot()
    assert by_name(snapshot, "topic", "calls") == {"orders": 2}
    assert by_name(snapshot, "topic", "bytes") == {"orders": 7}


def test_a_topic_without_a_name_goes_by_its_uuid() -> None:
    assert by_name(one([call(1, topics=[None], topic_ids=[UUID])]), "topic", "calls") == {UUID: 1}


def test_the_last_error_of_a_row_has_a_name() -> None:
    rows = [
        call(1, error_code=3, error="UNKNOWN_TOPIC_OR_PARTITION"),
        call(2, error_code=6, error="NOT_LEADER_OR_FOLLOWER"),
    ]
    groups = groups_of(one([*rows, call(3)]))
    assert groups["api"].errors[0] == "NOT_LEADER_OR_FOLLOWER"


def test_calls_of_an_unknown_api_go_by_its_number() -> None:
    assert by_name(one([call(1, api=None, api_key=9999)]), "api", "calls") == {"API 9999": 1}


def test_clients_without_an_id_are_told_apart_by_address() -> None:
    groups = groups_of(one([call(1, client_id=None), call(1, client_id=None, client_ip="10.0.0.2")]))
    assert set(groups["client"].keys) == {(None, "10.0.0.1"), (None, "10.0.0.2"), None}


def test_only_columns_that_are_said_to_be_needed_are_used() -> None:
    rows = batch([call(1, error_code=6, topics=["a"], partitions=[part("a", 6)])])
    bare = pa.RecordBatch.from_arrays(
        [
            column if name in NEEDED else pa.nulls(1, column.type)
            for name, column in zip(EVENTS.names, rows, strict=True)
        ],
        schema=EVENTS,
    )
    for events_batch in (rows, bare.select(list(NEEDED))):
        statistics = ScreenStatistics()
        statistics.add(events_batch)
        assert by_name(statistics.snapshot(), "topic", "errors") == {"a": 1}


def hostile(number: int, size: int) -> pa.RecordBatch:
    """Calls each of which has a client id, topic and group of its own."""
    rows = batch([call(number / 10)] * size)
    names = pa.array([f"made-up-{number}-{place}" for place in range(size)])
    topics = pa.ListArray.from_arrays(pa.array(range(size + 1), pa.int32()), names)
    columns = dict(zip(rows.schema.names, rows.columns, strict=True))
    columns |= {"client_id": names, "group_id": names, "topics": topics}
    return pa.RecordBatch.from_arrays([columns[name] for name in EVENTS.names], schema=EVENTS)


def test_names_made_up_with_each_call_take_no_memory() -> None:
    statistics = ScreenStatistics()
    batches = [hostile(number, 2000) for number in range(4)]
    for rows in batches:
        statistics.add(rows)
        statistics.snapshot()
    tracemalloc.start()
    arrow = pa.total_allocated_bytes()
    for number in range(4, 24):
        statistics.add(hostile(number, 2000))
        snapshot = statistics.snapshot()
    del rows
    python = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert python < 2_000_000
    assert pa.total_allocated_bytes() - arrow < 4_000_000
    for grouping in ("client", "topic", "group"):
        assert len(groups_of(snapshot)[grouping].keys) == ROWS + 1
        assert groups_of(snapshot)[grouping].sums["calls"].sum() == 24 * 2000


def test_a_client_id_as_long_as_a_request_is_cut() -> None:
    groups = groups_of(one([call(1, client_id="x" * 30_000), call(1, client_id="x" * 29_000)]))
    assert groups["client"].keys == (("x" * 250, "10.0.0.1"), None)
    assert groups["client"].sums["calls"].tolist() == [2, 0]
