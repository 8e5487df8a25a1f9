"""Lines of CSV that the kernel writes are those that Arrow's writer gives of the same columns."""

from __future__ import annotations

import io
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from pyarrow import csv

from kwsniff.cli.formats.lines import Lines
from kwsniff.config import Config
from kwsniff.lines import machine
from kwsniff.offline import events
from kwsniff.report.calls import scalar_columns, scalar_schema
from kwsniff.report.csv import shown, shown_schema
from kwsniff.table import EVENTS
from tests.samples import names, sample

HOW = pytest.mark.parametrize("compiled", [False, True])


def by_arrow(batches: list[pa.RecordBatch], names: list[str]) -> bytes:
    scalars = scalar_schema(names)
    schema = shown_schema(scalars)
    out = io.BytesIO()
    with csv.CSVWriter(out, schema) as writer:
        for batch in batches:
            writer.write_batch(shown(scalar_columns(batch, scalars), schema))
    return out.getvalue()


def by_kernel(batches: list[pa.RecordBatch], names: list[str], *, compiled: bool | None) -> bytes:
    lines = Lines(names, compiled=compiled)
    return lines.header() + b"".join(bytes(text) for batch in batches for text in lines.of(batch))


def batch_of(**columns: list[object]) -> pa.RecordBatch:
    count = len(next(iter(columns.values())))
    arrays = [
        pa.array(columns[field.name], field.type) if field.name in columns else pa.nulls(count, field.type)
        for field in EVENTS
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=EVENTS)


def same(batch: pa.RecordBatch, *, compiled: bool, names: list[str] = EVENTS.names) -> bytes:
    found = by_kernel([batch], names, compiled=compiled)
    assert found == by_arrow([batch], names)
    return found


@HOW
@pytest.mark.one_of(4)
@pytest.mark.parametrize("name", names())
def test_events_of_samples(name: str, compiled: bool) -> None:
    batches = list(events(sample(name).paths, Config()))
    assert by_kernel(batches, EVENTS.names, compiled=compiled) == by_arrow(batches, EVENTS.names)


TEXTS = [
    "plain", "", None, 'with "quotes"', "a,b;c", "new\nline", "\x1b[31m", "grüße", "\u202eabc",
    "=1+1", "  -2", "a;=b", "a; @b", "a-b", "+", " ", "é" * 200, "long " * 5000, "-", ";", "\x7f",
]  # fmt: skip


@HOW
def test_texts_are_quoted_and_made_safe(compiled: bool) -> None:
    found = same(
        batch_of(client_id=TEXTS, group_id=TEXTS[::-1], event=["call"] * len(TEXTS)), compiled=compiled
    )
    assert b'"\'=1+1"' in found
    assert b"\x1b" not in found


@HOW
@pytest.mark.parametrize("text", TEXTS)
def test_one_text_by_itself(text: str | None, compiled: bool) -> None:
    same(batch_of(client_id=["a", text, "b"]), compiled=compiled)


@HOW
def test_numbers(compiled: bool) -> None:
    whole = [0, 1, -1, 9, 10, 99, 100, 2**31, -(2**31), 2**63 - 1, -(2**63) + 1, 10**18, 10**18 - 1, None]
    small = [0, -1, 2**31 - 1, -(2**31), 7, 10, 100, 1000, 35, 9999, 10000, 12345, None, 99]
    same(
        batch_of(request_bytes=whole, api_version=small, fin=[True, False, None] * 4 + [True] * 2),
        compiled=compiled,
    )


@HOW
@pytest.mark.parametrize(
    "odd", [None, 1e10, 12345678901.5, -1.5, -0.0, 1e-4, 1 / 3, 1e300, float("inf"), float("nan")]
)
def test_durations(odd: float | None, compiled: bool) -> None:
    usual = [0.0, 1.0, 0.001, 0.01, 0.1, 17819.0, 1.5, 999.999, 1e6, 9999999999.999, 100.0, 1234567.01, None]
    same(batch_of(latency_us=[*usual, odd], broker_us=[odd, *usual]), compiled=compiled)


