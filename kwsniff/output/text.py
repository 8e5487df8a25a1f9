"""Text from the wire, made safe to show: terminals obey control characters, spreadsheets obey formulas.

One rule for every output: a character that Python calls unprintable (controls of C0 and C1, DEL, direction
overrides, byte order marks, characters of no width, line separators) is never written as it is. Lines for
people and CSV write `\\xNN` or `\\uNNNN` in its place; JSON writes `\\uNNNN`, which readers turn back.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from kwsniff.rows.arrays import validity
from kwsniff.rows.columns import Ints, integers, valid

FORMULA_SIGNS = "=+-@\u207a\u207c\u208a\u208c\u2212\ufb29\ufe62\ufe63\ufe66\ufe6b\uff0b\uff0d\uff1d\uff20"
"""What begins a formula: `=`, `+`, `-`, `@`, and what Unicode calls compatible with them (NFKC; the fullwidth
ones are what East Asian keyboards give), and the minus sign."""
FORMULA = f"(^|;)( *)([{re.escape(FORMULA_SIGNS)}])"
"""Where a formula may begin: spaces don't keep a spreadsheet from reading one, and `;` parts the elements of
lists, and the cells where the decimal sign is a comma."""

_SUSPICIOUS = np.ones(256, dtype=bool)
_SUSPICIOUS[0x20:0x7F] = False
"""Bytes of UTF-8 that may be part of an unprintable character."""
_NOT_ASCII = r"[^ -~]"


def printable(text: str) -> str:
    """`text` with every character that is not printable (controls, escapes, direction overrides, line
    separators) written as `\\xNN` or `\\uNNNN`."""
    return text if text.isprintable() else _replaced(text, _escape)


def json_printable(text: str) -> str:
    """JSON text with every character that is not printable escaped: the same values, safe to show."""
    return text if text.isprintable() else _replaced(text, _json_escape)


def cell_width(text: str) -> int:
    """Cells that a text takes on a terminal."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def cut(text: str, width: int) -> str:
    """A text in so many cells at most, with an ellipsis where it was longer."""
    if cell_width(text) <= width:
        return text
    from rich.cells import set_cell_size

    head = set_cell_size(text, width - 1) if width else ""
    return (head if text.startswith(head) else head.rstrip()) + "…" * (width > 0)


def fitted(text: str, width: int, left: bool = True) -> str:
    """A text in exactly so many cells, cut or filled up."""
    text = cut(text, width)
    space = " " * (width - cell_width(text))
    return text + space if left else space + text


def in_lines(text: str, width: int, indent: str = "") -> list[str]:
    """`text` in lines no wider than `width` cells, all but the first one indented; words longer than a line
    are cut into parts."""
    lines, line = [], ""
    for word in text.split(" "):
        longer = f"{line} {word}" if line else word
        if cell_width(longer) <= width or not line.strip():
            line = longer
        else:
            lines.append(line)
            line = indent + word
        while cell_width(line) > width:
            from rich.cells import chop_cells

            head = chop_cells(line, width)[0]
            lines.append(head)
            line = indent + line[len(head) :]
    return [*lines, line]


def printable_column(column: pa.Array, escape: Callable[[str], str] = printable) -> pa.Array:
    """The texts of a column through `printable`, or `json_printable`."""
    return replaced(column, _SUSPICIOUS, _NOT_ASCII, escape)


def replaced(
    column: pa.Array, suspicious: NDArray[np.bool_], pattern: str, escape: Callable[[str], str]
) -> pa.Array:
    """The texts of a column that match a pattern through `escape`, the others as they are. No text matches
    in which there is no byte of the `suspicious` ones."""
    if not suspicious[text_bytes(column)].any():  # nearly always, and far cheaper than matching texts
        return column
    special = pc.fill_null(pc.match_substring_regex(column, pattern), False)
    named = column.filter(special).dictionary_encode()
    safe = pa.array([escape(text) for text in named.dictionary.to_pylist()], column.type)
    return pc.replace_with_mask(column, special, safe.take(named.indices))


def text_bytes(texts: pa.Array) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """The texts of an array (`string`) one after the other, as UTF-8."""
    if len(texts) == 0 or texts.buffers()[2] is None:
        return np.empty(0, np.uint8)
    offsets = np.frombuffer(texts.buffers()[1], dtype=np.int32)
    first, last = int(offsets[texts.offset]), int(offsets[texts.offset + len(texts)])
    return np.frombuffer(texts.buffers()[2], np.uint8, last - first, first)


def _replaced(text: str, escape: Callable[[str], str]) -> str:
    return "".join(char if char.isprintable() else escape(char) for char in text)


def _json_escape(char: str) -> str:
    return json.dumps(char)[1:-1]


def _escape(char: str) -> str:
    code = ord(char)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def spreadsheet_safe(column: pa.Array) -> pa.Array:
    """Texts of a CSV column: what is not printable is written as `printable` does, and an apostrophe goes
    before what a spreadsheet would take for a formula."""
    encoded = column.dictionary_encode()
    texts = printable_column(encoded.dictionary)
    formula = pc.any(pc.match_substring_regex(texts, FORMULA)).as_py()
    if formula:
        texts = pc.replace_substring_regex(texts, FORMULA, r"\1'\2\3")
    return column if texts is encoded.dictionary and not formula else texts.take(encoded.indices)


# Times as text, a column at a time.

