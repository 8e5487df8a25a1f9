"""Anomalies in words."""

from __future__ import annotations

import uuid
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kwsniff.binary import DecodeError
from kwsniff.config import Config
from kwsniff.events import MAX_TOPIC
from kwsniff.kernel.codes import BAD_BODY, CODES
from kwsniff.kernel.texts import UUID
from kwsniff.spec.interpret import interpret
from kwsniff.spec.load import catalog

Ints = NDArray[np.int64]
ENDS = ("request", "response")
TLS_ALERTS = range(0x150300, 0x150305)
"""What begins a TLS record with an alert (RFC 8446, 5.1), as the upper bytes of a length."""
NOT_KAFKA = (
    "the first bytes are no Kafka request", "no Kafka frame was found",
    "it begins like a Kafka request, but nothing more bears that out",
)  # fmt: skip
CLOSERS = {
    1 | 4: "the client reset the connection", 2 | 4: "the broker reset the connection",
    1 | 8: "the client closed the connection", 2 | 8: "the broker closed the connection",
}  # fmt: skip
"""Who ended a connection, by `conns.closed_by`."""


class _Note(NamedTuple):
    """What is told of a row of `notes`: its fields of these names."""

    code: int
    a: int
    b: int
    c: int
    client: int
    at: int
    size: int


def details_of(rows: Any, config: Config, machine: Any) -> list[str | None]:
    """What anomalies are about, given as rows of `notes`; nothing if nobody asked for that. Where packets are
    missing there are thousands, and most of them say the same: each is worded once."""
    if config.columns is not None and "detail" not in config.columns:
        return [None] * len(rows)
    first, which = distinct([rows[name] for name in _Note._fields])
    notes = zip(*(rows[name][first].tolist() for name in _Note._fields), strict=True)
    said = [_detail_of(_Note(*fields), config, machine) for fields in notes]
    return [said[at] for at in which.tolist()]


def distinct(columns: list[Ints]) -> tuple[Ints, Ints]:
    """Of rows that are given column by column: one of each that there is, and which of these each row is."""
    order = np.lexsort(columns)
    new = np.zeros(len(order), np.bool_)
    new[:1] = True
    for values in columns:
        new[1:] |= np.diff(values[order]) != 0
    which = np.empty(len(order), np.int64)
    which[order] = np.cumsum(new) - 1
    return order[new], which


def _detail_of(row: _Note, config: Config, machine: Any) -> str:
    code, a, b, c, client, *_ = row
    if code >= BAD_BODY:
        return _body(row, machine)
    name = CODES[code]
    if name == "gap":
        return f"{a} bytes from the {'broker' if b else 'client'}"
    if name == "overlap_differs":
        return "a retransmission differs from the first copy"
    if name == "reorder_limit":
        return f"more than {config.max_reorder_bytes} bytes"
    if name == "time_backwards":
        return f"by {a / 1e9:.3f} s"
    if name == "clocks_differ":
        return f"by {a / 1e9:.6f} s or more"
    if name in ("resynchronised", "frame_size_invalid", "frame_too_large"):
        end = ENDS[0 if (b & 1) == client else 1]
        if name == "resynchronised":
            return f"{a} bytes skipped of the {end} stream"
        if name == "frame_size_invalid" and a >> 8 in TLS_ALERTS:
            return f"a TLS alert in the {end} stream"
        if name == "frame_too_large":
            return f"frame of {a} bytes of the {end} stream"
        return f"length {a}{', but another frame follows' if b >= 2 else ''} of the {end} stream"
    if name == "frame_incomplete":
        ended = f": {CLOSERS[c]} first" if c in CLOSERS else ""
        return f"{ENDS[a & 1]} of {a >> 1} bytes, {b} captured{ended}"
    if name == "buffer_limit":
        return f"{a} bytes let go"
    if name == "not_kafka":
        return NOT_KAFKA[a]
    if name in ("unknown_api", "unknown_version"):
        return f"API key {a}, version {b}"
    if name == "header_malformed":
        return f"{ENDS[a]} of {b} bytes, {c} at hand" if a >= 0 else f"{ENDS[-1 - a]} header of {b} bytes"
    if name == "response_out_of_order":
        return f"correlation id {a} before {b}"
    if name == "outstanding_limit":
        return f"{a} requests in all were given up" if b else f"correlation id {a} was given up"
    if name == "connection_limit":
        return f"silent for {a / 1e9:.1f} s"
    if name == "trailing_bytes":
        return f"{a} bytes after the {ENDS[b]} body"
    if name in ("crc_mismatch", "batch_malformed", "codec_unknown"):
        return _damage(name, a, b, c, machine)
    return f"correlation id {a}"


def _damage(name: str, count: int, topic: int, partition: int, machine: Any) -> str:
    """Which partition's record data is damaged."""
    where = f"{_topic(topic, machine)}-{partition}"
    if name == "crc_mismatch":
        return f"{count} of {where}"
    return f"batch of {where} cut short" if count < 0 else f"record data of {where}"


def _topic(number: int, machine: Any) -> str:
    if number < 0:
        return ""
    kind, data = machine.text(number)
    if kind == UUID:
        return str(uuid.UUID(bytes=data))
    return data.decode("utf-8", "replace")[:MAX_TOPIC]  # type: ignore[no-any-return]


def _body(row: _Note, machine: Any) -> str:
    """Which field of a body could not be read: the interpreter finds it in the same bytes."""
    direction, offset = ENDS[row.a], row.b
    code = CODES[row.code - BAD_BODY]
    if code == "element_limit":
        return direction
    key, version = divmod(row.c, 65536)
    data = machine.data("keep", row.at, row.at + row.size)
    api = catalog().apis.get(key)
    if api is None:
        return f"{direction}, offset {offset}"
    try:
        interpret(api.message(direction).at(version), data, 0, len(data), facts=True)
    except DecodeError as error:
        if error.code != code:  # of a long body only the beginning was kept
            return f"{direction}, offset {offset}"
        where = f"{direction} {error.path}".rstrip()
        return where if offset < 0 else f"{where}, offset {error.offset}"
    return f"{direction}, offset {offset}"
