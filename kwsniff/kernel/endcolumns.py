"""Rows of `ends` as columns of EVENTS: connections that are over."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kwsniff.columns import Columns, column, durations, flags, not_negative, places, spread, timestamps
from kwsniff.kernel.arranged import Arranged
from kwsniff.kernel.drained import Drained

Ints = NDArray[np.int64]


_END_NUMBERS = {
    "client_packets": "client_packets", "broker_packets": "broker_packets", "client_bytes": "client_bytes",
    "broker_bytes": "broker_bytes", "client_missing_bytes": "client_missing",
    "broker_missing_bytes": "broker_missing", "resynchronisations": "resynchronised",
    "client_retransmissions": "client_again", "broker_retransmissions": "broker_again",
    "client_zero_windows": "client_shut", "broker_zero_windows": "broker_shut", "duplicates": "copies",
    "skipped_bytes": "skipped", "frames": "frames", "undecoded_frames": "undecoded",
}  # fmt: skip


CLOSERS = pa.array([None if at not in (5, 6, 9, 10) else
                    f"{'client' if at & 1 else 'broker'}_{'rst' if at & 4 else 'fin'}" for at in range(16)],
                   pa.string())  # fmt: skip


ALERTED = pa.array([None, "client", "broker"], pa.string())
LEVELS = {1: "warning", 2: "fatal"}
ALERTS = {
    0: "close_notify", 10: "unexpected_message", 20: "bad_record_mac", 22: "record_overflow",
    40: "handshake_failure", 42: "bad_certificate", 43: "unsupported_certificate",
    44: "certificate_revoked", 45: "certificate_expired", 46: "certificate_unknown",
    47: "illegal_parameter", 48: "unknown_ca", 49: "access_denied", 50: "decode_error",
    51: "decrypt_error", 70: "protocol_version", 71: "insufficient_security", 80: "internal_error",
    86: "inappropriate_fallback", 90: "user_canceled", 109: "missing_extension",
    110: "unsupported_extension", 112: "unrecognized_name", 113: "bad_certificate_status_response",
    115: "unknown_psk_identity", 116: "certificate_required", 120: "no_application_protocol",
}  # fmt: skip
"""Descriptions of TLS alerts (RFC 8446, 6 and B.2)."""


def _alert(code: int) -> str | None:
    """A TLS alert as the kernel keeps it, in words."""
    if code < 0:
        return None
    level, description = divmod(code, 256)
    return f"{LEVELS[level]} {ALERTS.get(description, 'unknown')} ({description})"


def end_columns(drained: Drained, rows: Arranged) -> Columns:
    """The columns that only connections have."""
    ends = drained.ends
    if not len(ends):
        return {}
    columns = {name: column(ends[field], pa.int64()) for name, field in _END_NUMBERS.items()}
    columns |= {name: timestamps(ends[name]) for name in ("first_time", "last_time")}
    columns |= {name: flags(ends[name] != 0) for name in ("syn", "fin", "rst")}
    columns["handshake_us"] = durations(ends["handshake"], ends["handshake"] < 0)
    columns["sasl_mechanism"] = drained.texts.chosen(ends["mechanism"])
    for name in ("first_packet", "last_packet"):
        columns[name] = not_negative(ends[name], pa.int64())
    columns["tls_alert"] = pa.array([_alert(code) for code in ends["alert"].tolist()], pa.string())
    columns["tls_alert_by"] = ALERTED.take(places(np.where(ends["alert"] < 0, 0, ends["alert_side"] + 1)))
    return {name: spread(values, rows.ends, len(rows)) for name, values in columns.items()}


def closers(codes: Ints) -> pa.Array:
    """Who closed connections, by `closed_by`."""
    return CLOSERS.take(places(codes))
