"""Events as lines for people: one a row, on a terminal fitted to its width and coloured, plain elsewhere.

A call reads: time, connection, API with version and correlation id, client id, latency, outcome, and what it
was about (topics with partitions, records, group, transaction). Nothing that came from the wire can move the
cursor or forge a line: control characters are shown as escapes.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import IO, Any
from zoneinfo import ZoneInfo

import pyarrow as pa

from kwsniff.output.text import iso_times, printable
from kwsniff.output.units import binary_size, endpoint, plain_duration
from kwsniff.rows.events import EXCHANGE

RED, GREEN, YELLOW, DIM, PLAIN = "\x1b[31m", "\x1b[32m", "\x1b[33m", "\x1b[2m", "\x1b[0m"
STATUS_COLOURS = {
    "ok": GREEN,
    "no_reply_expected": GREEN,
    "error": RED,
    "unanswered": RED,
    "orphan": YELLOW,
    "undecoded": YELLOW,
    "truncated": YELLOW,
}
WIDE = 140
"""Columns of a terminal that has room for the connection before everything else."""
PARTS_SHOWN = 8
API_VERSIONS = 18
"""The call in which a client names its software; the other rows only carry the name on."""
Row = dict[str, Any]
Described = tuple[list[str], str, str, str]
"""What happened, how it went, the colour of that, and what it was about."""


class TextWriter:
    """Writes a line per row; with bodies (`--full`) the decoded JSON follows, indented."""

    def __init__(
        self,
        stream: IO[bytes],
        *,
        width: int | None = None,
        colour: bool = False,
        zone: ZoneInfo | None = None,
    ) -> None:
        self._stream = stream
        self._width = width
        self._colour = colour
        self._zone = zone.key if zone is not None else "UTC"
        self._ends_width = 0
        self._day = ""
        self._shortened = 0
        """Lines that could not show all."""

    @property
    def note(self) -> str:
        """How to see what lines left out."""
        if not self._shortened:
            return ""
        lines = "1 line shows" if self._shortened == 1 else f"{self._shortened:,} lines show"
        return f"{lines} only a part (…, +n, n errors): -f jsonl or csv has all of it, --full the bodies, too"

    def write(self, batch: pa.RecordBatch) -> None:
        """Write the rows of `batch`, which has the columns of EVENTS."""
        lines = [line for row in _rows(batch, self._zone) for line in self._lines(row)]
        self._stream.write("".join(f"{line}\n" for line in lines).encode("utf-8", "backslashreplace"))
        if self._width is not None:
            self._stream.flush()

    def close(self) -> None:
        """Nothing follows the last line."""

    def _lines(self, row: Row) -> Iterator[str]:
        time = _time(row)
        if self._width is not None and time[:10] not in ("", self._day):
            self._day = time[:10]
            yield self._painted(f"-- {self._day} {self._zone}", DIM)
        yield self._line(row, time)
        for name in ("request", "response"):
            if row.get(name) is not None:
                yield from _body(name, row[name])

    def _line(self, row: Row, time: str) -> str:
        ends = " -> ".join(endpoint(row[f"{who}_ip"], row[f"{who}_port"]) for who in ("client", "broker"))
        self._ends_width = max(self._ends_width, len(ends))
        what, outcome, colour, about = _DESCRIBED.get(row["event"], _call)(row)
        before, after = [ends.ljust(self._ends_width), *what], [about]
        if self._width is not None and self._width < WIDE:
            # Where room is short, what happened comes before between whom.
            before, after = what, [about, ends]
        before.insert(
            0, time.ljust(27 if self._zone == "UTC" else 32) if self._width is None else time[11:26].ljust(15)
        )
        start = len("  ".join([*before, ""]))
        line = "  ".join([*before, *filter(None, [outcome, *after])]).rstrip()
        cut = self._width is not None and len(line) > self._width
        if cut:
            line = line[: (self._width or 0) - 1] + "…"
        self._shortened += cut or _abridged(row)
        end = start + len(outcome)
        return line[:start] + self._painted(line[start:end], colour) + line[end:]

    def _painted(self, text: str, colour: str) -> str:
        return f"{colour}{text}{PLAIN}" if self._colour and colour else text


SHOWN = (
    *("event", "client_ip", "client_port", "broker_ip", "broker_port", "api_key", "api", "api_version"),
    *("correlation_id", "client_id", "latency_us", "status", "error", "error_code", "error_count"),
    *("throttle_ms", "acks", "group_id", "member_id", "transactional_id", "topics", "topic_ids"),
    *("partitions", "record_count", "record_bytes", "software_name", "software_version"),
    *(
        "unanswered_because",
        "closed_by",
        "waited_open_us",
        "code",
        "detail",
        "packet",
        "client_packets",
        "broker_packets",
    ),
    *("client_bytes", "broker_bytes", "client_missing_bytes", "broker_missing_bytes", "syn", "fin", "rst"),
    *("handshake_us", "security", "sasl_mechanism", "user", "frames", "request", "response"),
    *("request_bytes", "response_bytes", "tls_version", "tls_sni", "tls_failed", "tls_software"),
)
TIMES = ("time", "request_time", "request_end_time", "response_time", "first_time", "last_time")


def _rows(batch: pa.RecordBatch, zone: str) -> Iterator[Row]:
    columns = {name: iso_times(batch[name], zone).to_pylist() for name in TIMES}
    for name in SHOWN:
        values = batch[name]
        if values.null_count < len(values):
            columns[name] = values.to_pylist()
    missing = dict.fromkeys(SHOWN)
    for values in zip(*columns.values(), strict=True):
        yield missing | dict(zip(columns, values, strict=True))


def _time(row: Row) -> str:
    """When the event happened; an anomaly outside any message has no time of its own."""
    return next((row[name] for name in TIMES if row[name]), "")


def _call(row: Row) -> Described:
    version = "" if row["api_version"] is None else f" v{row['api_version']}"
    number = "" if row["correlation_id"] is None else f" #{row['correlation_id']}"
    name = f"{_api(row)}{version}{number}"
    client = printable(row["client_id"]) if row["client_id"] is not None else "-"
    what = [f"{name:<22}", f"{client:<12}", f"{plain_duration(row['latency_us']):>8}"]
    status = str(row["status"] or "")
    outcome = status if row["error"] is None or not row["error_code"] else f"{status} {row['error']}"
    if row["unanswered_because"] is not None:
        outcome += f" ({_unanswered(row)})"
    return what, outcome, STATUS_COLOURS.get(status, ""), "  ".join(_about(row))


def _unanswered(row: Row) -> str:
    """Why there is no answer, who ended the connection, and how long it had waited."""
    words = [str(row["unanswered_because"])]
    if row["closed_by"] is not None:
        words.append(f"by {row['closed_by']}")
    if row["waited_open_us"] is not None:
        words.append(f"after {plain_duration(row['waited_open_us'])}")
    return " ".join(words)


def _api(row: Row) -> str:
    if row["api"] is not None:
        return str(row["api"])
    return "?" if row["api_key"] is None else f"API {row['api_key']}"


def _about(row: Row) -> Iterator[str]:
    if row["event"] == EXCHANGE:
        yield f"{binary_size(row['request_bytes'])} there"
        if row["response_bytes"] is not None:
            yield f"{binary_size(row['response_bytes'])} back"
    topics = _topics(row)
    if topics:
        yield topics
    if row["record_count"] is not None:
        yield f"{row['record_count']} records"
    if row["record_bytes"]:
        yield binary_size(row["record_bytes"])
    if (row["error_count"] or 0) > 1:
        yield f"{row['error_count']} errors"
    for name, label in (("group_id", "group"), ("transactional_id", "transaction"), ("acks", "acks")):
        if row[name] is not None:
            yield f"{label}={printable(str(row[name]))}"
    if row["throttle_ms"]:
        yield f"throttled {row['throttle_ms']} ms"
    if row["software_name"] is not None and row["api_key"] == API_VERSIONS:
        yield printable(f"{row['software_name']} {row['software_version'] or ''}".rstrip())


def _abridged(row: Row) -> bool:
    """Whether there is more to this call than its line has room for, however wide."""
    if (row["error_count"] or 0) > 1 or len(row["topics"] or row["topic_ids"] or ()) > PARTS_SHOWN:
        return True
    parts = row["partitions"] or ()
    if len(parts) <= PARTS_SHOWN:
        return False
    by_topic = Counter(part["topic"] or part["topic_id"] for part in parts)
    return len(by_topic) > PARTS_SHOWN or max(by_topic.values()) > PARTS_SHOWN


def _topics(row: Row) -> str:
    """`orders[0,2] payments[1]`; a uuid stands where no response gave the name."""
    by_topic: dict[str, list[str]] = {}
    ids = row["topic_ids"] or []
    for index, name in enumerate(row["topics"] or ids):
        given = name if name is not None else (ids[index] if index < len(ids) else None)
        by_topic.setdefault(given or "?", [])
    for part in row["partitions"] or ():
        by_topic.setdefault(part["topic"] or part["topic_id"] or "?", []).append(str(part["partition"]))
    shown = [f"{printable(name)}{_indexes(indexes)}" for name, indexes in by_topic.items()]
    return " ".join(
        [*shown[:PARTS_SHOWN], *([f"+{len(shown) - PARTS_SHOWN}"] if shown[PARTS_SHOWN:] else [])]
    )


def _indexes(indexes: list[str]) -> str:
    if not indexes:
        return ""
    more = f",+{len(indexes) - PARTS_SHOWN}" if len(indexes) > PARTS_SHOWN else ""
    return f"[{','.join(indexes[:PARTS_SHOWN])}{more}]"


def _anomaly(row: Row) -> Described:
    packet = "" if row["packet"] is None else f"packet {row['packet']}  "
    return ["anomaly"], str(row["code"] or ""), YELLOW, packet + printable(row["detail"] or "")


def _connection(row: Row) -> Described:
    return ["connection"], row["security"] or "", DIM, "  ".join(_connection_facts(row))


def _connection_facts(row: Row) -> Iterator[str]:
    for side, arrow in (("client", "sent"), ("broker", "received")):
        if row[f"{side}_bytes"] is not None:
            yield f"{arrow} {binary_size(row[f'{side}_bytes'])} in {row[f'{side}_packets']} packets"
    missing = (row["client_missing_bytes"] or 0) + (row["broker_missing_bytes"] or 0)
    if missing:
        yield f"{binary_size(missing)} missing"
    if row["handshake_us"] is not None:
        yield f"handshake {plain_duration(row['handshake_us'])}"
    flags = [flag.upper() for flag in ("syn", "fin", "rst") if row[flag]]
    if flags:
        yield " ".join(flags)
    for name in ("tls_version", "tls_sni", "tls_software", "tls_failed"):
        if row[name] is not None:
            yield f"{name[4:]}={printable(row[name])}"
    if row["sasl_mechanism"] is not None:
        yield f"SASL {printable(row['sasl_mechanism'])}"
    if row["user"] is not None:
        yield f"user={printable(row['user'])}"


_DESCRIBED = {"call": _call, "anomaly": _anomaly, "connection": _connection}


def _body(name: str, text: str) -> Iterator[str]:
    """The decoded body, indented; json's own escapes keep control characters out."""
    shown = json.dumps(json.loads(text), indent=2)
    yield f"    {name} " + shown.replace("\n", "\n    ")
