"""Times as text, a column at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Ints = NDArray[np.int64]

WIDTH = len("2026-01-31T12:00:00.123456Z")
_LAYOUT = np.dtype([("second", "V19"), ("point", "S1"), ("milli", "V3"), ("micro", "V3"), ("zone", "S1")])
_DIGITS = np.array([f"{number:03}" for number in range(1000)], "S3").view("V3")
"""Numbers below a thousand as text."""


def iso_times(times: pa.Array, zone: str = "UTC") -> pa.Array:
    """ISO 8601 with six decimals, null where the time is null; in UTC, or in another time zone with the
    offset from UTC behind it.

    `times` is timestamp[us, UTC] of the years 0 to 9999. The digits are laid out as records of bytes, one a
    row, which costs a twentieth of formatting every value.
    """
    if zone != "UTC":
        return _zoned(times, zone)
    micros = times.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    seconds = micros // 1_000_000
    fraction = (micros - seconds * 1_000_000).astype(np.int32)
    thousands = fraction // 1000
    text = np.empty(len(micros), _LAYOUT)
    named, rows = _seconds(seconds)
    text["second"] = named[rows]
    text["point"], text["zone"] = b".", b"Z"
    text["milli"], text["micro"] = _DIGITS[thousands], _DIGITS[fraction - thousands * 1000]
    offsets = np.arange(len(micros) + 1, dtype=np.int32) * WIDTH
    valid = None if times.null_count == 0 else times.is_valid()
    return pa.StringArray.from_buffers(
        len(micros),
        pa.py_buffer(offsets),
        pa.py_buffer(text),
        None if valid is None else _bitmap(valid),
    )


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
    import pyarrow.compute as pc

    local = pc.local_timestamp(times.cast(pa.timestamp("us", tz=zone))).cast(pa.int64())
    minutes = pc.divide(pc.subtract(local, times.cast(pa.int64())), 60_000_000).dictionary_encode()
    offsets = [
        f"{'-' if m < 0 else '+'}{abs(m) // 60:02}:{abs(m) % 60:02}" for m in minutes.dictionary.to_pylist()
    ]
    shown = iso_times(local.cast(times.type))
    behind = pa.array(offsets, pa.string()).take(minutes.indices)
    return pc.binary_join_element_wise(pc.utf8_slice_codeunits(shown, 0, WIDTH - 1), behind, "")


def _bitmap(valid: pa.Array) -> pa.Buffer:
    return pa.py_buffer(np.packbits(valid.to_numpy(zero_copy_only=False), bitorder="little").tobytes())
