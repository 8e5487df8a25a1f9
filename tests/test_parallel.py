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
