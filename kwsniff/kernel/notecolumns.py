"""Rows of `notes` as columns of EVENTS: anomalies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kwsniff.columns import (
    Columns,
    not_negative,
    places,
    timestamps,
)
from kwsniff.config import Config
from kwsniff.events import ANOMALY
from kwsniff.kernel.codes import BAD_BODY, CODES
from kwsniff.kernel.details import details_of
from kwsniff.kernel.machine import Machine

Ints = NDArray[np.int64]
Rows = NDArray[Any]
PacketNote = tuple[int, str, str, int, int, int]
"""Place in the input, code, detail, number and time of the packet, number of the capture."""

if TYPE_CHECKING:
    from kwsniff.kernel.bodytexts import Problem


def note_columns(notes: Rows, config: Config, machine: Machine) -> Columns:
    """Columns of anomalies of connections, but for whose they are."""
    columns: Columns = {"event": pa.repeat(ANOMALY, len(notes)).cast(pa.string())}
    codes = notes["code"]
    plain = np.where(codes >= BAD_BODY, codes - BAD_BODY, codes)
    columns["time"] = timestamps(notes["time"])
    columns["code"] = pa.array(CODES).take(places(plain))
    columns["detail"] = pa.array(details_of(notes, config, machine), pa.string())
    columns["packet"] = not_negative(notes["packet"], pa.int64())
    return columns


def packet_note_columns(notes: list[PacketNote]) -> Columns:
    """Columns of anomalies of packets that belong to no connection, but for their captures."""
    _, codes, details, packets, times, _ = zip(*notes, strict=True)
    return {
        "event": pa.repeat(ANOMALY, len(notes)).cast(pa.string()),
        "time": timestamps(np.array(times, np.int64)),
        "code": pa.array(codes, pa.string()),
        "detail": pa.array(details, pa.string()),
        "packet": not_negative(np.array(packets, np.int64), pa.int64()),
    }


def problem_columns(whose: Rows, problems: list[Problem]) -> Columns:
    """Columns of anomalies of bodies that were to be shown, but for whose they are."""
    return {
        "event": pa.repeat(ANOMALY, len(problems)).cast(pa.string()),
        "time": timestamps(whose["time"]),
        "code": pa.array([code for _, code, _ in problems], pa.string()),
        "detail": pa.array([detail for _, _, detail in problems], pa.string()),
        "packet": not_negative(whose["packet"], pa.int64()),
    }
