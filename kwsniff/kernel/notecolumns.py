"""Columns of anomalies: of packets that belong to no connection, of connections, and of bodies that were to
be shown."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kwsniff.columns import Columns, not_negative, places, spread
from kwsniff.kernel.arranged import Arranged
from kwsniff.kernel.codes import BAD_BODY, CODES
from kwsniff.kernel.drained import Drained

Ints = NDArray[np.int64]
_CODES = pa.array(CODES, pa.string())


def anomaly_columns(drained: Drained, rows: Arranged) -> Columns:
    """The columns that only anomalies have."""
    if not len(rows.anomalies):
        return {}
    packet_notes, problems = drained.packet_notes, drained.problems
    packets = [
        np.array([each[3] for each in packet_notes], np.int64),
        drained.notes["packet"],
        np.array([int(row["packet"]) for row, _, _ in problems], np.int64),
    ]
    codes = [
        pa.array([each[1] for each in packet_notes], pa.string()),
        _codes(drained.notes["code"]),
        pa.array([code for _, code, _ in problems], pa.string()),
    ]
    details = [
        *(each[2] for each in packet_notes), *drained.details, *(detail for _, _, detail in problems),
    ]  # fmt: skip
    columns = {
        "code": pa.concat_arrays(codes),
        "detail": pa.array(details, pa.string()),
        "packet": not_negative(np.concatenate(packets), pa.int64()),
    }
    return {name: spread(values, rows.anomalies, len(rows)) for name, values in columns.items()}


def _codes(codes: Ints) -> pa.Array:
    return _CODES.take(places(np.where(codes >= BAD_BODY, codes - BAD_BODY, codes)))
