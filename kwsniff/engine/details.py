"""Anomalies and decisions in words."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kwsniff.config import Config
from kwsniff.engine.drained import distinct
from kwsniff.engine.eventcolumns import connection_id
from kwsniff.engine.machine import RECORDS, Machine
from kwsniff.engine.notes import BAD_BODY, CODES, DECISIONS, OPENED
from kwsniff.engine.tables import OTHER, TLS
from kwsniff.engine.texts import UUID
from kwsniff.net.address import text
from kwsniff.rows.events import MAX_TOPIC, UNANSWERED_REASONS
from kwsniff.spec.binary import DecodeError
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


# What a traced run decided: rows of `decisions` as lines that a person reads.
#
# `kwsniff.engine.notes` says what is noted and when. A connection has an id only once both ends and its first
# packet are known, so each OPENED row names them, and the others bear its number.

FLAGS = ((2, "SYN"), (1, "FIN"), (4, "RST"))
HOLES = (
    "", "the receiver acknowledged them, so the capture lost them", "nothing was captured of the receiver",
    "too much waits behind them", "the connection ends or its content has to be settled",
)  # fmt: skip
"""Why a hole is given up, in the order of `kwsniff.engine.streams`."""
REASONS = (
    "", "connection_closed", "connection_reset", "capture_ended", "gap_in_responses", "limit", "timeout",
)  # fmt: skip
"""UNANSWERED_REASONS in the order of `kwsniff.engine.tables`."""


class Decision(NamedTuple):
    """One line of a trace."""

    connection: str
    """Id of the connection."""
    packet: int
    """Number of the packet at which it was decided: the connection's latest."""
    time: int
    """Its time, in nanoseconds since 1970."""
    end: str
    """`client`, `broker`, or, while that is not known, `end a` or `end b`, a being the lower address."""
    what: str
    """The decision and its reason."""


class Decisions:
    """Takes the decisions of a run out of its tables."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._ids: dict[int, str] = {}
        machine.t.limits[0].trace = 1

    def take(self) -> list[Decision]:
        """What was decided since the last time."""
        run = self._machine.t.run[0]
        rows = self._machine.array("decisions", int(run.decisions)).tolist()
        names = RECORDS["decisions"].names or ()
        found = [self._decision(dict(zip(names, row, strict=True))) for row in rows]
        if run.undecided:
            found.append(Decision("", -1, -1, "", f"{int(run.undecided):,} decisions more, not noted"))
        run.decisions = run.undecided = 0
        return found

    def _decision(self, row: dict[str, int]) -> Decision:
        number = row["number"]
        if row["what"] == OPENED:
            ends = [(row[f"{end}_hi"], row[f"{end}_lo"], row[f"{end}_port"]) for end in "ab"]
            self._ids[number] = connection_id(ends[0], ends[1], row["time"])
            said = " and ".join(f"{text(hi, lo)} port {port}" for hi, lo, port in ends)
            known = "a Kafka port is known" if row["a"] else "no port says that it is Kafka"
            return Decision(self._ids[number], row["packet"], row["time"], "", f"new between {said}: {known}")
        what = WORDS[DECISIONS[row["what"]]](row["a"], row["b"])
        return Decision(self._ids.get(number, "?"), row["packet"], row["time"], _end(row), what)


def _end(row: dict[str, int]) -> str:
    if DECISIONS[row["what"]] in OF_NO_END:
        return ""
    if row["client"] < 0:
        return "end a" if row["side"] == 0 else "end b"
    return "client" if row["side"] == row["client"] else "broker"


OF_NO_END = frozenset(("let_go", "refused", "orphan", "dropped", "unanswered", "limit", "closing"))
"""Decisions on the connection as a whole."""


def _flags(flags: int) -> str:
    return " ".join(name for bit, name in FLAGS if flags & bit)


def _segment(length: int, flags: int) -> str:
    said = _flags(flags)
    return f"segment of {length:,} bytes" + (f", {said}" if said else "")


def _accepted(proven: int, _: int) -> str:
    return "accepted as Kafka, this end is the client" + (
        ": content proved it" if proven else ": by its port, until content proves it"
    )


def _refused(state: int, _: int) -> str:
    return {TLS: "it is TLS: its records are cut", OTHER: "refused: it is no Kafka that can be read"}[state]


def _lost(size: int, invalid: int) -> str:
    why = f"no frame has a length of {size:,}" if invalid else f"{size:,} missing bytes may hold a length"
    return f"framing lost: {why}"


def _request(correlation_id: int, call: int) -> str:
    key, version = call >> 16, call & 0xFFFF
    api = catalog().apis.get(key)
    return f"{api.name if api else f'API {key}'} v{version}, correlation id {correlation_id}"


def _because(reason: int) -> str:
    name = REASONS[reason]
    return f"{name}: {UNANSWERED_REASONS[name]}"


def _paired(correlation_id: int, proven: int) -> str:
    doubt = "" if proven else "; not told, as content has not proved it to be Kafka"
    return f"response {correlation_id} paired with its request{doubt}"


def _dropped(correlation_id: int, proven: int) -> str:
    why = (
        "its id is far from those of the requests" if proven else "nothing proved the connection to be Kafka"
    )
    return f"response {correlation_id} dropped: {why}"


def _limit(count: int, requests: int) -> str:
    what = "requests in flight" if requests == 2 else "bytes held"
    return f"{count:,} {what} given up to keep within a limit of the run"


WORDS: dict[str, Callable[[int, int], str]] = {
    "segment": _segment,
    "waits": lambda ahead, _: f"waits behind a hole of {ahead:,} bytes",
    "out_of_window": lambda ahead, _: f"{ahead:,} bytes ahead: no receiver takes it",
    "seen": lambda size, _: f"{size:,} bytes were seen before",
    "ignored": lambda flag, away: f"{_flags(flag)} {away:,} bytes from where the stream stands: ignored",
    "gap": lambda size, why: f"gap of {size:,} bytes given up: {HOLES[why]}",
    "held": lambda held, _: f"held until the connection is judged, {held:,} bytes by now",
    "let_go": lambda tries, _: f"nothing proves a direction: older half let go, for the {tries}. time",
    "accepted": _accepted,
    "refused": _refused,
    "turned": lambda *_: "content says that this end is the client, against SYN or port: turned round",
    "framing_lost": _lost,
    "framing_found": lambda skipped, _: f"framing found, {skipped:,} bytes skipped",
    "cut_short": lambda size, got: f"frame of {size:,} bytes ends after {got:,}: another begins in it",
    "request": lambda found, call: f"request {_request(found, call)} waits for its response",
    "unasked": lambda found, call: f"request {_request(found, call)} wants no response",
    "paired": _paired,
    "early": lambda found, _: f"response {found} came before its request: it waits",
    "paired_early": lambda found, _: f"response {found}, captured before its request, paired with it",
    "orphan": lambda found, _: f"response {found} told as orphan: its request did not come",
    "dropped": _dropped,
    "unanswered": lambda found, why: f"request {found} told as unanswered: {_because(why)}",
    "limit": _limit,
    "closing": lambda why, _: f"closed, {_because(why)}",
}


def matching(decisions: list[Decision], connection: str) -> list[Decision]:
    """Those of connections whose id begins so, and what is about no single connection."""
    return [each for each in decisions if not each.connection or each.connection.startswith(connection)]
