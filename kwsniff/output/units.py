"""How numbers, sizes, times and names are told: one formatter for each way to say one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from kwsniff.output.text import printable

NAMED = 2
"""Names said before `and 5 more`."""
LONGEST = 44


def bytes_text(size: int) -> str:
    """Bytes in at most four digits and powers of 1000: `999 bytes`, `1.5 kB`, `2.35 GB`."""
    if size < 1000:
        return "1 byte" if size == 1 else f"{size} bytes"
    value, unit = _scaled(size)
    return f"{digits(value)} {unit}"


def _scaled(count: float) -> tuple[float, str]:
    """Bytes in the power of 1000 in which they have three digits before the point at most."""
    units = ["B", "kB", "MB", "GB", "TB", "PB"]
    while count >= 999.5 and len(units) > 1:
        count, units = count / 1000, units[1:]
    return count, units[0]


def digits(value: float) -> str:
    """A number in three digits, or with all digits before the point: `0.0123`, `1.5`, `1,234`."""
    if abs(value) >= 99.95:
        return f"{value:,.0f}"
    text = f"{value:.3g}"
    return text if "e" not in text else f"{value:.6f}".rstrip("0").rstrip(".") or "0"


def closer(closed_by: str) -> str:
    """Who ended a connection and how: `the client (FIN)` for `client_fin`."""
    who, _, flag = closed_by.partition("_")
    return f"the {who} ({flag.upper()})" if flag else closed_by


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


# In columns, where the heading has the unit or there is little room


def milliseconds(microseconds: float) -> str:
    """A duration in ms by three digits, without the unit: `1.5`."""
    return digits(microseconds / 1000)


def ratio(part: float) -> str:
    """A part of 1: `12.5%`."""
    return f"{100 * part:.3g}%"


def short_duration(microseconds: float) -> str:
    """A duration in three digits: `812 µs`, `22.6 ms`, `1.2 s`."""
    size = abs(microseconds)
    if size < 999.5:
        return f"{digits(microseconds)} µs"
    if size < 999_500:
        return f"{digits(microseconds / 1e3)} ms"
    return f"{digits(microseconds / 1e6)} s"


def plain_duration(microseconds: float | None) -> str:
    """A duration as lines have it, in ASCII: `812.0 us`, `22.6 ms`, `1.25 s`, `-` for none."""
    if microseconds is None:
        return "-"
    for limit, divisor, unit in ((1e3, 1, "us"), (1e6, 1e3, "ms")):
        if abs(microseconds) < limit:
            return f"{microseconds / divisor:.1f} {unit}"
    return f"{microseconds / 1e6:.2f} s"


def binary_size(count: int) -> str:
    """Bytes in powers of 1024, as lines have them: `999 B`, `1.5 KiB`."""
    for limit, unit in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if count >= limit:
            return f"{count / limit:.1f} {unit}"
    return f"{count} B"


def number(value: float, decimals: int) -> str:
    """At least three digits, with so many decimals at most: numbers in a column stand below each other."""
    while decimals and abs(value) >= 10 ** (3 - decimals) - 0.5 * 10**-decimals:
        decimals -= 1
    return f"{value:,.{decimals}f}"


def narrow_size(count: float) -> str:
    """Bytes in powers of 1000, as the live screen has them: `12 B`, `1.50 kB`."""
    value, unit = _scaled(count)
    return f"{value:.0f} B" if unit == "B" else f"{number(value, 2)} {unit}"


def endpoint(address: str | None, port: object, none: str = "?") -> str:
    """Address and port, with brackets around an IPv6 address."""
    if address is None:
        return none
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
