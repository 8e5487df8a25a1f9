"""The first line of the page: what was read, of when, and how much there is."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import UTC, tzinfo
from typing import TYPE_CHECKING

from kwsniff.output.units import duration, many

if TYPE_CHECKING:
    from kwsniff.analysis.report import Report

NAMED = 2


def title(paths: Sequence[str], report: Report, zone: tzinfo = UTC) -> str:
    """`trace.pcapng, 2026-11-21 10:00:00 to 10:05:00 UTC (5 min): 12,345 calls, 54 errors, 3 unanswered,
    latency p50 1.2 ms, p95 30 ms`."""
    text = named(paths)
    if report.first_time is not None and report.last_time is not None:
        first, last = report.first_time.astimezone(zone), report.last_time.astimezone(zone)
        day = "%Y-%m-%d " if first.date() != last.date() else ""
        text += f", {first:%Y-%m-%d %H:%M:%S} to {last:{day}%H:%M:%S %Z}"
        text += f" ({duration(report.covered_s)})"
    parts = [many(report.total("calls"), "call"), many(report.total("errors"), "error")]
    parts.append(f"{report.total('unanswered'):,} unanswered")
    figures = [(name, value) for name, value in report.latency_us.items() if value is not None]
    latency = ", ".join(f"{name} {duration(value / 1e6)}" for name, value in figures)
    return f"{text}: {', '.join(parts)}{', latency ' if latency else ''}{latency}"


def named(paths: Sequence[str]) -> str:
    """`a.pcap, b.pcap and 3 more`."""
    names = [_named(path) for path in paths]
    return ", ".join(names[:NAMED]) + (f" and {len(names) - NAMED:,} more" if len(names) > NAMED else "")


def _named(path: str) -> str:
    return "standard input" if path == "-" else os.path.basename(path.rstrip("/")) or path
