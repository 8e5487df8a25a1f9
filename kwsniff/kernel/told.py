"""What the kernels told, as EVENTS: calls, anomalies and connections that are over."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kwsniff.columns import (
    Columns,
    column,
    flags,
    in_order,
    lists,
    microseconds,
    names_of,
    not_negative,
    numbers,
    places,
    record_batch,
    timestamps,
)
from kwsniff.config import Config
from kwsniff.events import ANOMALY, CALL, CONNECTION, MAX_TOPIC, STATUSES
from kwsniff.kernel import tables as k
from kwsniff.kernel.codes import BAD_BODY, CODES
from kwsniff.kernel.details import detail_of
from kwsniff.kernel.durations import time_parts
from kwsniff.kernel.identity import connection_id
from kwsniff.kernel.machine import Machine
from kwsniff.kernel.numbers import NONE
from kwsniff.kernel.strings import Texts
from kwsniff.net.address import text
from kwsniff.schema import ASKED, BROKER, RESOURCE
from kwsniff.spec.load import catalog
from kwsniff.table import EVENTS, PARTITION, TEXTS

Ints = NDArray[np.int64]
Rows = NDArray[Any]
State = tuple[dict[int, str | None], dict[int, bytes]]
"""Names of capture files by their numbers, and texts of bodies by theirs."""
KINDS = 4
"""Anomalies of packets before it, then its calls, anomalies, connections: the order of events of a packet."""
REASONS = pa.array(
    ["", "connection_closed", "connection_reset", "capture_ended", "gap_in_responses", "limit", "timeout"]
)
_STATUSES = pa.array(list(STATUSES))
LISTS = {
    "call_names": ("names",), "call_rows": ("rows", "asked"), "call_resources": ("resources",),
    "call_brokers": ("brokers",),
}  # fmt: skip
"""Tables of what calls list, and the fields of calls that say how much."""
BODIES = frozenset(("request", "response"))
ALWAYS = frozenset(("event", "time", "status", "request_time", "response_time"))
"""Columns of calls that are filled whatever was asked for: the summary of a run needs them."""


if TYPE_CHECKING:
    from kwsniff.kernel.bodytexts import Bodies, Problem


class Told:
    """Makes EVENTS of what stands in the tables of a machine."""

    def __init__(self, machine: Machine, config: Config) -> None:
        self._machine, self._config = machine, config
        self._wanted = call_columns(config)
        self._texts = Texts(machine)
        self._known: dict[int, tuple[Any, ...]] = {}
        """Of connections by number: id, client, broker, capture."""
        self.captures: list[str | None] = []
        self.keys = self.ranks = self.numbers = np.zeros(0, np.int64)
        """Of the rows of the latest batch: places in the input (see `KINDS`) that ascend, places among those
        of the same key, and numbers of connections, 0 for none."""
        self._lists_of: NDArray[np.bool_] | None = None
        """The calls in the tables whose lists are wanted, None for all."""
        self._packet_notes: list[tuple[int, str, str, int, int, int]] = []
        self.bodies = _bodies(machine, config) if config.full else None

    def state(self) -> State:
        """What the tables do not hold, for another process to go on with."""
        return self._captures_at_hand(), {} if self.bodies is None else self.bodies.waiting()

    def go_on(self, state: State) -> None:
        """Go on with the tables, which have been restored, and the state of another process."""
        captures, bodies = state
        self.captures = [*captures.values()]
        moved = {old: new for new, old in enumerate(captures)}
        for conn in self._machine.t.conns[: self._machine.used("conns")]:
            if conn.number:
                conn.capture = moved[int(conn.capture)]
        if self.bodies is not None:
            self.bodies.go_on(bodies)

    def _captures_at_hand(self) -> dict[int, str | None]:
        """Names of the capture files that connections were last seen in, by number."""
        machine = self._machine
        conns = machine.array("conns", machine.used("conns"))
        wanted = {*conns["capture"][conns["number"] != 0].tolist(), len(self.captures) - 1}
        return {number: self.captures[number] for number in sorted(wanted) if number >= 0}

    def capture(self, name: str | None) -> int:
        """The number of a capture file."""
        if not self.captures or self.captures[-1] != name:
            self.captures.append(name)
        return len(self.captures) - 1

    def note_packets(self, notes: list[tuple[int, str, str, int, int]], first: int, capture: int) -> None:
        """Add anomalies of packets that belong to no connection."""
        self._packet_notes += [
            (first + order, code, detail, packet, time, capture)
            for order, code, detail, packet, time in notes
        ]

    def take(self, everything: bool) -> pa.RecordBatch | None:
        """An EVENTS batch of all that was told, or of what packets before the one at hand settled."""
        machine = self._machine
        run = machine.t.run[0]
        self.show()
        calls = machine.array("calls", int(run.calls))
        notes = machine.array("notes", int(run.notes))
        ends = machine.array("ends", int(run.ends))
        counts = [len(calls), len(notes), len(ends)]
        if not everything:
            now = int(run.order)
            before = [int(np.searchsorted(rows["order"], now)) for rows in (calls, notes, ends)]
            counts = before
        calls, notes, ends = calls[: counts[0]], notes[: counts[1]], ends[: counts[2]]
        batch = self._batch(*self._believed(calls, notes), ends, everything)
        self._forget(calls, counts)
        if everything:
            run.packet_bytes = 0
            if self.bodies is not None:
                self.bodies.tidy()
        run.told_bytes = run.packet_bytes
        self._forget_kept(int(run.notes))
        return batch

    def _believed(self, calls: Rows, notes: Rows) -> tuple[Rows, Rows]:
        """Without what belongs to connections whose state is not known, see `kwsniff.kernel.leaving`."""
        known = calls["left"] != k.HEAD
        self._lists_of = None if known.all() else known
        return (calls if known.all() else calls[known]), notes[notes["left"] != k.HEAD]

    def shown(self, ends: Rows) -> Rows:
        """The connections that have rows of their own: not those that go on from before a part."""
        return ends[(ends["known"] != 0) & (ends["left"] == 0)]

    def names(self, texts: Ints) -> list[str | None]:
        """Texts by their numbers."""
        return self._texts.chosen(texts).to_pylist()  # type: ignore[no-any-return]

    def ended(self, ends: Rows) -> pa.RecordBatch:
        """EVENTS of connections that are over, given as rows of `ends`."""
        columns = self._end_columns(ends) | self._identity(ends, ends)
        for number in ends["number"].tolist():
            self._known.pop(number, None)
        return record_batch(columns, len(ends), EVENTS)

    def forget_texts(self) -> None:
        """The numbers of texts have changed."""
        self._texts.forget()

    def show(self) -> None:
        """Make the bodies that were kept into texts, and empty their tables."""
        if self.bodies is not None:
            self.bodies.render()

    def _batch(self, calls: Rows, notes: Rows, ends: Rows, everything: bool) -> pa.RecordBatch | None:
        now = int(self._machine.t.run[0].order)
        packet_notes = [each for each in self._packet_notes if each[0] <= now]
        self._packet_notes = self._packet_notes[len(packet_notes) :]
        parts: list[tuple[Columns, int]] = []
        keys: list[Ints] = []
        own: list[Rows] = []
        if len(calls):
            parts.append((self._call_columns(calls) | self._identity(calls, ends), len(calls)))
            keys.append(calls["order"] * KINDS + 1)
            own.append(calls)
        if len(packet_notes):
            parts.append((self._packet_note_columns(packet_notes), len(packet_notes)))
            keys.append(np.array([each[0] for each in packet_notes], np.int64) * KINDS)
            own.append(np.full(len(packet_notes), np.array((k.OWN, 0), _OWNED)))
        if len(notes):
            parts.append((self._note_columns(notes) | self._identity(notes, ends), len(notes)))
            keys.append(notes["order"] * KINDS + 2)
            own.append(notes)
        problems = [] if self.bodies is None else self.bodies.problems(None if everything else now)
        problems = [each for each in problems if each[0]["left"] != k.HEAD]
        if problems:
            whose = np.array([each[0] for each in problems], self._machine.dtype("bodies"))
            parts.append((_problem_columns(whose, problems) | self._identity(whose, ends), len(problems)))
            keys.append(whose["order"] * KINDS + 2)
            own.append(whose)
        shown = self.shown(ends)
        if len(shown):
            parts.append((self._end_columns(shown) | self._identity(shown, ends), len(shown)))
            keys.append(shown["order"] * KINDS + 3)
            own.append(shown)
        for number in ends["number"].tolist():
            self._known.pop(number, None)
        if not parts:
            return None
        self.keys = np.concatenate(keys)
        self.ranks = np.concatenate([each["rank"] for each in own])
        self.numbers = np.concatenate([each["number"] for each in own])
        own_rows = bool((self.ranks >= k.OWN).all())
        if len(parts) == 1 and own_rows:
            return record_batch(*parts[0], EVENTS)
        if own_rows:
            order = np.argsort(self.keys, kind="stable")
        else:  # of connections that came to their places at the same time, the older one is first
            order = np.lexsort((self.numbers, self.ranks, self.keys))
        self.keys, self.ranks, self.numbers = self.keys[order], self.ranks[order], self.numbers[order]
        return record_batch(in_order(parts, order, EVENTS), len(order), EVENTS)

    def _forget(self, calls: Rows, counts: list[int]) -> None:
        """Take rows out of the tables, those of the packet at hand stay."""
        machine = self._machine
        run, store = machine.t.run[0], machine.t.store[0]
        gone = {
            name: sum(int(np.maximum(calls[field], 0).sum()) for field in fields)
            for name, fields in LISTS.items()
        }
        for name, count in [*zip(("calls", "notes", "ends"), counts, strict=True), *gone.items()]:
            owner = store if name in LISTS else run
            left = int(getattr(owner, name)) - count
            if count and left:
                table = getattr(machine.t, name)
                if machine.compiled:
                    table[:left] = table[count : count + left].copy()
                else:
                    table[: count + left] = [*table[count : count + left], *table[:count]]
            setattr(owner, name, left)

    def _forget_kept(self, left: int) -> None:
        """Move the bytes that the notes which are left are about to the front."""
        machine = self._machine
        run = machine.t.run[0]
        rows = machine.array("notes", left)
        used = np.flatnonzero(rows["size"])
        if not len(used):
            run.kept = 0
            return
        first = int(rows["at"][used].min())
        kept = int(run.kept) - first
        data = machine.data("keep", first, first + kept)
        machine.t.keep[:kept] = np.frombuffer(data, np.uint8) if machine.compiled else data
        for row in used.tolist():
            machine.t.notes[row].at -= first
        run.kept = kept

    # Whose

    def _identity(self, rows: Rows, ends: Rows) -> Columns:
        numbers, first, index = np.unique(rows["number"], return_index=True, return_inverse=True)
        ended = {int(row["number"]): row for row in ends}
        conns = dict(zip(numbers.tolist(), rows["conn"][first].tolist(), strict=True))
        found = [self._whose(number, conn, ended) for number, conn in conns.items()]
        names = ["connection", "client_ip", "client_port", "broker_ip", "broker_port"]
        taken = places(index)
        columns = {
            name: pa.array(values, EVENTS.field(name).type).take(taken)
            for name, values in zip(names, zip(*found, strict=True), strict=True)
        }
        if "capture" in (rows.dtype.names or ()):
            columns["capture"] = self._capture_names(rows["capture"])
        else:
            captures = [self._capture_of(number, conns[number], ended) for number in numbers.tolist()]
            columns["capture"] = self._capture_names(np.array(captures, np.int64)).take(taken)
        return columns

    def _capture_names(self, numbers: Ints) -> pa.Array:
        return pa.array(self.captures, pa.string()).take(places(numbers))

    def _capture_of(self, number: int, conn: int, ended: dict[int, Any]) -> int:
        row = ended.get(number)
        return int(self._machine.t.conns[conn].capture if row is None else row["capture"])

    def _whose(self, number: int, conn: int, ended: dict[int, Any]) -> tuple[Any, ...]:
        over = ended.get(number)
        known = self._known.get(number)
        client = int(self._machine.t.conns[conn].client if over is None else over["client"])
        if known is not None and known[0] == client:
            return known[1]  # type: ignore[no-any-return]
        row = self._machine.array("conns", conn + 1, conn)[0] if over is None else over
        values = {name: int(row[name]) for name in _WHOSE}
        ends = (
            values["a_hi"],
            values["a_lo"],
            values["a_port"],
            values["b_hi"],
            values["b_lo"],
            values["b_port"],
        )
        said = connection_id(ends[:3], ends[3:], values["first_time"])
        a, b = (text(ends[0], ends[1]), ends[2]), (text(ends[3], ends[4]), ends[5])
        made = (said, *b, *a) if client == 1 else (said, *a, *b)
        self._known[number] = (client, made)
        return made

    # Calls

    def _call_columns(self, calls: Rows) -> Columns:
        wanted, count = self._wanted, len(calls)
        columns: Columns = {"event": pa.repeat(CALL, count).cast(pa.string())}
        for name, field in _TIMES.items():
            if name in wanted:
                columns[name] = timestamps(calls[field])
        columns["time"] = timestamps(
            np.where(calls["first_time"] >= 0, calls["first_time"], calls["response_first"])
        )
        for name, begin, end in _DURATIONS:
            if name in wanted:
                columns[name] = microseconds(calls[begin], calls[end])
        columns |= {name: values for name, values in time_parts(calls).items() if name in wanted}
        columns["status"] = _STATUSES.take(places(calls["status"]))
        for name, field in _NUMBERS.items():
            if name in wanted:
                columns[name] = numbers(calls[field], EVENTS.field(name).type)
        for name, field in _NOT_NEGATIVE.items():
            if name in wanted:
                columns[name] = not_negative(calls[field], EVENTS.field(name).type)
        for name, field in _TEXTS.items():
            if name in wanted:
                columns[name] = self._texts.chosen(calls[field])
        makers: dict[str, Callable[[], pa.Array]] = {
            "api": lambda: names_of(calls["key"], _api_name),
            "error": lambda: names_of(numbers(calls["error"], pa.int32()), _error_name),
            "unanswered_because": lambda: _reasons(calls["because"]),
            "topics": lambda: self._topics(calls),
            "topic_ids": lambda: self._topic_ids(calls),
            "partitions": lambda: self._partitions(calls),
            "resources": lambda: self._resources(calls),
            "asked": lambda: self._asked(calls),
            "advertised": lambda: self._advertised(calls),
            "closed_by": lambda: _closers(calls["closed_by"]),
            "security": lambda: pa.repeat("plaintext", count).cast(pa.string()),
        }
        if self.bodies is not None:
            for name in BODIES:
                texts = self.bodies.take(calls[f"{name}_body"])
                if name in wanted:
                    columns[name] = texts
        for name in wanted.intersection(makers):
            columns[name] = makers[name]()
        return columns

    def _list_rows(self, name: str, lengths: Ints) -> Rows:
        if self._lists_of is None:
            return self._machine.array(name, int(np.maximum(lengths, 0).sum()))
        calls = self._machine.array("calls", len(self._lists_of))
        every = sum(np.maximum(calls[field], 0) for field in LISTS[name])
        return self._machine.array(name, int(np.sum(every)))[np.repeat(self._lists_of, every)]

    def _topics(self, calls: Rows) -> pa.Array:
        rows = self._list_rows("call_names", calls["names"])
        return lists(
            np.where(calls["names"] > 0, calls["names"], -1), self._texts.chosen(rows["name"]), TEXTS
        )

    def _topic_ids(self, calls: Rows) -> pa.Array:
        rows = self._list_rows("call_names", calls["names"])
        named = calls["uuids"] != 0
        of = np.repeat(named, np.maximum(calls["names"], 0))
        lengths = np.where(named, calls["names"], -1)
        return lists(lengths, self._texts.uuids(rows["uuid"][of]), TEXTS)

    def _partitions(self, calls: Rows) -> pa.Array:
        rows = self._partition_rows(calls, asked=False)
        fields = list(PARTITION)
        arrays = []
        for field in fields:
            if field.name == "topic":
                arrays.append(self._texts.chosen(rows["name"], MAX_TOPIC))
            elif field.name == "topic_id":
                arrays.append(self._texts.uuids(rows["uuid"]))
            elif field.name == "codec":
                arrays.append(_codecs(rows["codecs"]))
            else:
                arrays.append(numbers(rows[_ROW_FIELDS[field.name]], field.type))
        values = pa.StructArray.from_arrays(arrays, fields=fields)
        return lists(np.where(calls["rows"] > 0, calls["rows"], -1), values, pa.list_(PARTITION))

    def _partition_rows(self, calls: Rows, *, asked: bool) -> Rows:
        """Of the calls' partitions those that the response, or only the request, names."""
        rows = self._list_rows("call_rows", np.maximum(calls["rows"], 0) + calls["asked"])
        if not calls["asked"].any():
            return rows[:0] if asked else rows
        turns = np.stack([np.maximum(calls["rows"], 0), calls["asked"]], axis=1).reshape(-1)
        which = np.repeat(np.tile([False, True], len(calls)), turns)
        return rows[which if asked else ~which]

    def _asked(self, calls: Rows) -> pa.Array:
        rows = self._partition_rows(calls, asked=True)
        makers: dict[str, pa.Array] = {
            "topic": self._texts.chosen(rows["name"], MAX_TOPIC),
            "topic_id": self._texts.uuids(rows["uuid"]),
            "partition": numbers(rows["partition"], pa.int32()),
            "fetch_offset": numbers(rows["fetch_offset"], pa.int64()),
        }
        fields = list(ASKED)
        values = pa.StructArray.from_arrays([makers[field.name] for field in fields], fields=fields)
        return lists(np.where(calls["asked"] > 0, calls["asked"], -1), values, pa.list_(ASKED))

    def _advertised(self, calls: Rows) -> pa.Array:
        rows = self._list_rows("call_brokers", calls["brokers"])
        makers: dict[str, pa.Array] = {
            "node_id": numbers(rows["node"], pa.int32()),
            "host": self._texts.chosen(rows["host"]),
            "port": numbers(rows["port"], pa.int32()),
        }
        fields = list(BROKER)
        values = pa.StructArray.from_arrays([makers[field.name] for field in fields], fields=fields)
        return lists(np.where(calls["brokers"] > 0, calls["brokers"], -1), values, pa.list_(BROKER))

    def _resources(self, calls: Rows) -> pa.Array:
        rows = self._list_rows("call_resources", calls["resources"])
        makers: dict[str, pa.Array] = {
            "type": _resource_types(rows["type"]),
            "name": self._texts.chosen(rows["name"]),
            "error_code": numbers(rows["error"], pa.int32()),
            "detail": self._texts.chosen(rows["detail"]),
        }
        fields = list(RESOURCE)
        values = pa.StructArray.from_arrays([makers[field.name] for field in fields], fields=fields)
        return lists(np.where(calls["resources"] > 0, calls["resources"], -1), values, pa.list_(RESOURCE))

    # Anomalies

    def _note_columns(self, notes: Rows) -> Columns:
        columns: Columns = {"event": pa.repeat(ANOMALY, len(notes)).cast(pa.string())}
        codes = notes["code"]
        plain = np.where(codes >= BAD_BODY, codes - BAD_BODY, codes)
        columns["time"] = timestamps(notes["time"])
        columns["code"] = pa.array(CODES).take(places(plain))
        columns["detail"] = pa.array(
            [detail_of(row, self._config, self._machine) for row in notes], pa.string()
        )
        columns["packet"] = not_negative(notes["packet"], pa.int64())
        return columns

    def _packet_note_columns(self, notes: list[tuple[int, str, str, int, int, int]]) -> Columns:
        _, codes, details, packets, times, captures = zip(*notes, strict=True)
        return {
            "event": pa.repeat(ANOMALY, len(notes)).cast(pa.string()),
            "time": timestamps(np.array(times, np.int64)),
            "code": pa.array(codes, pa.string()),
            "detail": pa.array(details, pa.string()),
            "packet": not_negative(np.array(packets, np.int64), pa.int64()),
            "capture": self._capture_names(np.array(captures, np.int64)),
        }

    # Connections

    def _end_columns(self, ends: Rows) -> Columns:
        columns: Columns = {"event": pa.repeat(CONNECTION, len(ends)).cast(pa.string())}
        for name in ("first_time", "last_time"):
            columns[name] = timestamps(ends[name])
        columns["time"] = columns["first_time"]
        for name, field in _END_NUMBERS.items():
            columns[name] = column(ends[field].copy(), EVENTS.field(name).type)
        for name in ("syn", "fin", "rst"):
            columns[name] = flags(ends[name] != 0)
        columns["handshake_us"] = column(ends["handshake"] / 1e3, pa.float64(), ends["handshake"] < 0)
        states = {k.KAFKA: "plaintext", k.TLS: "tls"}
        columns["security"] = pa.array([states.get(state, "unknown") for state in ends["state"].tolist()])
        columns["closed_by"] = _closers(ends["closed_by"])
        columns["rtt_us"] = columns["handshake_us"]
        columns["sasl_mechanism"] = self._texts.chosen(ends["mechanism"])
        columns["user"] = self._texts.chosen(ends["user"])
        columns["client_id"] = self._texts.chosen(ends["client_id"])
        for name in ("first_packet", "last_packet"):
            columns[name] = not_negative(ends[name], pa.int64())
        columns["tls_alert"] = pa.array([_alert(code) for code in ends["alert"].tolist()], pa.string())
        columns["tls_alert_by"] = ALERTED.take(places(np.where(ends["alert"] < 0, 0, ends["alert_side"] + 1)))
        return columns


