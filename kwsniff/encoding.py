"""How columns are encoded as Parquet.

Texts repeat and get dictionaries; numbers hardly do, and theirs would cost more than they save. Readers skip
row groups by what statistics say of a column, but not of what is in its lists: those have none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa


def options(schema: pa.Schema) -> dict[str, Any]:
    """What `pyarrow.parquet.ParquetWriter` is to be told."""
    paths = list(_paths(schema))
    return {
        "compression": "zstd",
        "use_dictionary": [path for path, kind in paths if pa.types.is_string(kind)],
        "write_statistics": [path for path, _ in paths if "." not in path],
    }


def _paths(fields: Iterable[pa.Field]) -> Iterator[tuple[str, pa.DataType]]:
    """Path and type of each column that a file has for these fields."""
    for field in fields:
        kind = field.type
        if pa.types.is_list(kind):
            inner: Iterable[pa.Field] = [pa.field("list.element", kind.value_type)]
        elif pa.types.is_struct(kind):
            inner = kind
        else:
            yield field.name, kind
            continue
        yield from ((f"{field.name}.{path}", leaf) for path, leaf in _paths(inner))
