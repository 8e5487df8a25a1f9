"""Any number of processes yields the same rows in the same order."""

from __future__ import annotations

import multiprocessing
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pytest

from kwsniff.capture.source import CaptureError, CaptureTotals
from kwsniff.config import Config
from kwsniff.run.offline import events
from tests.samples import CAPTURES, sample

SAMPLES = ["librdkafka-groups", "quorum", "midstream", "sasl-0.10"]


@pytest.mark.parametrize("jobs", [2, 3])
@pytest.mark.parametrize("full", [False, True], ids=["plain", "full"])
def test_rows_of_several_processes_are_those_of_one(jobs: int, full: bool) -> None:
    paths = [path for name in SAMPLES for path in sample(name).paths]
    config = Config(block_packets=200, full=full, records=full)
    alone, together = CaptureTotals(), CaptureTotals()
    expected = list(events(paths, config, totals=alone))
    assert len(expected) > len(SAMPLES)
    found = list(events(paths, config, totals=together, jobs=jobs))
    assert pa.Table.from_batches(found).equals(pa.Table.from_batches(expected))
    assert together == alone


@pytest.mark.parametrize("full", [False, True])
def test_notes_on_packets_are_told_once(full: bool, tmp_path: Path) -> None:
    whole = (CAPTURES / "librdkafka-errors.pcap").read_bytes()
    cut = tmp_path / "cut.pcap"
    cut.write_bytes(whole[:-7])
    config = Config(full=full)
    expected = list(events([str(cut)], config))
    assert pa.Table.from_batches(events([str(cut)], config, jobs=2)) == pa.Table.from_batches(expected)


def test_an_unreadable_input_is_known_before_processes_start(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match=r"missing\.pcap"):
        events([str(tmp_path / "missing.pcap")], Config(), jobs=2)


@pytest.mark.parametrize("full", [False, True])
def test_stopping_early_leaves_no_process_behind(full: bool) -> None:
    rows = events(sample("librdkafka-groups").paths, Config(block_packets=100, full=full), jobs=3)
    first = next(iter(rows))
    rows.close()  # type: ignore[attr-defined]
    assert first.num_rows
    assert not multiprocessing.active_children()


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("which", [0, 1])
def test_a_killed_process_is_told_in_one_line(which: int, full: bool) -> None:
    rows = events(sample("librdkafka-groups").paths, Config(block_packets=20, full=full), jobs=3)
    next(iter(rows))
    children = sorted(multiprocessing.active_children(), key=lambda process: str(process.pid))
    children[which].kill()
    with pytest.raises(CaptureError, match="a worker process ended early; try -j 1"):
        list(rows)
    assert not multiprocessing.active_children()


def test_processes_end_with_the_one_that_started_them() -> None:
    lines = (
        "import os, signal, multiprocessing as m",
        "from kwsniff.config import Config",
        "from kwsniff.run.offline import events",
        "rows = [events(['captures/librdkafka-groups.pcapng'], Config(block_packets=20, full=full), jobs=3)",
        "        for full in (False, True)]",
        "print(*(each.pid for each in m.active_children()), flush=True)",
        "next(rows[0])",
        "os.kill(os.getpid(), signal.SIGKILL)",
    )
    killed = subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    left = [int(pid) for pid in killed.stdout.split()]
    assert len(left) == 2 + 5
    for _ in range(300):
        left = [pid for pid in left if _runs(pid)]
        if not left:
            return
        time.sleep(0.1)
    raise AssertionError(f"still there: {left}")


def _runs(pid: int) -> bool:
    """Whether the process runs: one that is over may wait for whoever inherited it to ask."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("full", [True, False])
def test_limits_over_all_connections_are_those_of_one_process(full: bool) -> None:
    config = Config(block_packets=200, max_outstanding_total=4, max_connections=3, full=full)
    paths = [path for name in SAMPLES for path in sample(name).paths]
    alone, together = CaptureTotals(), CaptureTotals()
    expected = pa.Table.from_batches(events(paths, config, totals=alone))
    assert {"outstanding_limit", "connection_limit"} <= set(expected["code"].to_pylist())
    assert pa.Table.from_batches(events(paths, config, totals=together, jobs=2)).equals(expected)
    assert together == alone


@pytest.mark.parametrize("full", [False, True])
def test_what_comes_before_an_input_that_breaks_off_is_told(full: bool, tmp_path: Path) -> None:
    for name, data in (("a", (CAPTURES / "librdkafka-errors.pcap").read_bytes()), ("b", b"no capture")):
        (tmp_path / f"{name}.pcap").write_bytes(data)
    paths = [str(tmp_path / "a.pcap"), str(tmp_path / "b.pcap")]
    told = []
    for jobs in (1, 2):
        rows: list[pa.RecordBatch] = []
        with pytest.raises(CaptureError, match=r"b\.pcap"):
            rows.extend(events(paths, Config(full=full), jobs=jobs))
        told.append(rows)
    assert [len(rows) for rows in told] == [0, 0] or told[0] == told[1]
