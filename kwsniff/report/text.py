"""Text from the wire, made safe to show: terminals obey control characters, spreadsheets obey formulas.

One rule for every output: a character that Python calls unprintable (controls of C0 and C1, DEL, direction
overrides, byte order marks, characters of no width, line separators) is never written as it is. Lines for
people and CSV write `\\xNN` or `\\uNNNN` in its place; JSON writes `\\uNNNN`, which readers turn back.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

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


def printable_column(column: pa.Array, escape: Callable[[str], str] = printable) -> pa.Array:
    """The texts of a column through `printable`, or `json_printable`."""
    if not _SUSPICIOUS[text_bytes(column)].any():  # nearly always, and far cheaper than matching texts
        return column
    special = pc.fill_null(pc.match_substring_regex(column, _NOT_ASCII), False)
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


def bytes_text(size: int) -> str:
    """Bytes in at most four digits and powers of 1000: `999 bytes`, `1.5 kB`, `2.35 GB`."""
    if size < 1000:
        return "1 byte" if size == 1 else f"{size} bytes"
    value, units = float(size), ["", "kB", "MB", "GB", "TB", "PB"]
    while value >= 999.5 and len(units) > 1:
        value, units = value / 1000, units[1:]
    return f"{digits(value)} {units[0]}"


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
