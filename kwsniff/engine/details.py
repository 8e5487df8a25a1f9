"""Anomalies in words, and bodies as JSON."""

from __future__ import annotations

import functools
import uuid
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kwsniff.config import Config
from kwsniff.engine.machine import Machine
from kwsniff.engine.numbers import BAD_BODY, CODES
from kwsniff.engine.texts import UUID
from kwsniff.rows.events import MAX_TOPIC
from kwsniff.spec.binary import DecodeError
from kwsniff.spec.compile import decoder
from kwsniff.spec.interpret import interpret
from kwsniff.spec.load import catalog
from kwsniff.spec.render import render

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


# Bodies as JSON text, for the columns `request` and `response`.
#
# Theory of operation. The kernels keep the bytes of each body under a number, which its call refers to. When
# their table is full, or events are made, all that stand there are made into text by the decoders of
# `kwsniff.spec`; a request's text waits here until its call is told. Most are told soon; the number of those
# that aren't (of connections that turned out to be none of Kafka's) is small, and they are looked for when
# there are twice as many as there were.
#
# Texts that wait are compressed when they take much: bodies that say little can be long as JSON.

DIRECTIONS = ("request", "response")
Problem = tuple[Any, str, str]
"""The row of `bodies`, code and detail of an anomaly."""
MUCH = 32 << 20
"""Bytes of texts that wait above which they are compressed ..."""
LONG = 256
"""... if they are longer than this."""
MANY = 4096
"""Texts that wait before those are looked for that nobody asks for any more."""


Body = tuple[int, int, int, int, int]
"""API, version, direction, and where it begins in the bytes at hand, and its size."""
Rendered = tuple[bytes | None, list[tuple[str, str]]]
"""The text of a body, if it has one, and codes and details of what is wrong inside it."""
Renderer = Callable[[bytes, list[Body]], Iterable[Rendered]]


def rendered(config: Config, data: bytes, bodies: Iterable[Body]) -> Iterator[Rendered]:
    """Bodies as texts."""
    for key, version, direction, at, size in bodies:
        said = DIRECTIONS[direction]
        try:
            body, _ = decoder(key, version, said)(data, at, at + size, config.max_elements)
        except DecodeError as error:
            # What an event takes from it could be read: a text that nothing is taken from is none.
            where = f"{said} {error.path}".rstrip()
            yield None, [(error.code, where if error.offset < 0 else f"{where}, offset {error.offset}")]
            continue
        problems: list[tuple[str, str]] = []
        yield render(key, version, said, body, config, problems).encode(), problems


class Bodies:
    """Texts of bodies by their numbers; see the module's head."""

    def __init__(self, machine: Machine, config: Config) -> None:
        self._machine = machine
        self.renderer: Renderer = functools.partial(rendered, config)
        """What makes texts of bodies: other processes, if there are some."""
        self._texts: dict[int, bytes] = {}
        self._packed: dict[int, bytes] = {}
        self._size = 0
        """Bytes in `_texts`."""
        self._problems: list[Problem] = []
        self._many = MANY

    def waiting(self) -> dict[int, bytes]:
        """Compressed texts of the bodies of requests in flight, for another process to go on with."""
        self._drop()
        return self._packed | {serial: zlib.compress(text, 1) for serial, text in self._texts.items()}

    def go_on(self, waiting: dict[int, bytes]) -> None:
        """Go on with the texts that another process had waiting."""
        self._packed = waiting

    def render(self) -> None:
        """Make texts of all bodies in the table, and empty it."""
        run = self._machine.t.run[0]
        if not run.bodies:
            return
        rows = self._machine.array("bodies", int(run.bodies))
        data = self._machine.data("body_data", 0, int(run.body_bytes))
        run.bodies = run.body_bytes = 0
        names = ("key", "version", "direction", "at", "size")
        given = list(zip(*(rows[name].tolist() for name in names), strict=True))
        serials = rows["serial"].tolist()
        for place, (text, found) in enumerate(self.renderer(data, given)):
            if text is not None:
                self._texts[serials[place]] = text
                self._size += len(text)
            if found and not rows[place]["guessed"]:
                self._problems += [(rows[place].copy(), code, detail) for code, detail in found]

    def problems(self, before: int | None) -> list[Problem]:
        """Take the anomalies found inside bodies: all, or those of packets before a place in the input."""
        if not self._problems:
            return []
        problems = self._problems
        count = len(problems)
        while before is not None and count and problems[count - 1][0]["order"] >= before:
            count -= 1
        self._problems = problems[count:]
        return problems[:count]

    def take(self, serials: NDArray[np.int64]) -> pa.Array:
        """The texts of bodies by their numbers, null for those that are not shown; each can be taken once."""
        return pa.array([self._taken(serial) for serial in serials.tolist()], pa.string())

    def _taken(self, serial: int) -> bytes | None:
        text = self._texts.pop(serial, None)
        if text is not None:
            self._size -= len(text)
            return text
        packed = self._packed.pop(serial, None)
        return None if packed is None else zlib.decompress(packed)

    def put(self, first: int, texts: dict[int, bytes]) -> None:
        """Take texts of requests that wait, which are numbered from `first` on here."""
        self._packed |= {first + serial: text for serial, text in texts.items()}

    def tidy(self) -> None:
        """After everything was told: drop texts that nobody will ask for, and compress others if need be."""
        if len(self._texts) + len(self._packed) > self._many:
            self._drop()
            self._many = max(2 * (len(self._texts) + len(self._packed)), MANY)
        if self._size > MUCH:
            self._pack()

    def _drop(self) -> None:
        requests = self._machine.array("requests", self._machine.used("requests"))
        awaited = set(requests["serial"][requests["conn"] >= 0].tolist())
        self._texts = {serial: text for serial, text in self._texts.items() if serial in awaited}
        self._packed = {serial: text for serial, text in self._packed.items() if serial in awaited}
        self._size = sum(map(len, self._texts.values()))

    def _pack(self) -> None:
        for serial in [serial for serial, text in self._texts.items() if len(text) > LONG]:
            text = self._texts.pop(serial)
            self._size -= len(text)
            self._packed[serial] = zlib.compress(text, 1)