ISO_WIDTH = len("2026-01-31T12:00:00.123456Z")
_LAYOUT = np.dtype([("second", "V19"), ("point", "S1"), ("milli", "V3"), ("micro", "V3"), ("zone", "S1")])
_THREE_DIGITS = np.array([f"{number:03}" for number in range(1000)], "S3").view("V3")
"""Numbers below a thousand as text."""


def iso_times(times: pa.Array, zone: str = "UTC") -> pa.Array:
    """ISO 8601 with six decimals, null where the time is null; in UTC, or in another time zone with the
    offset from UTC behind it.

    `times` is timestamp[us, UTC] of the years 0 to 9999. The digits are laid out as records of bytes, one a
    row, which costs a twentieth of formatting every value.
    """
    if zone != "UTC":
        return _zoned(times, zone)
    micros = integers(times)
    seconds = micros // 1_000_000
    fraction = (micros - seconds * 1_000_000).astype(np.int32)
    thousands = fraction // 1000
    text = np.empty(len(micros), _LAYOUT)
    named, rows = _seconds(seconds)
    text["second"] = named[rows]
    text["point"], text["zone"] = b".", b"Z"
    text["milli"], text["micro"] = _THREE_DIGITS[thousands], _THREE_DIGITS[fraction - thousands * 1000]
    offsets = np.arange(len(micros) + 1, dtype=np.int32) * ISO_WIDTH
    buffers = validity(~valid(times)), pa.py_buffer(offsets), pa.py_buffer(text)
    return pa.Array.from_buffers(pa.string(), len(micros), buffers)


def _seconds(seconds: Ints) -> tuple[NDArray[Any], Ints]:
    """Texts of seconds, and which is whose. Packets come by the thousand in a second: only each second's own
    text is made by NumPy's slow formatter."""
    first, last = (int(seconds.min()), int(seconds.max())) if len(seconds) else (0, 0)
    if last - first < len(seconds):
        moments, rows = np.arange(first, last + 1), seconds - first
    else:
        moments, rows = np.unique(seconds, return_inverse=True)
    return np.datetime_as_string(moments.astype("datetime64[s]")).astype("S19").view("V19"), rows


def _zoned(times: pa.Array, zone: str) -> pa.Array:
    local = pc.local_timestamp(times.cast(pa.timestamp("us", tz=zone))).cast(pa.int64())
    minutes = pc.divide(pc.subtract(local, times.cast(pa.int64())), 60_000_000).dictionary_encode()
    offsets = [
        f"{'-' if m < 0 else '+'}{abs(m) // 60:02}:{abs(m) % 60:02}" for m in minutes.dictionary.to_pylist()
    ]
    shown = iso_times(local.cast(times.type))
    behind = pa.array(offsets, pa.string()).take(minutes.indices)
    return pc.binary_join_element_wise(pc.utf8_slice_codeunits(shown, 0, ISO_WIDTH - 1), behind, "")


# Tables of text that fit a width: columns are left out, those of the greatest rank first, then long texts
# are cut. Widths are counted in the cells of a terminal, of which some characters take two and some none.

GAP = 2
"""Cells between columns."""


@dataclass(frozen=True, slots=True)
class Fit:
    """What a column of a table needs."""

    heading: str
    rank: int = 0
    """How soon it is left out where room is short: the greatest first, 0 never."""
    left: bool = False
    """Aligned to the left, as text is."""
    width: int = 0
    """At least so wide."""
    enough: int | None = None
    """It is left out only where it can't have so many cells; None: it needs all."""
    soft: int = 0
    """It is cut to so many cells before any other is cut to fewer than that."""
    floor: int | None = None
    """It may be cut to so many cells; None: not at all."""


def fit(columns: Sequence[Fit], texts: Sequence[Iterable[str]], width: int | None) -> dict[int, int]:
    """Which columns there is room for, by their places, and how wide each is to be. `texts` are the cells of
    each column; one that has none is left out, unless its rank is 0. Without a width all others stay."""
    whole = {
        place: max(column.width, *map(cell_width, (column.heading, *cells)))
        for place, (column, cells) in enumerate(zip(columns, map(list, texts), strict=True))
        if not column.rank or any(cells)
    }
    if width is None:
        return whole
    least = {place: _least(columns[place], size) for place, size in whole.items()}
    while _taken(least) > width and (last := max(columns[place].rank for place in least)):
        least = {place: size for place, size in least.items() if columns[place].rank < last}
    return _cut(columns, {place: whole[place] for place in least}, width)


def _least(column: Fit, size: int) -> int:
    return size if column.enough is None else min(size, max(column.enough, column.width))


def _taken(widths: dict[int, int]) -> int:
    return sum(widths.values()) + GAP * (len(widths) - 1)


def _cut(columns: Sequence[Fit], widths: dict[int, int], width: int) -> dict[int, int]:
    """The widths, of which the greatest are made less until all fit: first those above what is soft."""
    while _taken(widths) > width:
        floors = ((place, columns[place].floor) for place in widths)
        able = [place for place, floor in floors if floor is not None and widths[place] > floor]
        if not able:
            break
        widths[max(able, key=lambda place: (widths[place] > columns[place].soft, widths[place]))] -= 1
    return widths


def aligned(columns: Sequence[Fit], widths: dict[int, int], cells: Sequence[str]) -> list[str]:
    """The cells of the columns that there is room for, each as wide as its column."""
    return [fitted(cells[place], size, columns[place].left) for place, size in widths.items()]


def joined(cells: Iterable[str]) -> str:
    """Cells as a line."""
    return (" " * GAP).join(cells).rstrip()
