"""Small files of a table made into larger ones: the same rows, sorted, in new files.

Only files of one hour are joined, and only ones that are small. The files that were joined stay where they
are until no manifest names them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from kwsniff.lake.files import Folders, Stored, rows_of
from kwsniff.lake.place import Place
from kwsniff.lake.stored import TABLES

SMALL = 16 << 20
"""Bytes of a file that counts as small."""
FULL = 32 << 20
FULL_ROWS = 500_000
"""What is joined at a time: a task holds all of it."""


def bundles(files: Iterable[Stored], least: int = 2) -> list[list[Stored]]:
    """Files to be joined, at least `least` each; those that are well as they are are in none."""
    hours: dict[tuple[str, int], list[Stored]] = {}
    for file in files:
        if file.bytes < SMALL and file.rows < FULL_ROWS:
            hours.setdefault((file.table, file.hour), []).append(file)
    found: list[list[Stored]] = []
    for small in hours.values():
        own: list[list[Stored]] = []
        size = rows = 0
        for file in small:
            if not own or size + file.bytes > FULL or rows + file.rows > FULL_ROWS:
                own.append([])
                size = rows = 0
            own[-1].append(file)
            size, rows = size + file.bytes, rows + file.rows
        found += [bundle for bundle in own if len(bundle) >= least]
    return found


def joined(
    bundle: Sequence[Stored], root: Place, below: str, metadata: Mapping[str, Any] | None = None
) -> Stored:
    """The rows of a bundle in one new file in the directory `below` of `root`. Raises OSError."""
    table = TABLES[bundle[0].table]
    whole = pa.Table.from_batches(
        [batch for file in bundle for batch in rows_of(root / file.path, table.schema.names)]
    )
    with Folders(table, root, below, "joined", metadata) as folders:
        whole = whole.cast(table.schema).sort_by([(name, "ascending") for name in table.order])
        folders.add_sorted(bundle[0].hour, whole)
    return folders.stored[0]
