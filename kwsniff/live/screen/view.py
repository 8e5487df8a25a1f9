"""What the screen shows, line by line: a function of a snapshot, the user's choices and the size.

The lines are rich texts that no markup is parsed in, made of printable characters only; each is as wide as
the screen or less. Colours say nothing that words don't.
"""

from __future__ import annotations

from datetime import datetime

import numpy as np
from rich.cells import cell_len
from rich.text import Text

from kwsniff.count.percentiles import ERROR
from kwsniff.live.screen import shown as c
from kwsniff.live.screen.lastminute import LATELY_S, Figures, Snapshot, Vitals
from kwsniff.live.screen.screenrows import CALLS, ROWS, WINDOW_S
from kwsniff.live.screen.shown import Cell, Line, cut, drawn, headings, padded, table
from kwsniff.live.screen.state import FOOTERS, KEYS, SORTS, State, ordered
from kwsniff.output.text import GAP, in_lines, printable
from kwsniff.output.units import narrow_size, number

# The busiest and the slowest clients and topics, whatever else is shown: two lines, or lists where there is
# room.

LEADERS_HEIGHT = 18
"""Lines of a screen that has room for two lines, and one above them."""
LIST_HEIGHT = 34
"""Lines of a screen that has room for lists."""
COUNTS = ((46, 8), (LIST_HEIGHT, 5))
"""Lines of a screen, and names in a list on it."""
LEADER_WIDTH = 34
"""Cells of a list."""

VALUE = 14
"""Cells of a rate or latency."""

KINDS = (("busiest", "rate"), ("slowest", "p99"))
OF = (("client", "clients"), ("topic", "topics"))


def leaders(groups: dict[str, Figures], width: int, height: int) -> list[Text]:
    """The lines for a screen of this size."""
    if height < LEADERS_HEIGHT:
        return []
    if height < LIST_HEIGHT:
        return [Text(), *_lines(groups, width)]
    count = next(names for lines, names in COUNTS if height >= lines)
    lists = [
        [(f"{kind} {many}", ""), *_best(groups[one], one, sort, count)]
        for one, many in OF
        for kind, sort in KINDS
    ]
    across = 4 if width >= 4 * LEADER_WIDTH + 3 * GAP else 2
    texts: list[Text] = []
    for first in range(0, len(lists), across):
        texts += [Text(), *_beside(lists[first : first + across], width)]
    return texts


def _lines(groups: dict[str, Figures], width: int) -> list[Text]:
    """`busiest   client NAME 12.0/s   topic NAME 3.00/s`, and the slowest below them."""
    best = {(kind, one): _best(groups[one], one, sort, 1) for kind, sort in KINDS for one, _ in OF}
    shown = {place: found[0] if found else ("-", "") for place, found in best.items()}
    room = (width - 8 - sum(len(f"  {one} ") + VALUE for one, _ in OF)) // len(OF)
    lines = []
    for kind, _ in KINDS:
        text = Text(f"{kind:<8}", no_wrap=True, end="")
        for one, _ in OF:
            name, value = shown[kind, one]
            longest = max(cell_len(shown[other, one][0]) for other, _ in KINDS)
            text.append(f"  {one} ")
            text.append(padded(name, min(room, longest)), "bold")
            text.append(f" {value:<{VALUE - 1}}")
        text.truncate(width)
        lines.append(text)
    return lines


def _beside(lists: list[list[tuple[str, str]]], width: int) -> list[Text]:
    room = (width - GAP * (len(lists) - 1)) // len(lists)
    lines = []
    for place in range(max(map(len, lists))):
        line = Text(no_wrap=True, end="")
        for at, entries in enumerate(lists):
            name, value = entries[place] if place < len(entries) else ("", "")
            text = padded(cut(name, room - len(value) - 1), room - len(value)) + value
            line.append((" " * GAP if at else "") + text, "bold" if place == 0 else "")
        lines.append(line)
    return lines


def _best(figures: Figures, one: str, sort: str, count: int) -> list[tuple[str, str]]:
    """Names and values of the first rows."""
    found: list[tuple[str, str]] = []
    for row in ordered(figures, sort):
        key = figures.keys[row]
        if key is None or (sort == "p99" and np.isnan(figures.quantiles[row, -1])):
            continue
        cells, _ = c.row_line(figures, row, one)
        value = f"{cells['rate'].text}/s" if sort == "rate" else f"p99 {cells['p99'].text} ms"
        found.append((cells["name"].text, value))
        if len(found) == count:
            break
    return found


LEAST_WIDTH, LEAST_HEIGHT = 50, 14
"""Cells below which nothing is shown but a word on the size."""
HEADING = "bold underline"
SELECTED = "reverse"
WARNING = "bold red"
MORE = "  ..."


