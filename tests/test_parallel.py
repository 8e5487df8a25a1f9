"""Any number of processes yields the same batches."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from kwsniff.capture.source import CaptureError, CaptureTotals
from kwsniff.config import Config
from kwsniff.offline import events
from tests.samples import CAPTURES, sample

SAMPLES = ["librdkafka-groups", "quorum", "midstream", "sasl-0.10"]


@pytest.mark.parametrize("jobs", [2, 3])
def test_batches_of_several_processes_are_those_of_one(jobs: int) -> None:
    paths = [path for name in SAMPLES for path in sample(name).paths]
    config = Config(block_packets=200)
    alone, together = CaptureTotals(), CaptureTotals()
    expected = list(events(paths, config, totals=alone))
    assert len(expected) > len(SAMPLES)
    assert list(events(paths, config, totals=together, jobs=jobs)) == expected
    assert together == alone


def test_notes_on_packets_are_told_once(tmp_path: Path) -> None:
    whole = (CAPTURES / "librdkafka-errors.pcap").read_bytes()
    cut = tmp_path / "cut.pcap"
    cut.write_bytes(whole[:-7])
    expected = list(events([str(cut)], Config()))
    assert list(events([str(cut)], Config(), jobs=2)) == expected


def test_an_unreadable_input_is_known_before_processes_start(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match=r"missing\.pcap"):
        events([str(tmp_path / "missing.pcap")], Config(), jobs=2)


def test_stopping_early_leaves_no_process_behind() -> None:
    rows = events(sample("librdkafka-groups").paths, Config(block_packets=100), jobs=2)
    first = next(iter(rows))
    rows.close()  # type: ignore[attr-defined]
    assert first.num_rows


def test_parquet_is_the_same_byte_for_byte(tmp_path: Path) -> None:
    files = []
    for jobs in (1, 2):
        path = tmp_path / f"{jobs}.parquet"
        batches = list(events(sample("librdkafka-groups").paths, Config(), jobs=jobs))
        with pq.ParquetWriter(path, batches[0].schema) as writer:
            for batch in batches:
                writer.write_batch(batch)
        files.append(path.read_bytes())
    assert files[0] == files[1]
