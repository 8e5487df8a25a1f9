"""Any number of processes yields the same rows in the same order."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from kwsniff.capture.source import CaptureError, CaptureTotals
from kwsniff.config import Config
from kwsniff.offline import events
from tests.samples import CAPTURES, sample

SAMPLES = ["librdkafka-groups", "quorum", "midstream", "sasl-0.10"]


@pytest.mark.parametrize("jobs", [2, 3])
def test_rows_of_several_processes_are_those_of_one(jobs: int) -> None:
    paths = [path for name in SAMPLES for path in sample(name).paths]
    config = Config(block_packets=200)
    alone, together = CaptureTotals(), CaptureTotals()
    expected = list(events(paths, config, totals=alone))
    assert len(expected) > len(SAMPLES)
    found = list(events(paths, config, totals=together, jobs=jobs))
    assert pa.Table.from_batches(found).equals(pa.Table.from_batches(expected))
    assert together == alone


def test_notes_on_packets_are_told_once(tmp_path: Path) -> None:
    whole = (CAPTURES / "librdkafka-errors.pcap").read_bytes()
    cut = tmp_path / "cut.pcap"
    cut.write_bytes(whole[:-7])
    expected = list(events([str(cut)], Config()))
    assert pa.Table.from_batches(events([str(cut)], Config(), jobs=2)) == pa.Table.from_batches(expected)


def test_an_unreadable_input_is_known_before_processes_start(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match=r"missing\.pcap"):
        events([str(tmp_path / "missing.pcap")], Config(), jobs=2)


def test_stopping_early_leaves_no_process_behind() -> None:
    rows = events(sample("librdkafka-groups").paths, Config(block_packets=100), jobs=2)
    first = next(iter(rows))
    rows.close()  # type: ignore[attr-defined]
    assert first.num_rows


@pytest.mark.parametrize("full", [True, False])
def test_limits_over_all_connections_are_those_of_one_process(full: bool) -> None:
    config = Config(block_packets=200, max_outstanding_total=4, max_connections=3, full=full)
    paths = [path for name in SAMPLES for path in sample(name).paths]
    alone, together = CaptureTotals(), CaptureTotals()
    expected = pa.Table.from_batches(events(paths, config, totals=alone))
    assert {"outstanding_limit", "connection_limit"} <= set(expected["code"].to_pylist())
    assert pa.Table.from_batches(events(paths, config, totals=together, jobs=2)).equals(expected)
    assert together == alone


def test_bodies_find_their_calls() -> None:
    config = Config(block_packets=200, full=True, records=True)
    paths = sample("librdkafka-groups").paths
    expected = pa.Table.from_batches(events(paths, config))
    assert pa.Table.from_batches(events(paths, config, jobs=3)).equals(expected)


def test_what_comes_before_an_input_that_breaks_off_is_told(tmp_path: Path) -> None:
    for name, data in (("a", (CAPTURES / "librdkafka-errors.pcap").read_bytes()), ("b", b"no capture")):
        (tmp_path / f"{name}.pcap").write_bytes(data)
    paths = [str(tmp_path / "a.pcap"), str(tmp_path / "b.pcap")]
    told = []
    for jobs in (1, 2):
        rows: list[pa.RecordBatch] = []
        with pytest.raises(CaptureError, match=r"b\.pcap"):
            rows.extend(events(paths, Config(), jobs=jobs))
        told.append(rows)
    assert [len(rows) for rows in told] == [0, 0] or told[0] == told[1]
