"""What kwsniff tells of recordings that lack nothing, beside two accounts that share nothing with it.

    tests/bench/whole.py [CAPTURE ...] [--cache FOLDER]

The truth is each connection's bytes cut by their length prefixes (`truth.py`), and the brokers' log of the
requests they handled. Counts requests and responses told otherwise than that, and anomalies. What is not
there is recorded first (`record.py`).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import truth
from measure import ROOT
from record import cache_folder
from truth import Ends, Frames, Key
from workloads import WHOLE_WORKLOADS

sys.path.insert(0, str(ROOT))
import kwsniff

ENDS = ("client_ip", "client_port", "broker_ip", "broker_port")
COLUMNS = (
    "event",
    *ENDS,
    "correlation_id",
    "api_key",
    "request_packet",
    "response_packet",
    "status",
    "code",
    "detail",
)


@dataclass(frozen=True)
class Account:
    """One capture."""

    connections: int
    unclear: int
    """Of them, left out: their ends were used twice."""
    calls: int
    logged: int
    unlogged: int
    """Requests in the capture that the brokers' log has not: those that they had no time to handle."""
    not_told: Counter[str]
    invented: Counter[str]
    anomalies: Counter[str]

    @property
    def is_right(self) -> bool:
        return not (self.not_told or self.invented or self.anomalies)


def account(path: Path) -> Account:
    ports = json.loads(path.with_suffix(".json").read_text())["ports"]
    frames = truth.frames(path, ports)
    log = truth.logged(path.with_name(f"{path.stem}-requests.log"))
    foreign = [
        key for key, api in log.items() if frames.api_keys.get(key) != api and key.ends not in frames.unclear
    ]
    if foreign:
        raise SystemExit(f"{len(foreign)} requests of the log are not in the capture, first {foreign[0]}")
    cut = {key.ends for key in frames.api_keys.keys() - frames.requests.keys()}
    cut |= {key.ends for key in frames.begun - frames.responses.keys()}
    requests: Counter[tuple[object, ...]] = Counter()
    responses: Counter[tuple[object, ...]] = Counter()
    anomalies: Counter[str] = Counter()
    for batch in kwsniff.events(path, columns=COLUMNS, ports=tuple(ports)):
        for row in batch.to_pylist():
            ends = Ends(*(row[name] for name in ENDS))
            if ends in frames.unclear:
                continue
            if row["event"] == "anomaly":
                # The recording ends inside the last message of some.
                anomalies[row["code"]] += row["code"] != "frame_incomplete" or ends not in cut
            elif row["event"] == "call":
                key = Key(ends, row["correlation_id"])
                whole = row["status"] != "truncated"
                requests[key, row["api_key"], row["request_packet"]] += whole or key in frames.requests
                if row["response_packet"] is not None and (whole or key in frames.responses):
                    responses[key, row["response_packet"]] += 1
    return Account(
        len({key.ends for key in frames.api_keys}), len(frames.unclear), len(frames.requests), len(log),
        len(frames.requests.keys() - log.keys()), *compared(frames, requests, responses), +anomalies,
    )  # fmt: skip


def compared(
    frames: Frames, requests: Counter[tuple[object, ...]], responses: Counter[tuple[object, ...]]
) -> tuple[Counter[str], Counter[str]]:
    """What is not told and what is invented: requests by API and last packet, responses by last packet."""
    asked = Counter(
        {(key, frames.api_keys[key], max(there) + 1): 1 for key, there in frames.requests.items()}
    )
    answered = Counter(
        {(key, max(there) + 1): 1 for key, there in frames.responses.items() if key in frames.requests}
    )
    pairs = (("request", asked, requests), ("response", answered, responses))
    missing = {name: (true - told).total() for name, true, told in pairs}
    made_up = {name: (told - true).total() for name, true, told in pairs}
    return +Counter(missing), +Counter(made_up)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("capture", nargs="*", default=[workload.name for workload in WHOLE_WORKLOADS])
    parser.add_argument("--cache", type=Path, default=cache_folder())
    options = parser.parse_args()
    record = [sys.executable, str(Path(__file__).with_name("record.py")), *options.capture]
    subprocess.run([*record, "--cache", str(options.cache)], check=True, stdout=sys.stderr)
    print("| recording | MB | connections | requests | in the log | not told | invented | anomalies |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    wrong = 0
    for name in options.capture:
        path = options.cache / f"{name}.pcap"
        found = account(path)
        wrong += not found.is_right
        size = path.stat().st_size / 1e6
        left_out = f" ({found.unclear} left out)" if found.unclear else ""
        counts = (found.not_told, found.invented, found.anomalies)
        print(
            f"| {name} | {size:.0f} | {found.connections}{left_out} | {found.calls} | {found.logged} | "
            + " | ".join(
                ", ".join(f"{what} {count}" for what, count in each.most_common()) or "0" for each in counts
            )
            + " |",
            flush=True,
        )
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
