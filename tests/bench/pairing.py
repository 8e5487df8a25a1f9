"""Measures what is still paired when packets are missing, against what really happened.

    python -m tests.bench.pairing [CAPTURE] [--cache FOLDER] [--check] [--out FILE]

For each kind of loss: of the calls whose packets all survived, the share that kwsniff pairs, and the
phantoms: rows for a call that there never was. The truth is the undamaged capture, cut by `truth.py`, and the
brokers' log of the requests they handled; both must agree. With --check the exit code is 1 when a goal is
missed. A capture that is not there is recorded first (`record.py`).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tests.bench import truth, variants
from tests.bench.measure import CACHE, ROOT, record, say
from tests.bench.truth import Ends, Frames, Key

GOALS = {
    "whole": 1.0,
    "midstream": None,
    "lost-2": 0.999,
    "lost-5": 0.995,
    "lost-10": 0.98,
    "lost-20": None,
    "lost-second": 0.995,
}
ENDS = ["client_ip", "client_port", "broker_ip", "broker_port"]
COLUMNS = ["event", *ENDS, "correlation_id", "api_key", "request_packet", "response_packet", "status"]


@dataclass(frozen=True)
class Outcome:
    """One kind of loss, in calls."""

    survived: int
    paired: int
    unpaired_sends: int
    """Requests that get no answer (acks=0) that survived and are no row."""
    phantoms: int

    @property
    def share(self) -> float:
        return self.paired / self.survived if self.survived else 1.0


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("capture", nargs="?", default="cluster-truth")
    parser.add_argument("--cache", type=Path, default=CACHE)
    parser.add_argument("--check", action="store_true", help="exit 1 when a goal is missed")
    parser.add_argument("--out", type=Path, help="a page with marks to put the table between")
    options = parser.parse_args()
    record((options.capture,), options.cache)
    said, outcomes = measure_all(options.cache / f"{options.capture}.pcap")
    say([said, "", *table(outcomes)], options.out)
    missed = [name for name, each in outcomes.items() if each.share < (GOALS[name] or 0) or each.phantoms]
    return int(options.check and bool(missed))


def measure_all(source: Path) -> tuple[str, dict[str, Outcome]]:
    """What the brokers' log says, and of each kind of loss what came of it."""
    ports = json.loads(source.with_suffix(".json").read_text())["ports"]
    frames = truth.frames(source, ports)
    log = source.with_name(f"{source.stem}-requests.log")
    said = witnessed(frames, truth.logged(log)) if log.exists() else "The brokers' log is not there."
    packets = variants.index(source)
    outcomes = {}
    with tempfile.TemporaryDirectory(prefix="kwsniff-pairing-") as scratch:
        for name in GOALS:
            order = variants.lost(0)(packets) if name == "whole" else variants.VARIANTS[name](packets)
            damaged = Path(scratch) / f"{name}.pcap"
            variants.keep(source, damaged, packets, order)
            kept = np.bincount(order, minlength=len(packets)) > 0
            outcomes[name] = outcome(frames, kept, calls(damaged, ports))
            damaged.unlink()
    return said, outcomes


def witnessed(frames: Frames, log: dict[Key, int]) -> str:
    """Says how far capture and log agree.

    Raises:
        SystemExit: a broker handled a request that the capture has not, or has as another API.
    """
    foreign = [
        key
        for key, api_key in log.items()
        if frames.api_keys.get(key) != api_key and key.ends not in frames.unclear
    ]
    if foreign:
        raise SystemExit(f"{len(foreign)} requests of the log are not in the capture, first {foreign[0]}")
    unlogged = len(frames.requests.keys() - log.keys())
    unanswered = len(frames.responses.keys() - log.keys())
    return (
        f"{len(log)} requests in the brokers' log, all in the capture; {unlogged} of the capture not in the "
        f"log, {unanswered} of them answered."
    )


def calls(path: Path, ports: list[int]) -> pd.DataFrame:
    """The rows of kwsniff for calls.

    Raises:
        RuntimeError: it failed.
    """
    out = path.with_suffix(".parquet")
    command = [sys.executable, "-m", "kwsniff", "decode", str(path), "-q", "-j", "1", "-o", str(out)]
    command += ["--columns", ",".join(COLUMNS), "--port", ",".join(map(str, ports))]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 3):
        raise RuntimeError(f"kwsniff: exit {done.returncode}: {done.stderr.strip()}")
    rows = pd.read_parquet(out)
    out.unlink()
    return rows[rows["event"] == "call"]


def outcome(frames: Frames, kept: NDArray[np.bool_], rows: pd.DataFrame) -> Outcome:
    """Compare the rows of a damaged capture with the frames of the whole one."""
    ends = zip(*(rows[name] for name in ENDS), strict=True)
    keys = [Key(Ends(*each), int(number)) for each, number in zip(ends, rows["correlation_id"], strict=True)]
    asked, answered = rows["request_packet"].notna(), rows["response_packet"].notna()
    both = asked & answered
    paired = {key for key, yes in zip(keys, both, strict=True) if yes}
    seen = {key for key, yes in zip(keys, asked, strict=True) if yes}
    wanted = {
        key
        for key in frames.requests.keys() & frames.responses.keys()
        if key.ends not in frames.unclear
        if kept[frames.requests[key]].all() and kept[frames.responses[key]].all()
    }
    sends = {
        key
        for key in frames.requests.keys() - frames.responses.keys()
        if key.ends not in frames.unclear
        if frames.api_keys[key] == 0 and kept[frames.requests[key]].all()
    }
    phantoms = sum(
        not real(frames, key, api_key, bool(request))
        for key, api_key, request in zip(keys, rows["api_key"], asked, strict=True)
    )
    return Outcome(len(wanted), len(wanted & paired), len(sends - seen), phantoms)


def real(frames: Frames, key: Key, api_key: float, request: bool) -> bool:
    """Whether there was such a request of this API, or if only a response was seen, such a response."""
    if key.ends in frames.unclear:
        return True
    if not request:
        return key in frames.begun
    return frames.api_keys.get(key) == api_key


def goal(name: str) -> str:
    wanted = GOALS[name]
    return "" if wanted is None else f"{wanted:.1%}"


def table(outcomes: dict[str, Outcome]) -> list[str]:
    head = ["| loss | calls that survived | paired | share | goal | acks=0 not seen | phantoms |"]
    rows = [
        f"| {name} | {each.survived} | {each.paired} | {each.share:.3%} | {goal(name)} | "
        f"{each.unpaired_sends} | {each.phantoms} |"
        for name, each in outcomes.items()
    ]
    return [*head, "| --- | --- | --- | --- | --- | --- | --- |", *rows]


if __name__ == "__main__":
    sys.exit(main())
