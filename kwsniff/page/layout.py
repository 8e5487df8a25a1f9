"""Lines of text in a given width and height: wrapping, aligned columns, and sharing a page out.

Width is counted in the cells of a terminal, so that names in wide characters line up.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, tzinfo
from typing import TYPE_CHECKING

from kwsniff.output.text import GAP, cell_width, fitted, in_lines, joined
from kwsniff.output.units import duration, many

if TYPE_CHECKING:
    from kwsniff.analysis.report import Report


WIDTH, HEIGHT = 100, 50
"""Of a page, where there is no terminal."""
NARROWEST, WIDEST = 60, 160
"""Widths of a page."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line, and how it is styled where there is colour (a style of rich)."""

    text: str
    style: str = ""


@dataclass
class Section:
    """Part of a page: a heading and blocks of lines, of which the first ones are shown if there is little
    room."""

    title: str
    blocks: list[list[Line]]
    least: int = 0
    """Blocks shown before any other section gets more than its least."""
    most: int = 1 << 30
    head: list[Line] = field(default_factory=list)
    """Below the title, whatever the number of blocks."""
    tail: list[Line] = field(default_factory=list)
    """Below the blocks."""
    width: int = WIDTH

    def lines(self, count: int) -> list[Line]:
        """Title, head and the first `count` blocks; the title says how many are left out."""
        hidden = len(self.blocks) - count
        more = f"  (+{hidden:,} more: --top 0)" if hidden > 0 else ""
        shown = [line for block in self.blocks[:count] for line in block]
        title = [Line(_ruled(self.title + more, self.width), "bold")] if self.title else []
        return [*title, *self.head, *shown, *self.tail]


def _ruled(title: str, width: int) -> str:
    return f"── {title} " + "─" * (width - cell_width(title) - 4)


def shared(sections: Sequence[Section], height: int) -> list[int]:
    """How many blocks of each section fit into `height` lines, those named first first: each gets its least,
    then one block after the other in turn."""
    counts = [min(section.least, section.most, len(section.blocks)) for section in sections]
    room = height - sum(len(each.lines(count)) for each, count in zip(sections, counts, strict=True))
    while room < 0 and max(counts) > 1:
        place = max(range(len(counts)), key=lambda place: counts[place])
        counts[place] -= 1
        room += len(sections[place].blocks[counts[place]])
    grows = True
    while grows:
        grows = False
        for place, section in enumerate(sections):
            count = counts[place]
            if count >= min(len(section.blocks), section.most):
                continue
            lines = len(section.blocks[count])
            if lines <= room:
                counts[place] += 1
                room -= lines
                grows = True
    return counts


_TIE = "\u00a0"
_UNIT = re.compile(r"(?<=\d) (s|ms|min|h|%|bytes?|[kMGTP]B|calls?|errors?|unanswered)(?!\w)")
"""What stands behind a number on the same line."""


def tied(text: str) -> str:
    """`text` as one word for `wrapped`."""
    return text.replace(" ", _TIE)


def wrapped(text: str, width: int, indent: str = "") -> list[str]:
    """`text` in lines no wider than `width`, all but the first one indented; numbers keep their units beside
    them."""
    words = _UNIT.sub(lambda found: _TIE + found[1], text)
    return [line.replace(_TIE, " ") for line in in_lines(words, width, indent)]


def columns(
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    left: Sequence[int],
    shrink: Sequence[tuple[int, int]],
    width: int,
) -> tuple[str, list[str]]:
    """Heading and rows as aligned lines. The columns of `left` are aligned to the left; those of `shrink`
    become narrower in turn, each down to the width that stands beside it, until all fit into `width`."""
    table = [headings, *rows]
    widths = [max(cell_width(row[place]) for row in table) for place in range(len(headings))]
    for place, least in shrink:
        excess = sum(widths) + GAP * (len(widths) - 1) - width
        widths[place] -= max(min(excess, widths[place] - least), 0)
    lines = [joined([fitted(row[at], widths[at], at in left) for at in range(len(row))]) for row in table]
    return lines[0], lines[1:]


def beside(lists: Sequence[Sequence[str]], width: int) -> list[str]:
    """Lists side by side, each as wide as the others."""
    each = (width - GAP * (len(lists) - 1)) // len(lists)
    height = max(map(len, lists), default=0)
    return [
        joined([fitted(items[row] if row < len(items) else "", each) for items in lists])
        for row in range(height)
    ]


BARS = " ▁▂▃▄▅▆▇█"
DECADES = 100.0
"""Values that differ by more than this are drawn on a logarithmic scale."""


def sparkline(values: Sequence[float | None]) -> str:
    """A bar for each value, from the least to the greatest: nothing for none and for zero. Values that span
    decades are drawn by their logarithms."""
    known = [value for value in values if value]
    if not known:
        return " " * len(values)
    least, most = min(known), max(known)
    if is_logarithmic(values):
        return "".join(
            _bar(math.log(value / least), math.log(most / least)) if value else " " for value in values
        )
    return "".join(_bar(value, most) if value else " " for value in values)


def is_logarithmic(values: Sequence[float | None]) -> bool:
    """Whether they span decades."""
    known = [value for value in values if value]
    return bool(known) and max(known) > DECADES * min(known)


def _bar(value: float, most: float) -> str:
    return BARS[1 + round(7 * value / most)]


# The first line of the page: what was read, of when, and how much there is.

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
    if report.exchanges:
        parts.insert(1, f"{many(report.exchanges, 'exchange')} of TLS (estimated)")
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