def screen(snapshot: Snapshot, state: State, title: str, width: int, height: int) -> list[Text]:
    """All `height` lines but the last, which is the line of keys or the filter's."""
    if width < LEAST_WIDTH or height < LEAST_HEIGHT:
        return [_text(cut(f"Needs {LEAST_WIDTH}x{LEAST_HEIGHT}, is {width}x{height}; q quits", width))]
    head = [*_head(snapshot, state, title, width), Text()]
    left = height - len(head)
    if state.view == "help":
        return head + _scrolled(_help(width), state, left)
    if snapshot.groups is None:
        return [*head, _text("Waiting for packets ...")]
    figures = snapshot.groups[state.grouping]
    if state.view == "calls":
        return head + _calls(figures, state, width, left)
    below = leaders(snapshot.groups, width, height)
    body = _rows(figures, state, width, left - len(below))
    return [*head, *body, *below]


def footer(state: State, width: int) -> Text:
    return _text(cut(FOOTERS[state.view], width), "dim")


# The capture


def _head(snapshot: Snapshot, state: State, title: str, width: int) -> list[Text]:
    lines = [_title(snapshot, state, title, width)]
    if snapshot.vitals is None:
        return lines
    lines += [*_flow(snapshot.vitals, width), _anomalies(snapshot.vitals, width)]
    if snapshot.whole is not None:
        lines.append(_whole(snapshot.whole, width))
    return lines


def _title(snapshot: Snapshot, state: State, title: str, width: int) -> Text:
    right = (
        f" {datetime.fromtimestamp(snapshot.now_ns // 10**9, state.zone):%H:%M:%S %Z}"
        if snapshot.now_ns
        else ""
    )
    if snapshot.vitals is not None:
        right = f"  up {_span(snapshot.now_ns - snapshot.vitals.health.started_ns)} {right}"
    if state.paused:
        right = f"  PAUSED {right}"
    left = f"kwsniff live  {printable(title)}"
    return _text(padded(left, width - len(right)) + right, "bold reverse")


def _flow(vitals: Vitals, width: int) -> list[Text]:
    health = vitals.health
    words = [
        ("packets/s", number(vitals.packets_per_s, 1)),
        ("bytes/s", narrow_size(vitals.bytes_per_s)),
        ("connections", f"{health.connections:,}"),
        ("waiting", f"{health.outstanding:,}"),
    ]
    if health.waiting_bytes:
        words.append(("backlog", narrow_size(health.waiting_bytes)))
    # What was lost goes first, so that no narrow terminal cuts it.
    texts = [_drops(vitals), *(_pair(*word) for word in words)]
    first = _fitting(texts, width)
    return [_joined(part, width) for part in (texts[:first], texts[first:]) if part]


def _drops(vitals: Vitals) -> Text:
    health = vitals.health
    if not health.dropped:
        return _text("dropped 0")
    text = f"DROPPED {health.dropped:,} (kernel {health.kernel_dropped:,}, own {health.own_dropped:,}"
    text += f"; {vitals.dropped_lately:,} in the last {WINDOW_S} s)" if vitals.dropped_lately else ")"
    return _text(text, f"{WARNING} reverse" if vitals.dropped_lately else WARNING)


def _anomalies(vitals: Vitals, width: int) -> Text:
    if not vitals.anomalies:
        return _text("anomalies 0")
    texts = [_pair("anomalies", f"{sum(count for _, count, _ in vitals.anomalies):,}")]
    for code, count, lately in vitals.anomalies:
        more = f" (+{lately:,})" if lately else ""
        texts.append(_text(f"{printable(code)} {count:,}{more}", "yellow" if lately else ""))
    fit = _fitting(texts, width)
    if fit < len(texts):
        fit = _fitting(texts, width - len(MORE))
        texts[fit:] = [_text(MORE.strip())]
    return _joined(texts, width)


def _whole(whole: Figures, width: int) -> Text:
    line, _ = c.row_line(whole, 0, "api")
    texts = [_text(f"last {min(round(float(whole.seconds[0])), WINDOW_S)} s", "bold")]
    for name, heading in (("rate", "calls/s"), ("errors", "errors/s"), ("unanswered", "unanswered")):
        text = _pair(heading, line[name].text)
        text.stylize(line[name].style)
        texts.append(text)
    if _fitting(texts, width) < len(texts):
        texts = texts[1:]
    latencies = [*texts, _latencies(line, ("p50", "p95", "p99"))]
    if not line["p50"].text:
        latencies = texts
    elif _fitting(latencies, width) < len(latencies):
        latencies = [*texts, _latencies(line, ("p50", "p99"))]
    return _joined([*latencies, _pair("bytes/s", line["bytes"].text)], width)


def _latencies(line: dict[str, Cell], names: tuple[str, ...]) -> Text:
    text = Text.assemble(
        *(_pair(f" {name}" if place else name, line[name].text) for place, name in enumerate(names))
    )
    text.append(" ms")
    return text


# Rows


