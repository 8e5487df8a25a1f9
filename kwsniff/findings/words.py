"""How findings say names, numbers and times."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from kwsniff.report.text import bytes_text, digits, printable

NAMED = 2
"""Names said before `and 5 more`."""
LONGEST = 44


def many(count: float, noun: str) -> str:
    """`1 call`, `1,234 calls`, `3 batches`."""
    plural = noun if count == 1 else noun + ("es" if noun.endswith(("ch", "s")) else "s")
    return f"{int(count):,} {plural}"


def times(count: float) -> str:
    """`once`, `twice`, `7 times`."""
    return {1: "once", 2: "twice"}.get(int(count), f"{int(count):,} times")


def name(text: Any) -> str:
    """A name from the wire: printable and not too long."""
    shown = printable(str(text)) if text is not None else "(none)"
    return shown if len(shown) <= LONGEST else shown[: LONGEST - 3] + "..."


def client(client_id: Any, ip: Any) -> str:
    """`app@10.0.0.1`."""
    return f"{name(client_id)}@{ip}" if client_id else str(ip)


def listed(names: Iterable[str], most: int = NAMED) -> str:
    """`a, b and 5 more`."""
    distinct = list(dict.fromkeys(names))
    if len(distinct) <= most + 1 or most < 1:
        return " and ".join([part for part in (", ".join(distinct[:-1]), *distinct[-1:]) if part])
    return f"{', '.join(distinct[:most])} and {len(distinct) - most:,} more"


def counted(pairs: Sequence[tuple[str, float]], most: int = 3) -> str:
    """`Produce 13, Fetch 4`, the most frequent first."""
    ranked = sorted(pairs, key=lambda pair: (-pair[1], pair[0]))
    more = f" and {len(ranked) - most:,} more" if len(ranked) > most else ""
    return ", ".join(f"{text} {int(count):,}" for text, count in ranked[:most]) + more


def duration(seconds: float) -> str:
    """`230 ms`, `1.5 s`, `12 min`, `3.2 h`."""
    if seconds < 0.9995:
        return f"{digits(seconds * 1000)} ms"
    if seconds < 120:
        return f"{digits(seconds)} s"
    return f"{digits(seconds / 60)} min" if seconds < 7200 else f"{digits(seconds / 3600)} h"


def percent(part: float) -> str:
    """`12 %`."""
    return f"{digits(100 * part)} %"


def rate(per_s: float) -> str:
    """`12 a second`."""
    return f"{digits(per_s)} a second"


def in_unit(name: str, value: float) -> str:
    """A figure in the unit that its name ends with."""
    for ending, per_s in (("_us", 1e6), ("_ms", 1e3), ("_s", 1)):
        if name.endswith(ending):
            return duration(value / per_s)
    return bytes_text(int(value)) if name.endswith("bytes") else f"{int(value):,}"


size = bytes_text
"""`1.5 kB`."""
