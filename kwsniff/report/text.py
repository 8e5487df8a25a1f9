"""Text from the wire, made safe to show: terminals obey control characters, spreadsheets obey formulas."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

FORMULA = r"^[=+\-@\t\r\n]"


def printable(text: str) -> str:
    """`text` with every character that is not printable (controls, escapes, direction overrides, line
    separators) written as `\\xNN` or `\\uNNNN`."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else _escape(char) for char in text)


def _escape(char: str) -> str:
    code = ord(char)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def spreadsheet_safe(column: pa.Array) -> pa.Array:
    """Texts of a CSV column: an apostrophe goes before one that a spreadsheet would take for a formula (first
    character `=`, `+`, `-`, `@`, tab, CR or LF), and NUL, which CSV readers cut at, becomes `\\x00`."""
    column = pc.replace_substring(column, "\x00", "\\x00")
    formula = pc.match_substring_regex(column, FORMULA)
    if not np.any(pc.fill_null(formula, False).to_numpy(zero_copy_only=False)):
        return column
    return pc.if_else(formula, pc.binary_join_element_wise("'", column, ""), column)


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
