"""The statistics of a live session as CSV, compared with the offline report and with plain Python."""

from __future__ import annotations

import csv
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from kwsniff.analysis.report import Report
from kwsniff.analysis.statistics import TABLES
from kwsniff.config import Config
from kwsniff.count.percentiles import LIMIT
from kwsniff.live.livetable import SCHEMA, CsvError, IntervalCsv
from kwsniff.live.session import Health
from kwsniff.rows.schema import EVENTS
from kwsniff.run.offline import events
from kwsniff.spec.load import catalog
from tests.report import oracle
from tests.report.events import START, batch, batches, call
from tests.report.samples import mixture
from tests.samples import sample
from tests.strength import ALL

ERRORS = {code: (error.name, error.retriable) for code, error in catalog().errors.items()}
BEGIN = START * 1000


def health(seconds: float) -> Health:
    return Health(("lo",), BEGIN, BEGIN + round(seconds * 1e9))


def read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize(
    "name", ["librdkafka-produce", "mock-errors", "java-groups", "midstream", "throttled"]
)
def test_the_tables_are_those_of_the_offline_report(name: str, tmp_path: Path) -> None:
    found = list(events(sample(name).paths, Config()))
    Report.from_events(found, errors=ERRORS).write_csv(tmp_path / "offline")
    sink = IntervalCsv(tmp_path / "live", errors=ERRORS)
    for number, each in enumerate(found):
        sink.add(each)
        sink.tick(health(number * 30))  # tables are written again and again meanwhile
    sink.close()
    for table in TABLES:
        offline, live = (tmp_path / side / f"{table}.csv" for side in ("offline", "live"))
        assert live.read_text() == offline.read_text()


def test_each_interval_has_the_figures_of_its_calls(tmp_path: Path) -> None:
    rows = mixture(3000)
    sink = IntervalCsv(tmp_path, 10.0)
    for number, some in enumerate(batches(rows, 250)):
        sink.add(some)
        sink.tick(health(3 * (number + 1)))
    sink.close()
    found = read(tmp_path / "history.csv")
    # Ticks come after 3, 6, 9, 12 seconds: an interval takes four batches.
    assert [row["time"] for row in found if row["api"] == "Fetch"] == [
        "2023-11-14T22:13:32.000000Z",
        "2023-11-14T22:13:44.000000Z",
        "2023-11-14T22:13:56.000000Z",
    ]
    assert {row["interval_s"] for row in found} == {"12"}
    for number, time in enumerate(dict.fromkeys(row["time"] for row in found)):
        of_it = rows[number * 1000 : (number + 1) * 1000]
        by_api = oracle.grouped(of_it, lambda row: [row["api"]])
        shown = {row["api"]: row for row in found if row["time"] == time}
        assert shown.keys() == by_api.keys()
        counts = [int(row["calls"]) for row in shown.values()]
        assert counts == sorted(counts, reverse=True)
        for api, calls in by_api.items():
            expected = oracle.figures(calls)
            for column in SCHEMA.names[3:]:
                value, text = expected[column], shown[api][column]
                assert (text == "") if value is None else float(text) == pytest.approx(value), (api, column)


def test_nothing_is_written_before_the_interval_is_over(tmp_path: Path) -> None:
    sink = IntervalCsv(tmp_path, 60.0)
    sink.add(batch(call()))
    sink.tick(health(59.9))
    assert [path.name for path in tmp_path.iterdir()] == ["history.csv"]
    assert read(tmp_path / "history.csv") == []
    sink.tick(health(60))
    assert {path.name for path in tmp_path.iterdir()} == {"history.csv", *(f"{name}.csv" for name in TABLES)}
    assert [row["calls"] for row in read(tmp_path / "history.csv")] == ["1"]


def test_a_session_without_calls_leaves_empty_tables(tmp_path: Path) -> None:
    sink = IntervalCsv(tmp_path / "not" / "there")
    sink.close()
    assert read(tmp_path / "not/there/api.csv") == read(tmp_path / "not/there/history.csv") == []