@HOW
def test_times(compiled: bool) -> None:
    begin = datetime(1970, 1, 1, tzinfo=UTC)
    times = [begin + timedelta(days=each, microseconds=each * 7919 + 1) for each in range(0, 90_000, 37)]
    times += [datetime(year, 2, 28, 23, 59, 59, 999_999, tzinfo=UTC) for year in (1972, 1999, 2000, 2100)]
    times += [datetime(2000, 2, 29, tzinfo=UTC), datetime(9999, 12, 31, tzinfo=UTC)]
    same(batch_of(time=[*times, None], response_time=[None, *times]), compiled=compiled)
    same(batch_of(time=[datetime(1969, 12, 31, 23, 59, 59, 5, tzinfo=UTC), None]), compiled=compiled)


PARTS = [
    [{"topic": "orders", "partition": 3}, {"topic": "a;b", "partition": -1}], [], None,
    [{"topic": "orders", "partition": None}], [{"topic": "x", "partition": 0}] * 3,
]  # fmt: skip
ODD_PARTS = [
    [{"topic": None, "topic_id": "88fa", "partition": 1}], [{"topic": "", "partition": 1}],
    [{"topic": "t", "partition": 1}, {"topic": " ", "partition": 2}], [{"topic": "=t", "partition": 2}],
    [{"topic": "ü", "partition": 2}], [{"topic": "end;", "partition": 2}],
]  # fmt: skip


@HOW
@pytest.mark.parametrize("odd", ODD_PARTS)
def test_partitions(odd: list[dict[str, object]], compiled: bool) -> None:
    same(batch_of(partitions=PARTS), compiled=compiled)
    same(batch_of(partitions=[*PARTS, odd], asked=[odd, *PARTS]), compiled=compiled)


@HOW
@pytest.mark.parametrize("odd", [[], None, [None], ["ü"], ["=x", "b"], ["a", "", "b"], ['q"q']])
def test_lists_of_topics(odd: list[str | None] | None, compiled: bool) -> None:
    topics = [["orders", "payments"], ["one"], None, odd]
    ids = [["88fa-1", "88fa-2"], None, ["88fa-3"], ["88fa-4"] * len(odd or [])]
    same(batch_of(topics=topics, topic_ids=ids), compiled=compiled)
    same(batch_of(topics=topics[:3], topic_ids=[ids[0], None, None]), compiled=compiled)


@HOW
def test_brokers_and_resources(compiled: bool) -> None:
    advertised = [[{"node_id": 1, "host": "kafka-1", "port": 9092}, {"host": "", "port": 1}], None, []]
    resources = [[{"type": "topic", "name": "orders"}, {"type": None, "name": None}], [], None]
    same(batch_of(advertised=advertised, resources=resources), compiled=compiled)


@HOW
def test_bodies_stay_json(compiled: bool) -> None:
    same(
        batch_of(request=['{"a": "=b"}', None, '{"c": "\x9b"}'], response=[None, "{}", '"']),
        compiled=compiled,
    )


@HOW
def test_slices_and_few_columns(compiled: bool) -> None:
    batch = batch_of(
        client_id=["a", None, "=c", "d"], partitions=PARTS[:4], topics=[["a"], None, [], ["b", "c"]],
        latency_us=[1.5, None, 2.0, 0.25], correlation_id=[1, None, 3, 4],
    )  # fmt: skip
    for first in range(4):
        for count in range(5):
            same(batch.slice(first, count), compiled=compiled)
    same(batch, compiled=compiled, names=["correlation_id"])
    same(batch, compiled=compiled, names=["api", "correlation_id", "api", "error"])


@HOW
def test_lines_that_do_not_fit_at_once(monkeypatch: pytest.MonkeyPatch, compiled: bool) -> None:
    monkeypatch.setattr(machine, "ROOM", 64)
    texts = ["x" * (at * 37 % 500) for at in range(200)]
    texts[150] = "=odd"
    same(batch_of(client_id=texts, correlation_id=list(range(200)), partitions=PARTS * 40), compiled=compiled)
