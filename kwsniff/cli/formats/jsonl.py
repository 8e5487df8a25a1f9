"""Events as JSON Lines: one object per event, columns without a value left out.

Theory of operation: no Python object is made per row. Every column becomes a column of JSON texts by Arrow
kernels, nested ones from the inside out; the texts of a row are joined, nulls skipped, and wrapped in braces.
"""

from __future__ import annotations

import functools
import json
import re
from typing import IO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kwsniff.report.times import iso_times
from kwsniff.table import EVENTS

READY = ("request", "response")
"""Columns whose texts are JSON already."""
SLICE_ROWS = 4096
SLICE_BYTES = 64 << 20
"""The text of a slice stays far below the 2 GiB an Arrow string column can hold."""

_ESCAPED = r'["\\\x00-\x1f\x7f-\x{9f}]'
_C1 = re.compile("[\x7f-\x9f]")


class JsonlWriter:
    """Writes each row as an object on a line of its own, in UTF-8."""

    def __init__(self, stream: IO[bytes], columns: list[str] | None = None) -> None:
        self._stream = stream
        self._columns = columns if columns is not None else EVENTS.names

    def write(self, batch: pa.RecordBatch) -> None:
        """Write the rows of `batch`, which has the columns of EVENTS."""
        rows = SLICE_ROWS
        if batch.nbytes > SLICE_BYTES:
            rows = max(1, min(rows, SLICE_ROWS * SLICE_BYTES // batch.nbytes))
        for start in range(0, batch.num_rows, rows):
            self._stream.write(self._lines(batch.slice(start, rows)))

    def _lines(self, batch: pa.RecordBatch) -> bytes:
        members = [
            _member(name, values if name in READY else json_texts(values))
            for name in self._columns
            if (values := batch[name]).null_count < len(values)
        ]
        return _buffer(_wrapped(_joined(members, len(batch)), "{", "}\n"))

    def close(self) -> None:
        """Nothing follows the last line."""


def _member(name: str, texts: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise(json.dumps(name) + ":", texts, "")


def _joined(members: list[pa.Array], rows: int) -> pa.Array:
    if not members:
        return pa.repeat("", rows)
    some = functools.reduce(pc.or_, (member.is_valid() for member in members))
    if not pc.all(some).as_py():
        # Arrow 26 drops a row whose every part is null and skipped, so that later rows would move up.
        members = [pc.if_else(some, members[0], ""), *members[1:]]
    return pc.binary_join_element_wise(*members, ",", null_handling="skip")


def _wrapped(texts: pa.Array, before: str, after: str) -> pa.Array:
    return pc.binary_join_element_wise(before, texts, after, "")


def _buffer(texts: pa.Array) -> bytes:
    """The texts of an array without nulls, one after the other."""
    offsets = np.frombuffer(texts.buffers()[1], dtype=np.int32)
    first, last = int(offsets[texts.offset]), int(offsets[texts.offset + len(texts)])
    return memoryview(texts.buffers()[2])[first:last].tobytes() if last > first else b""


def json_texts(values: pa.Array) -> pa.Array:
    """Each value as JSON text; null stays null."""
    type_ = values.type
    if pa.types.is_string(type_):
        return _strings(values)
    if pa.types.is_timestamp(type_):
        return _wrapped(iso_times(values), '"', '"')
    if pa.types.is_list(type_):
        return _lists(values)
    if pa.types.is_struct(type_):
        return _objects(values)
    texts = values.cast(pa.string())
    if pa.types.is_floating(type_):
        # JSON knows no infinity and no NaN.
        return pc.if_else(pc.fill_null(pc.is_finite(values), True), texts, "null")
    return texts


def _strings(values: pa.Array) -> pa.Array:
    special = pc.fill_null(pc.match_substring_regex(values, _ESCAPED), False)
    if not pc.any(special).as_py():
        return _wrapped(values, '"', '"')
    chosen = values.filter(special).to_pylist()
    escaped = pa.array([_quoted(text)[1:-1] for text in chosen], pa.string())
    return _wrapped(pc.replace_with_mask(values, special, escaped), '"', '"')


def _quoted(text: str) -> str:
    """JSON with every control character escaped, also those above ASCII that a terminal obeys."""
    return _C1.sub(lambda found: f"\\u{ord(found[0]):04x}", json.dumps(text, ensure_ascii=False))


def _lists(values: pa.Array) -> pa.Array:
    """A text for each list: the items' texts joined, `null` standing for an item without value."""
    items = pc.fill_null(json_texts(values.flatten()), "null")
    lengths = pc.fill_null(pc.list_value_length(values), 0).to_numpy(zero_copy_only=False)
    offsets = np.zeros(len(values) + 1, dtype=np.int32)
    np.cumsum(lengths, out=offsets[1:])
    joined = pc.binary_join(pa.ListArray.from_arrays(pa.array(offsets), items), ",")
    return pc.if_else(values.is_valid(), _wrapped(joined, "[", "]"), None)


def _objects(values: pa.Array) -> pa.Array:
    members = [
        _member(field.name, json_texts(part))
        for field, part in zip(values.type, values.flatten(), strict=True)
        if part.null_count < len(part)
    ]
    return pc.if_else(values.is_valid(), _wrapped(_joined(members, len(values)), "{", "}"), None)