def _bodies(machine: Machine, config: Config) -> Bodies:
    # What decodes bodies to show them is loaded when they are asked for.
    from kwsniff.kernel.bodytexts import Bodies

    return Bodies(machine, config)


def _problem_columns(whose: Rows, problems: list[Problem]) -> Columns:
    return {
        "event": pa.repeat(ANOMALY, len(problems)).cast(pa.string()),
        "time": timestamps(whose["time"]),
        "code": pa.array([code for _, code, _ in problems], pa.string()),
        "detail": pa.array([detail for _, _, detail in problems], pa.string()),
        "packet": not_negative(whose["packet"], pa.int64()),
    }


_OWNED = [("rank", np.int64), ("number", np.int64)]
_WHOSE = ("a_hi", "a_lo", "b_hi", "b_lo", "a_port", "b_port", "first_time", "client")
_TIMES = {
    "request_time": "first_time", "request_end_time": "last_time",
    "response_time": "response_first", "response_end_time": "response_last",
}  # fmt: skip
_DURATIONS = (
    ("latency_us", "last_time", "response_first"),
    ("duration_us", "first_time", "response_last"),
)
_NUMBERS = {
    "correlation_id": "correlation_id", "request_bytes": "size", "response_bytes": "response_size",
    "error_code": "error", "error_count": "errors", "throttle_ms": "throttle", "acks": "acks",
    "max_wait_ms": "max_wait", "record_count": "records", "record_bytes": "record_bytes",
    "in_flight": "in_flight", "generation": "generation",
    "session_id": "session_id", "session_epoch": "session_epoch",
}  # fmt: skip
_NOT_NEGATIVE = {
    "api_key": "key", "api_version": "version", "request_packet": "packet",
    "response_packet": "response_packet",
}  # fmt: skip
_TEXTS = {
    "client_id": "client_id", "group_id": "group", "member_id": "member",
    "transactional_id": "transactional_id", "software_name": "software",
    "software_version": "software_version", "group_protocol": "group_protocol", "reason": "reason",
    "rack": "rack", "user": "user",
}  # fmt: skip
_ROW_FIELDS = {
    "partition": "partition", "error_code": "error", "base_offset": "base_offset", "records": "records",
    "bytes": "bytes", "high_watermark": "high_watermark", "log_start_offset": "log_start_offset",
    "last_stable_offset": "last_stable_offset", "fetch_offset": "fetch_offset",
    "committed_offset": "committed_offset", "leader_epoch": "leader_epoch",
}  # fmt: skip
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


