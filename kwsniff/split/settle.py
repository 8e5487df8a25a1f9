"""Events as splits have them, under their true names."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc

from kwsniff.events import CALL
from kwsniff.split.stitch import Naming

PROVISIONAL = "~"
"""What the ids of guessed connections begin with."""


class Settler:
    """Puts right what splits could not know."""

    def __init__(self, names: Iterable[Naming], wrong: Iterable[str]) -> None:
        self._names = {naming.provisional: naming for naming in names}
        self._wrong = set(wrong)

    def settle(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows that are to be believed, with connection and client software."""
        encoded = batch.column("connection").dictionary_encode()
        given = encoded.dictionary.to_pylist()
        known = [self._names.get(each) for each in given]
        keep = pa.array([self._believed(each) for each in given], pa.bool_())
        if not any(known) and all(keep.to_pylist()):
            return batch
        place = encoded.indices
        true = [
            each if naming is None else naming.connection for each, naming in zip(given, known, strict=True)
        ]
        columns = {"connection": pa.array(true, pa.string()).take(place)}
        untold = pc.and_(pc.equal(batch["event"], CALL), pc.is_null(batch["software_name"]))
        for name in ("software_name", "software_version"):
            told = pa.array([getattr(naming, name, None) for naming in known], pa.string()).take(place)
            columns[name] = pc.if_else(untold, told, batch[name])
        for name, column in columns.items():
            batch = batch.set_column(batch.schema.get_field_index(name), batch.schema.field(name), column)
        return batch.filter(keep.take(place).fill_null(True))

    def _believed(self, connection: str) -> bool:
        known = not connection.startswith(PROVISIONAL) or connection in self._names
        return known and connection not in self._wrong
