"""Events as JSON Lines: one object per event, columns without a value left out.

Theory of operation: no Python object is made per row. Every column becomes a column of JSON texts by Arrow
kernels, nested ones from the inside out; the texts of a row are joined, nulls skipped, and wrapped in braces.
"""

from __future__ import annotations

import functools
import json
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kwsniff.output.text import iso_times, json_printable, printable_column, text_bytes
from kwsniff.rows.arrays import lists
from kwsniff.rows.schema import EVENTS

READY = ("request", "response")
"""Columns whose texts are JSON already."""
SLICE_ROWS = 4096
SLICE_BYTES = 8 << 20
"""Making the text of a slice takes several times its size."""

_ESCAPED = r'["\\]|[^ -~]'
_SUSPICIOUS = np.zeros(256, dtype=bool)
_SUSPICIOUS[[*range(0x20), ord('"'), ord("\\"), *range(0x7F, 0x100)]] = True
"""Bytes of text that may have to be escaped."""


class JsonlWriter:
    """Writes each row as an object on a line of its own, in UTF-8."""

    note = ""

    def __init__(self, stream: IO[bytes], columns: list[str] | None = None) -> None:
        self._stream = stream
        self._columns = columns if columns is not None else EVENTS.names

    def write(self, batch: pa.RecordBatch) -> None:
        """Write the rows of `batch`, which has the columns of EVENTS."""
        rows = SLICE_ROWS
        if batch.nbytes > SLICE_BYTES:
            rows = max(1, min(rows, batch.num_rows * SLICE_BYTES // batch.nbytes))
        for start in range(0, batch.num_rows, rows):
            self._stream.write(self._lines(batch.slice(start, rows)))

    def _lines(self, batch: pa.RecordBatch) -> memoryview:
        members = [
            _joined([json.dumps(name) + ":", printable_column(values, json_printable)])
            if name in READY
            else json_texts(values, json.dumps(name) + ":")
            for name in self._columns
            if (values := batch[name]).null_count < len(values)
        ]
        return text_bytes(_joined(["{", _listed(members, len(batch)), "}\n"])).data

    def close(self) -> None:
        """Nothing follows the last line."""


def _joined(parts: list[Any]) -> pa.Array:
    """The parts of each row one after the other; null if one is null."""
    return pc.binary_join_element_wise(*parts, "")


def _listed(members: list[pa.Array], rows: int) -> pa.Array:
    """The members of each row with commas between them, nulls left out."""
    if not members:
        return pa.repeat("", rows)
    some = functools.reduce(pc.or_, (member.is_valid() for member in members))
    if not pc.all(some).as_py():
        # Arrow 26 drops a row whose every part is null and skipped, so that later rows would move up.
        members = [pc.if_else(some, members[0], ""), *members[1:]]
    return pc.binary_join_element_wise(*members, ",", null_handling="skip")


def json_texts(values: pa.Array, before: str = "") -> pa.Array:
    """Each value as JSON text behind `before`; null stays null."""
    type_ = values.type
    if pa.types.is_string(type_):
        return _joined([before + '"', _escaped(values), '"'])
    if pa.types.is_timestamp(type_):
        return _joined([before + '"', iso_times(values), '"'])
    if pa.types.is_list(type_):
        return _lists(values, before)
    if pa.types.is_struct(type_):
        return _objects(values, before)
    texts = values.cast(pa.string())
    if pa.types.is_floating(type_):
        # JSON knows no infinity and no NaN.
        texts = pc.if_else(pc.fill_null(pc.is_finite(values), True), texts, "null")
    return _joined([before, texts]) if before else texts


def _escaped(values: pa.Array) -> pa.Array:
    # Nearly no column holds such a byte, and looking at bytes is far cheaper than matching texts.
    if not _SUSPICIOUS[text_bytes(values)].any():
        return values
    special = pc.fill_null(pc.match_substring_regex(values, _ESCAPED), False)
    named = values.filter(special).dictionary_encode()
    quoted = pa.array([_quoted(text) for text in named.dictionary.to_pylist()], pa.string())
    return pc.replace_with_mask(values, special, quoted.take(named.indices))


def _quoted(text: str) -> str:
    return json_printable(json.dumps(text, ensure_ascii=False)[1:-1])


def _lists(values: pa.Array, before: str) -> pa.Array:
    """A text for each list: the items' texts joined, `null` standing for an item without value."""
    items = pc.fill_null(json_texts(values.flatten()), "null")
    lengths = pc.fill_null(pc.list_value_length(values), -1).to_numpy(zero_copy_only=False)
    joined = pc.binary_join(lists(lengths.astype(np.int64), items, pa.list_(items.type)), ",")
    return _joined([before + "[", joined, "]"])


def _objects(values: pa.Array, before: str) -> pa.Array:
    members = [
        json_texts(part, json.dumps(field.name) + ":")
        for field, part in zip(values.type, values.flatten(), strict=True)
        if part.null_count < len(part)
    ]
    texts = _joined([before + "{", _listed(members, len(values)), "}"])
    return pc.if_else(values.is_valid(), texts, None) if values.null_count else texts
