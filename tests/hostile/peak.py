"""Runs kwsniff as its user would and measures what it took.

As a script, `python -m tests.hostile.peak [ATTACK...] [OPTION...]`: the table of those attacks, or of all;
options are those of `kwsniff decode`, `-f jsonl` for instance.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq

from tests.hostile.attacks import ATTACKS, FULL
from tests.hostile.wire import write

EVERY_SECONDS = 0.02


@dataclass(frozen=True)
class Outcome:
    """How a run ended."""

    code: int
    seconds: float
    processor: float
    """Seconds of processor time, which others on the machine don't change."""
    megabytes: float
    """Most memory that one of its processes held at once (resident set), in 10⁶ bytes."""
    together: float
    """Most memory seen of all its processes at one time, what several share counted once; in 10⁶ bytes."""
    errors: str


def run(*arguments: str, timeout: float = 900) -> Outcome:
    """Run `kwsniff` with these arguments in a process of its own; standard output is dropped."""
    with tempfile.NamedTemporaryFile("r") as peak, tempfile.TemporaryFile("w+") as errors:
        started, before = time.monotonic(), os.times()
        command = [sys.executable, "-m", "tests.hostile.child", peak.name, *arguments]
        done = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors, text=True)
        others, together = watched(done, started + timeout)
        seconds, after = time.monotonic() - started, os.times()
        processor = sum(after[2:4]) - sum(before[2:4])
        megabytes = max(int(peak.read() or 0), others) * 1024 / 1e6
        errors.seek(0)
        return Outcome(
            done.returncode, seconds, processor, megabytes, max(together * 1024 / 1e6, megabytes),
            errors.read(),
        )  # fmt: skip


def watched(process: subprocess.Popen[str], until: float) -> tuple[int, int]:
    """Wait for a process to end: most that one of its children held, and most of all together, in KiB."""
    largest = together = rounds = 0
    while True:
        with suppress(subprocess.TimeoutExpired):
            process.wait(EVERY_SECONDS)
            return largest, together
        if time.monotonic() > until:
            process.kill()
            process.wait()
            raise TimeoutError(f"{process.args} did not end in time")
        children = descendants(process.pid)
        largest = max([largest, *(kilobytes(pid, "status", "VmHWM:") for pid in children)])
        if children and rounds % 10 == 0:
            tree = [process.pid, *children]
            together = max(together, sum(kilobytes(pid, "smaps_rollup", "Pss:") for pid in tree))
        rounds += 1


def descendants(pid: int) -> list[int]:
    """The processes that a process started, and those that these started."""
    found: list[int] = []
    with suppress(OSError):
        for each in Path(f"/proc/{pid}/task").glob("*/children"):
            for child in map(int, each.read_text().split()):
                found += [child, *descendants(child)]
    return found


def kilobytes(pid: int, file: str, name: str) -> int:
    """A figure that the kernel has of a process; 0 once it ended."""
    with suppress(OSError, IndexError):
        return int(Path(f"/proc/{pid}/{file}").read_text().split(name)[1].split()[0])
    return 0


def table(names: list[str], *options: str) -> None:
    """Print a line per attack: size, memory, time, exit code, calls and anomalies."""
    with tempfile.TemporaryDirectory() as folder:
        for name in names or list(ATTACKS):
            path = write(Path(folder) / "attack.pcap", ATTACKS[name](FULL[name]))
            out = Path(folder) / ("events.jsonl" if "jsonl" in options else "events.parquet")
            made = run("decode", str(path), "-q", "-j", "1", "-o", str(out), *options)
            said: Counter[str] = Counter()
            if out.exists() and out.suffix == ".parquet":
                events = pq.read_table(out, columns=["event", "code"])
                said.update(events["event"].to_pylist())
                said.update(code for code in events["code"].to_pylist() if code)
            print(
                f"{name:24} {FULL[name]:>13,} {path.stat().st_size / 1e6:7.0f} MB in, "
                f"peak {made.megabytes:5.0f} MB, {made.seconds:6.1f} s, exit {made.code} "
                f"{dict(said)} {made.errors.strip()[-200:]}",
                flush=True,
            )
            out.unlink(missing_ok=True)


if __name__ == "__main__":
    named = [argument for argument in sys.argv[1:] if argument in ATTACKS]
    table(named, *(argument for argument in sys.argv[1:] if argument not in ATTACKS))