def _rows(figures: Figures, state: State, width: int, height: int) -> list[Text]:
    order = ordered(figures, state.sort, state.text)
    named = sum(figures.keys[row] is not None for row in order)
    lines = [_bar(state, named, len(figures.keys) - 1, width)]
    if not order:
        label = c.LABELS[state.grouping]
        lines.append(
            _text(f"No {label} contains {printable(state.text)}" if state.text else f"No {label} yet")
        )
        return _filled(lines, height)
    place = state.place(figures, order)
    state.see(place, len(order), height - 2)
    shown = order[state.top : state.top + height - 2]
    wanted = c.row_columns(state.grouping)
    # Widths of all rows, so that scrolling doesn't change them.
    every = [c.row_line(figures, row, state.grouping) for row in order]
    columns, widths = table(wanted, every, width)
    lines.append(_sorted_by(state.sort, headings(columns, widths, HEADING)))
    for row in shown:
        cells, _ = every[order.index(row)]
        style = SELECTED if row == order[place] else ("dim" if figures.keys[row] is None else "")
        lines.append(drawn(columns, widths, (cells, style)))
    return _filled(lines, height)


def _sorted_by(sort: str, line: Text) -> Text:
    heading = {"rate": "calls/s", "p99": "p99 ms", "errors": "errors/s", "bytes": "bytes/s"}.get(sort, sort)
    line.highlight_words([heading], "reverse")
    return line


def _bar(state: State, shown: int, known: int, width: int) -> Text:
    tabs = Text(no_wrap=True, end="")
    for name, label in c.LABELS.items():
        tabs.append(*((f"[{label}]", "bold") if name == state.grouping else (f" {label} ", "")))
    texts = [tabs, _pair("sort", SORTS[state.sort])]
    if state.text:
        texts.append(_text(f"filter {printable(state.text)}: {shown:,} of {known:,}", "bold"))
    elif known:
        texts.append(_text(f"{known:,} rows"))
    return _joined(texts, width)


# Last calls


def _calls(figures: Figures, state: State, width: int, height: int) -> list[Text]:
    order = ordered(figures, state.sort, state.text)
    if not order or figures.keys[order[state.place(figures, order)]] is None:
        return _filled([_text("No row is selected")], height)
    row = order[state.place(figures, order)]
    key = figures.keys[row]
    if state.selected is not None and key != state.selected:
        return _filled([_text(f"No calls in the last {WINDOW_S} s")], height)
    name = c.name_of(key, state.grouping) if key is not None else ""
    if key is not None and state.grouping == "client":
        name += f" {key[1]}"
    calls = figures.recent.of(int(figures.owners[row]))
    lines: list[Line] = [c.call_line(call, state.zone) for call in calls]
    columns, widths = table(c.call_columns(state.grouping), lines, width)
    texts = [_text(cut(f"Last calls of {c.LABELS[state.grouping]} {name}", width), "bold")]
    texts.append(headings(columns, widths, HEADING))
    return texts + _scrolled([drawn(columns, widths, line) for line in lines], state, height - 2)


# Help


def _help(width: int) -> list[Text]:
    keys = [(key.shown, key.meaning) for key in KEYS if key.shown]
    lines = [_text(cut(f"{shown:>10}  {meaning}", width)) for shown, meaning in keys]
    notes = (
        "",
        f"Figures are those of the last {WINDOW_S} s of packet time; packets/s and bytes/s beside the drops "
        f"are those of the last {LATELY_S} s. Drops and anomalies count from the start; (+n) of them came in "
        f"the last {WINDOW_S} s.",
        "Latency is from the end of the request to the start of the response; percentiles are exact to "
        f"{ERROR:.1%}. Requests that wait on purpose (a Fetch for data, JoinGroup and SyncGroup for other "
        "members) are no part of it; waited/s counts them.",
        "lag: records that a group's commits, or a client's Fetches, are behind the ends of their "
        "partitions, all together, by what the whole session has shown.",
        "A call counts for each topic it names; the bytes of a topic are those of its records.",
        f"Each grouping has {ROWS} rows; what has none counts as {c.OTHERS}. The last {CALLS} calls of each "
        "row are kept.",
        "waiting: requests without a response so far, with the topics and partitions they name. backlog: "
        "packets taken and not decoded yet.",
    )
    return lines + [_text(line) for note in notes for line in in_lines(note, width)]


# Pieces


def _scrolled(lines: list[Text], state: State, height: int) -> list[Text]:
    state.scroll = min(state.scroll, max(len(lines) - height, 0))
    return _filled(lines[state.scroll :], height)


def _filled(lines: list[Text], height: int) -> list[Text]:
    return [*lines, *(Text() for _ in range(height - len(lines)))][:height]


def _text(text: str, style: str = "") -> Text:
    """A style of the whole text would be lost where it is drawn; that of a part is kept."""
    return Text(no_wrap=True, end="").append(text, style)


def _pair(name: str, value: str) -> Text:
    text = _text(f"{name} ")
    text.append(value, "bold")
    return text


def _fitting(texts: list[Text], width: int) -> int:
    """How many of `texts` fit beside each other, at least one."""
    taken = texts[0].cell_len
    for place, text in enumerate(texts[1:], 1):
        taken += GAP + text.cell_len
        if taken > width:
            return place
    return len(texts)


def _joined(texts: list[Text], width: int) -> Text:
    """As many of `texts` as fit, the first one in any case."""
    line = Text(" " * GAP, no_wrap=True, end="").join(texts[: _fitting(texts, width)])
    line.truncate(width)
    return line


def _span(nanoseconds: int) -> str:
    minutes, seconds = divmod(max(nanoseconds, 0) // 10**9, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}"