def test_a_reader_never_finds_half_a_table_or_a_wrong_line(tmp_path: Path) -> None:
    stop, halves, reads = threading.Event(), [], 0

    def look() -> None:
        nonlocal reads
        while not stop.is_set():
            for path in tmp_path.glob("[!.]*.csv"):
                text = path.read_text()
                reads += 1
                if path.name == "history.csv":  # which grows; its last line may be on its way
                    text = text[: text.rfind("\n") + 1]
                rows = list(csv.reader(text.splitlines()))
                if not text.endswith("\n") or len({len(row) for row in rows}) != 1:
                    halves.append((path, text))

    sink = IntervalCsv(tmp_path, 1.0)
    reader = threading.Thread(target=look)
    reader.start()
    for number, some in enumerate(batches(mixture(3000 if ALL else 800), 100)):
        sink.add(some)
        sink.tick(health(number + 1))
    sink.close()
    stop.set()
    reader.join()
    assert halves == []
    assert reads > 10


def test_a_history_goes_on_where_another_session_left_it(tmp_path: Path) -> None:
    for _ in range(2):
        sink = IntervalCsv(tmp_path)
        sink.add(batch(call()))
        sink.close()
    lines = (tmp_path / "history.csv").read_text().splitlines()
    assert len(lines) == 3
    with (tmp_path / "history.csv").open("a") as file:
        file.write("2026-01-01T00:00:00.0")  # a session killed in the middle
    sink = IntervalCsv(tmp_path)
    sink.add(batch(call()))
    sink.close()
    assert [row["calls"] for row in read(tmp_path / "history.csv")] == ["1", "1", None, "1"]


def test_a_file_that_is_no_history_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "history.csv").write_text("year,event\n1815,Waterloo\n")
    with pytest.raises(CsvError, match=r"history\.csv: has other columns, is no history of kwsniff$"):
        IntervalCsv(tmp_path)
    assert (tmp_path / "history.csv").read_text() == "year,event\n1815,Waterloo\n"


def test_a_directory_that_cannot_be_made_is_said_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CsvError, match=r"^cannot write into .*file/x: Not a directory$"):
        IntervalCsv(tmp_path / "file" / "x")


def test_what_could_not_be_written_is_written_later(tmp_path: Path) -> None:
    place = tmp_path / "out"
    sink = IntervalCsv(place, 1.0)
    (place / "history.csv").unlink()
    place.rmdir()
    sink.add(batch(call()))
    sink.tick(health(1))
    assert sink.problem == f"cannot write into {place}: No such file or directory"
    place.mkdir()
    sink.add(batch(call()))
    sink.tick(health(2))
    assert sink.problem is None
    assert [row["calls"] for row in read(place / "history.csv")] == ["2"]
    (place / "history.csv").unlink()
    for path in place.iterdir():
        path.unlink()
    place.rmdir()
    sink.add(batch(call()))
    with pytest.raises(CsvError, match="No such file or directory"):
        sink.close()


def many(count: int, latency: np.ndarray[Any, Any]) -> pa.RecordBatch:
    """Calls that differ in nothing but their latency."""
    one = batch(call(topics=["orders"]))
    columns = {name: one.column(name).take(pa.array(np.zeros(count, np.int64))) for name in EVENTS.names}
    columns["latency_us"] = pa.array(latency)
    return pa.RecordBatch.from_arrays(list(columns.values()), schema=EVENTS)


def test_many_calls_take_bounded_memory_and_keep_percentiles_within_the_stated_error(tmp_path: Path) -> None:
    chance = np.random.default_rng(3)
    latency = chance.lognormal(7, 2, 1_000_000)
    sink = IntervalCsv(tmp_path, 1e9)
    for some in np.split(latency, 50):
        sink.add(many(len(some), some))
    sink.close()
    assert 0 < sink._store.error <= 0.005
    kept = [len(each) for each in (*sink._store._by_cell.values(), *sink._store._by_topic.values())]
    assert max(kept) <= LIMIT
    for table in ("api", "topic", "client", "broker"):
        (row,) = read(tmp_path / f"{table}.csv")
        assert int(row["calls"]) == len(latency)
        for name, percent in oracle.PERCENTILES.items():
            value = np.percentile(latency, percent)
            assert float(row[f"latency_{name}_us"]) == pytest.approx(value, rel=0.005), (table, name)
        assert float(row["latency_max_us"]) == latency.max()