ALERTED = pa.array([None, "client", "broker"])
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


def _closers(codes: Ints) -> pa.Array:
    return CLOSERS.take(places(codes))


def _resource_types(values: Ints) -> pa.Array:
    """Types of resources by name (KIP-133, KIP-231), others by number."""
    distinct, index = np.unique(values, return_inverse=True)
    named = [None if value == NONE else RESOURCES.get(value, str(value)) for value in distinct.tolist()]
    return pa.array(named, pa.string()).take(places(index))


RESOURCES = {0: "unknown", 1: "any", 2: "topic", 3: "group", 4: "broker", 5: "transactional_id",
             6: "delegation_token", 7: "user", 8: "broker_logger", 16: "client_metrics",
             32: "group"}  # fmt: skip


def call_columns(config: Config) -> frozenset[str]:
    """The columns of calls to fill."""
    every = frozenset(EVENTS.names) if config.full else frozenset(EVENTS.names) - BODIES
    return every if config.columns is None else every & (config.columns | ALWAYS)


def _reasons(because: Ints) -> pa.Array:
    return REASONS.take(places(because, because == 0))


def _codecs(codes: Ints) -> pa.Array:
    from kwsniff.wire.records import CODEC_NAMES  # which loads what computes CRCs

    distinct, index = np.unique(codes, return_inverse=True)
    names = [
        "+".join(CODEC_NAMES[(code >> 4 * at & 15) - 1] for at in range(8) if code >> 4 * at & 15) or None
        for code in distinct.tolist()
    ]
    return pa.array(names, pa.string()).take(places(index))


def _api_name(key: int) -> str | None:
    api = catalog().apis.get(key)
    return api.name if api else None


def _error_name(code: int) -> str:
    return catalog().error(code).name
