"""Two inputs side by side: what got slower, which errors are new, which clients came and went.

The effect of a difference in latency is Cliff's delta: the chance that a call of the second input took
longer than one of the first, less the chance that it took less time; 0 is no difference, 1 that every call
took longer. It does not ask for any distribution and is not carried away by a few slow calls. By custom 0.15
is small, 0.33 medium, 0.47 large.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from kwsniff.analysis.tabular import AnswerField, AnswerTable, Row, Sample, calls_of, grouped
from kwsniff.count.eventrows import WAITED, waited
from kwsniff.spec.load import catalog

NEEDS = frozenset(
    (
        *("event", "time", "client_id", "client_ip", "api", "api_key", "latency_us", "error_code", "status"),
        *WAITED,
    )
)
SAMPLES = 20_000
"""Latencies kept of each API: with more, each call has the same chance to be among them."""
ENOUGH = 20
"""Calls on both sides from which on an effect is called large, medium or small."""
SIZES = ((0.474, "large"), (0.33, "medium"), (0.147, "small"))
MAX_NAMES = 100_000


class Profile:
    """Takes EVENTS of one of the two inputs."""

    def __init__(self) -> None:
        self.needs = NEEDS
        self.apis: Counter[str] = Counter()
        """Calls."""
        self.latencies: dict[str, Sample] = defaultdict(partial(Sample, SAMPLES, np.random.default_rng(11)))
        self.errors: Counter[tuple[str, int]] = Counter()
        self.clients: Counter[str] = Counter()
        self.calls = 0

    def take(self, batch: pa.RecordBatch) -> None:
        calls = calls_of(batch)
        self.calls += len(calls)
        for row in grouped(calls, ("api", "error_code"), (("event", "count"),)):
            self.apis[row["api"] or "?"] += row["event_count"]
            if row["error_code"]:
                self.errors[row["api"] or "?", row["error_code"]] += row["event_count"]
        for row in grouped(calls, ("client_id", "client_ip"), (("event", "count"),)):
            name = row["client_id"] or row["client_ip"] or "?"
            if name in self.clients or len(self.clients) < MAX_NAMES:
                self.clients[name] += row["event_count"]
        timed = calls.filter(pc.is_valid(calls["latency_us"]))
        timed = timed.filter(pa.array(~waited(timed)))
        for row in grouped(timed, ("api",), (("latency_us", "list"),)):
            self.latencies[row["api"] or "?"].add(row["latency_us_list"])


def compared(a: Profile, b: Profile) -> list[AnswerTable]:
    """What differs between two inputs: latencies by effect, errors, clients."""
    latency = sorted(_latency(a, b), key=_weight)
    return [
        AnswerTable("latency", "Latency of A and B", LATENCY, latency),
        AnswerTable("errors", "Errors", ERRORS, list(_errors(a, b))),
        AnswerTable("clients", "Clients that came and went", CLIENTS, list(_clients(a, b))),
    ]


def _weight(row: Row) -> tuple[bool, float]:
    """What is certain first, then the greatest effects."""
    few = row["verdict"] is None or row["verdict"].startswith("only")
    return few, -abs(row["effect"] or 0)


def _latency(a: Profile, b: Profile) -> Iterator[Row]:
    for api in sorted({*a.apis, *b.apis}):
        first, second = (np.array(each.latencies[api].kept) for each in (a, b))
        effect = cliffs_delta(first, second)
        yield {
            "api": api, "calls_a": a.apis[api], "calls_b": b.apis[api],
            "p50_a_us": _percentile(first, 50), "p50_b_us": _percentile(second, 50),
            "p99_a_us": _percentile(first, 99), "p99_b_us": _percentile(second, 99),
            "change": _change(first, second), "effect": effect,
            "verdict": _verdict(effect, min(len(first), len(second))),
        }  # fmt: skip


def _percentile(times: NDArray[np.float64], percent: int) -> float | None:
    """High percentiles only of a hundred calls and more."""
    if not len(times) or (percent > 90 and len(times) < 100):
        return None
    return float(np.percentile(times, percent))


def _change(a: NDArray[np.float64], b: NDArray[np.float64]) -> float | None:
    if not len(a) or not len(b) or not np.median(a):
        return None
    return float(np.median(b) / np.median(a))


def cliffs_delta(a: NDArray[np.float64], b: NDArray[np.float64]) -> float | None:
    """P(b > a) - P(b < a) over all pairs; None without any (Cliff 1993)."""
    if not len(a) or not len(b):
        return None
    ordered = np.sort(a)
    less = np.searchsorted(ordered, b, side="left").sum()
    more = (len(a) - np.searchsorted(ordered, b, side="right")).sum()
    return float(less - more) / (len(a) * len(b))


def _verdict(effect: float | None, calls: int) -> str | None:
    if effect is None:
        return None
    if calls < ENOUGH:
        return "only 1 call" if calls == 1 else f"only {calls} calls"
    size = next((name for least, name in SIZES if abs(effect) >= least), None)
    return "same" if size is None else f"{'slower' if effect > 0 else 'faster'}: {size}"


def _errors(a: Profile, b: Profile) -> Iterator[Row]:
    keys = sorted({*a.errors, *b.errors}, key=lambda key: (bool(a.errors[key]), -b.errors[key], key))
    for api, code in keys:
        before, after = a.errors[api, code], b.errors[api, code]
        yield {
            "error": catalog().error(code).name, "api": api, "count_a": before, "count_b": after,
            "share_a": before / a.apis[api] if api in a.apis else None,
            "share_b": after / b.apis[api] if api in b.apis else None,
            "verdict": "new" if not before else "gone" if not after else "in both",
        }  # fmt: skip


def _clients(a: Profile, b: Profile) -> Iterator[Row]:
    for name in sorted({*a.clients, *b.clients}):
        before, after = a.clients[name], b.clients[name]
        if not before or not after:
            yield {
                "client": name, "calls_a": before, "calls_b": after, "verdict": "came" if after else "went"
            }  # fmt: skip


API = AnswerField("api", "text", "API", "name of the API")
LATENCY = (
    API,
    AnswerField("calls_a", "count", "calls A", "calls of the first input"),
    AnswerField("calls_b", "count", "calls B", "calls of the second"),
    AnswerField("p50_a_us", "duration", "p50 A", "median latency, without calls that wait on purpose"),
    AnswerField("p50_b_us", "duration", "p50 B", "the same of the second"),
    AnswerField("change", "factor", "B / A", "of the medians"),
    AnswerField("p99_a_us", "duration", "p99 A", "of a hundred calls and more", 2),
    AnswerField("p99_b_us", "duration", "p99 B", "the same of the second", 2),
    AnswerField("effect", "number", "effect", "Cliff's delta: 1 is that every call took longer", 1),
    AnswerField("verdict", "text", "verdict", "slower or faster, and how much"),
)
ERRORS = (
    AnswerField("verdict", "text", "verdict", "new, gone or in both"),
    AnswerField("error", "text", "error", "name of the error"),
    API,
    AnswerField("count_a", "count", "calls A", "calls of the first input with it"),
    AnswerField("count_b", "count", "calls B", "calls of the second"),
    AnswerField("share_a", "ratio", "of A", "part of the API's calls", 1),
    AnswerField("share_b", "ratio", "of B", "part of the API's calls", 1),
)
CLIENTS = (
    AnswerField("verdict", "text", "verdict", "came or went"),
    AnswerField("client", "text", "client", "client id, or the address where there is none"),
    AnswerField("calls_a", "count", "calls A", "calls of the first input"),
    AnswerField("calls_b", "count", "calls B", "calls of the second"),
)
