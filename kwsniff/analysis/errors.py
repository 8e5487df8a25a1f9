"""Every error a broker answered with: which code, to whom, in which API, for which topic and partition, when;
and which of them need somebody's attention.

A response has an error code of its own, or one for each partition or resource. EVENTS names the first of a
response, those of its partitions and of its resources; what else a body holds is found in the body itself
(`--full`), and without it counted as not told.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from kwsniff.analysis.rule import Context, Finding, Rule, command, evidence, summed
from kwsniff.analysis.tabular import (
    AnswerField,
    AnswerTable,
    Row,
    Seen,
    calls_of,
    columns,
    names_of,
    topics_of,
)
from kwsniff.count.codes import Coded
from kwsniff.count.eventrows import EventBatch, EventRows, Picked, texts
from kwsniff.count.keyed import Key
from kwsniff.count.tally import Entry, Tally
from kwsniff.count.topics import elements
from kwsniff.output.units import client, counted, duration, listed, many, name
from kwsniff.rows import lists
from kwsniff.rows.columns import Mask
from kwsniff.spec.load import catalog

NEEDS = columns(
    """
    event time client_ip client_id api api_key error_code error_count topics topic_ids partitions
    resources broker_ip broker_port request_packet capture response_packet group_id transactional_id
    """
)
SLOTS = 10
"""Parts of the covered time that `over_time` counts in."""
BARS = " ▁▂▃▄▅▆▇█"
MAX_ROWS = 100_000
TOPIC_NAMES = ("topic", "name", "topic_name")
PARTITIONS = ("partition_index", "partition", "index")


Code = tuple[int, str | None, int | None, str | None]
"""An error code, the topic, partition, or what else it is about."""


class ErrorKey(NamedTuple):
    """What is told apart."""

    error_code: int
    api: str | None
    client: str | None
    address: str | None
    topic: str | None
    partition: int | None
    about: str | None


@dataclass
class SeenError(Seen):
    """How often one error was seen, and when."""

    count: int = 0
    calls: int = 0
    first_packet: int | None = None
    seconds: dict[int, int] = field(default_factory=dict)
    """Errors by second since 1970: at most an hour of them, by minute after that."""

    def add(self, row: Row, *, first: bool) -> None:
        """Note an error in a call; `first`: of this call."""
        self.count += 1
        self.calls += first
        self.see(row["time"], row["time"])
        if row["time"] is not None:
            second = int(row["time"].timestamp())
            self.seconds[second] = self.seconds.get(second, 0) + 1
            if len(self.seconds) > 3600:
                by_minute: dict[int, int] = {}
                for second, count in self.seconds.items():
                    by_minute[second - second % 60] = by_minute.get(second - second % 60, 0) + count
                self.seconds = by_minute
        if self.first_packet is None:
            self.first_packet = row["response_packet"]

    def bars(self, begin: datetime, end: datetime) -> str:
        """How the errors spread over some time, a character for each tenth of it."""
        first, last = begin.timestamp(), end.timestamp()
        slots = [0] * SLOTS
        for second, count in self.seconds.items():
            at = (second - first) / max(last - first, 1.0)
            slots[min(max(int(at * SLOTS), 0), SLOTS - 1)] += count
        greatest = max(slots)
        return "".join(BARS[-(-count * (len(BARS) - 1) // greatest)] if greatest else " " for count in slots)


class Errors:
    """Takes EVENTS and gives the errors."""

    def __init__(self, *, full: bool = False) -> None:
        self.needs = NEEDS | {"response"} if full else NEEDS
        self._full = full
        self._seen: dict[ErrorKey, SeenError] = {}
        self._untold = self._beyond = self._calls = self._failed = 0
        self._covered = Seen()

    def take(self, batch: pa.RecordBatch) -> None:
        calls = calls_of(batch)
        self._calls += len(calls)
        self._covered.see(*pc.min_max(calls["time"]).as_py().values())
        failed = pc.fill_null(pc.not_equal(calls["error_code"], 0), False)
        for row in calls.filter(failed).select(sorted(self.needs)).to_pylist():
            self._failed += 1
            self._take_call(row)

    def _take_call(self, row: Row) -> None:
        found = list(self._codes(row))
        self._untold += max((row["error_count"] or 1) - len(found), 0)
        told: set[ErrorKey] = set()
        for code, topic, partition, about in found:
            key = ErrorKey(code, row["api"], row["client_id"], row["client_ip"], topic, partition, about)
            if key not in self._seen and len(self._seen) >= MAX_ROWS:
                self._beyond += 1
            else:
                self._seen.setdefault(key, SeenError()).add(row, first=key not in told)
            told.add(key)

    def _codes(self, row: Row) -> list[Code]:
        """The codes of one response, each with topic, partition and what else it is about."""
        if self._full and row.get("response"):
            found = list(_in_body(orjson.loads(row["response"]), None, names_of(row)))
            if found:
                return found
        parts, resources = failed_items(row)
        if parts or resources:
            told: list[Code] = [
                (part["error_code"], part["topic"] or part["topic_id"], part["partition"], None)
                for part in parts
            ]
            return told + [_of_resource(row, item) for item in resources]
        topics = topics_of(row)
        return [(row["error_code"], topics[0] if len(topics) == 1 else None, None, _about(row))]

    def tables(self) -> list[AnswerTable]:
        """Errors, most frequent first; and the sum of each code."""
        rows: list[Row] = [self._row(key, seen) for key, seen in self._seen.items()]
        rows.sort(key=lambda row: (-row["count"], row["error"], str(row["client"]), str(row["topic"])))
        return [
            AnswerTable("errors", f"Errors in {self._failed:,} of {self._calls:,} calls", ERRORS, rows),
            AnswerTable("codes", "By code", CODES, list(self._codes_in_all())),
        ]

    def notes(self) -> list[str]:
        found = []
        if self._untold:
            found.append(
                f"{self._untold:,} more error codes stand in these responses; --full says what they are about"
            )
        if self._beyond:
            found.append(f"{self._beyond:,} errors beyond the first {MAX_ROWS:,} different ones are not told")
        return found

    def _row(self, key: ErrorKey, seen: SeenError) -> Row:
        begin, end = self._covered.first_time, self._covered.last_time
        bars = seen.bars(begin, end) if begin is not None and end is not None else ""
        return {**key._asdict(), **vars(seen), **_named_code(key.error_code), "over_time": bars}

    def _codes_in_all(self) -> Iterator[Row]:
        sums: dict[int, list[tuple[ErrorKey, SeenError]]] = {}
        for key, seen in self._seen.items():
            sums.setdefault(key.error_code, []).append((key, seen))
        for code, found in sorted(sums.items(), key=lambda item: -sum(seen.count for _, seen in item[1])):
            yield {
                **_named_code(code), "count": sum(seen.count for _, seen in found),
                "clients": len({(key.client, key.address) for key, _ in found}),
                "topics": len({key.topic for key, _ in found if key.topic}),
            }  # fmt: skip


def _named_code(code: int) -> Row:
    error = catalog().error(code)
    return {"error": error.name, "error_code": code, "retriable": error.retriable, "meaning": error.doc}


def failed_items(call: Row) -> tuple[list[Row], list[Row]]:
    """The partitions that an answer says failed; where it names none, the resources."""
    parts = [part for part in call["partitions"] or () if part["error_code"]]
    return parts, [] if parts else [item for item in call["resources"] or () if item["error_code"]]


def _of_resource(row: Row, item: Row) -> Code:
    named = item["type"] is None and item["name"] in (row["topics"] or ())
    topic = item["name"] if named or item["type"] == "topic" else None
    about = None if topic else " ".join(filter(None, (item["type"], item["name"])))
    return item["error_code"], topic, None, about


def _about(row: Row) -> str | None:
    if row["group_id"]:
        return f"group {row['group_id']}"
    return f"transaction {row['transactional_id']}" if row["transactional_id"] else None


def _in_body(value: Any, topic: str | None, names: dict[str, str]) -> Iterator[Code]:
    """Every non-zero `error_code` of a decoded response, with the topic and partition around it."""
    if isinstance(value, list):
        for item in value:
            yield from _in_body(item, topic, names)
    elif isinstance(value, dict):
        topic = _topic_in(value, names) or topic
        code = value.get("error_code")
        if isinstance(code, int) and code:
            part = next((value[name] for name in PARTITIONS if isinstance(value.get(name), int)), None)
            yield code, topic, part, None if topic else _named(value)
        for inner in value.values():
            yield from _in_body(inner, topic, names)


def _topic_in(value: Row, names: dict[str, str]) -> str | None:
    """The topic that a struct names; resources of other kinds have a type beside their name."""
    known = () if "resource_type" in value or "user" in value else TOPIC_NAMES
    name = next((value[name] for name in known if isinstance(value.get(name), str)), None)
    uuid = value.get("topic_id")
    return name or (names.get(uuid, uuid) if isinstance(uuid, str) else None)


def _named(value: Row) -> str | None:
    for each in ("resource_name", "group_id", "user", "member_id", "transactional_id"):
        if isinstance(value.get(each), str):
            return f"{each.removesuffix('_id').removesuffix('_name')} {value[each]}"
    return None


ERROR = AnswerField("error", "text", "error", "name of the error code")
CODE = AnswerField("error_code", "count", "code", "its number", 9)
RETRIABLE = AnswerField("retriable", "flag", "retry", "whether clients try again", 6)
COUNTED = AnswerField("count", "count", "count", "error codes in responses")
ERRORS = (
    ERROR,
    CODE,
    RETRIABLE,
    AnswerField("api", "text", "API", "name of the API"),
    AnswerField("client", "text", "client", "client id", 1),
    AnswerField("address", "text", "address", "address of the client", 5),
    AnswerField("topic", "text", "topic", "topic that the error is about", 1),
    AnswerField("partition", "count", "part", "partition that the error is about", 2),
    AnswerField(
        "about", "text", "about", "what else the error is about: a group, a transaction, a resource", 4
    ),
    COUNTED,
    AnswerField("calls", "count", "calls", "calls with this error", 8),
    AnswerField("first_time", "time", "first", "time of the first", 3),
    AnswerField("last_time", "time", "last", "time of the last", 7),
    AnswerField("first_packet", "count", "packet", "packet of the first, for `kwsniff show`", 6),
    AnswerField("over_time", "text", "over time", "a character for each tenth of the covered time", 4),
)
CODES = (
    ERROR,
    CODE,
    RETRIABLE,
    COUNTED,
    AnswerField("clients", "count", "clients", "clients that got it", 2),
    AnswerField("topics", "count", "topics", "topics it was about", 2),
    AnswerField("meaning", "text", "meaning", "what it means"),
)


# What error codes are due to: which need somebody's attention, and which belong to how Kafka works.
#
# Codes without an entry need attention if clients may not try again, and are transient if they may
# (`dissectors/errors`).

NORMAL, TRANSIENT, ATTENTION = "normal", "transient", "attention"


class Cause(NamedTuple):
    """Of one error code."""

    kind: str
    """`normal`: part of a protocol; `transient`: noise unless it stays; `attention`: somebody has to act."""
    words: str


CAUSES = {
    -1: Cause(ATTENTION, "the broker failed; its log says how"),
    1: Cause(
        ATTENTION, "the offset is gone or was never there: records expired before they were read, or a reset"
    ),
    2: Cause(ATTENTION, "a batch arrived damaged, or was refused by the broker's checks"),
    3: Cause(ATTENTION, "no such topic or partition, or the client may not know of it"),
    5: Cause(TRANSIENT, "an election is under way, or the topic is being made"),
    7: Cause(ATTENTION, "replicas did not take the records in time"),
    10: Cause(
        ATTENTION, "a batch larger than max.message.bytes of the topic or message.max.bytes of the broker"
    ),
    14: Cause(TRANSIENT, "the coordinator is still loading"),
    15: Cause(TRANSIENT, "the coordinator's topic has no leader, or is being made"),
    16: Cause(TRANSIENT, "the coordinator has moved"),
    17: Cause(ATTENTION, "a name that topics may not have, or an internal topic"),
    18: Cause(ATTENTION, "a batch larger than segment.bytes"),
    19: Cause(ATTENTION, "fewer replicas in sync than min.insync.replicas: nothing can be written"),
    20: Cause(ATTENTION, "fewer replicas in sync than min.insync.replicas took the records"),
    22: Cause(TRANSIENT, "a member of an older generation of its group"),
    27: Cause(NORMAL, "the group rebalances"),
    35: Cause(ATTENTION, "the broker does not offer this version"),
    36: Cause(TRANSIENT, "the topic is already there"),
    41: Cause(TRANSIENT, "the controller has moved"),
    45: Cause(ATTENTION, "records of an idempotent producer are missing or out of order"),
    47: Cause(ATTENTION, "a newer producer with the same transactional id is at work"),
    51: Cause(TRANSIENT, "the transaction before is still being completed"),
    56: Cause(ATTENTION, "the broker cannot write to its disk"),
    59: Cause(ATTENTION, "the broker has forgotten the producer: its records have expired"),
    70: Cause(NORMAL, "the fetch session was given to somebody else, or the broker restarted"),
    71: Cause(NORMAL, "the fetch session and the broker are out of step"),
    72: Cause(ATTENTION, "the leader has no listener of the name that the client came by"),
    78: Cause(TRANSIENT, "the leader is new and does not know its high watermark yet"),
    79: Cause(NORMAL, "a new member is given its id"),
    80: Cause(TRANSIENT, "the preferred replica is not in sync"),
    84: Cause(NORMAL, "the preferred replica leads already"),
    85: Cause(NORMAL, "there is no reassignment to cancel"),
    88: Cause(TRANSIENT, "an open transaction still holds offsets of the group"),
    90: Cause(ATTENTION, "a newer producer with the same transactional id is at work"),
    100: Cause(TRANSIENT, "the topic was made anew, or is not known yet"),
    106: Cause(NORMAL, "the fetch session began before topics had ids"),
    120: Cause(ATTENTION, "the transaction must be aborted"),
    122: Cause(NORMAL, "the share session is not known any more"),
    123: Cause(NORMAL, "the share session and the broker are out of step"),
    129: Cause(NORMAL, "the client is to learn its brokers anew"),
}

LEADER = (6, 9, 74, 75)
"""Errors of a client that asks who does not lead: NOT_LEADER_OR_FOLLOWER and those of leader epochs."""
EXPELLED = (25, 110, 113)
"""Errors of a member that its group no longer has."""
AUTHENTICATION = (33, 34, 58)
AUTHORIZATION = (29, 30, 31, 53, 65)
THROTTLING = (89,)
ELSEWHERE = frozenset((*LEADER, *EXPELLED, *AUTHENTICATION, *AUTHORIZATION, *THROTTLING))
"""Errors that rules of their own are about."""


AGAIN = {None: "", True: "; clients may try again", False: "; trying again is no use"}
"""What is said of a retriable error, of another one, and where it is not known which it is."""


def cause(code: int | None, retriable: bool | None) -> Cause:
    """That of an error code."""
    known = None if code is None else CAUSES.get(code)
    return known or Cause(TRANSIENT if retriable else ATTENTION, "")


UNSUPPORTED_VERSION = 35


class ErrorTally:
    """Errors by code, API and client, and for which topic and partition."""

    def __init__(self) -> None:
        self.calls = Tally()
        """By code, API, client id, address, user."""
        self.places = Tally()
        """By code, API, topic, partition (None where only the call failed), client id, address."""

    def take(self, batch: EventBatch, which: Mask) -> None:
        """Take the calls of `which`."""
        calls = batch.calls
        if not which.any():
            return
        names = ("error_code", "api", "client_id", "client_ip", "user")
        self.calls.add(calls, which, [calls.coded(each) for each in names])
        self._take_partitions(batch, which)
        self._take_topics(batch, which)

    def _take_partitions(self, batch: EventBatch, which: Mask) -> None:
        parts = batch.partitions
        failed = which[parts.row] & (parts.ints("error_code") != 0)
        places = np.flatnonzero(failed)
        if len(places):
            calls, of = batch.calls, parts.row[places]
            codes, api = parts.coded("error_code").at(places), calls.coded("api").at(of)
            keys = [codes, api, parts.key.at(places), parts.coded("partition").at(places)]
            keys += [calls.coded("client_id").at(of), calls.coded("client_ip").at(of)]
            self.places.add(Picked(calls, of), np.arange(len(places)), keys)

    def _take_topics(self, batch: EventBatch, which: Mask) -> None:
        """Of calls none of whose partitions says that it failed: the topics that they name."""
        calls, parts = batch.calls, batch.partitions
        told = np.zeros(len(calls), np.bool_)
        told[parts.row[parts.ints("error_code") != 0]] = True
        rest = np.flatnonzero(which & ~told)
        if not len(rest):
            return
        counts, given, ids = elements(*(calls.column(each).take(rest) for each in ("topics", "topic_ids")))
        of = rest[lists.parents(counts)]
        names = [a or b for a, b in zip(given.to_pylist(), ids.to_pylist(), strict=True)]
        single = counts[lists.parents(counts)] == 1
        of, names = of[single], [each for each, alone in zip(names, single, strict=True) if alone]
        code, api, *who = (
            calls.coded(each).at(of) for each in ("error_code", "api", "client_id", "client_ip")
        )
        keys = [code, api, texts(names), Coded([None], np.zeros(len(of), np.int64)), *who]
        self.places.add(Picked(calls, of), np.arange(len(of)), keys)

    def merge(self, other: ErrorTally) -> None:
        """Take what another one counted."""
        self.calls.merge(other.calls)
        self.places.merge(other.places)


class ErrorLine(NamedTuple):
    """One error in one API, for people."""

    error: str
    api: str
    calls: int
    who: list[str]
    where: list[str]
    entry: Entry


def figures(code: int | None, **more: float) -> dict[str, float]:
    """The figures of a finding; the several codes of clients that are too many to be told apart are none."""
    return more if code is None else {"error_code": code, **more}


def look(code: int | None) -> str:
    """The command that shows an error."""
    return command("errors", "" if code is None else f"error_code == {code}")


class ErrorRule(Rule):
    """A rule about responses with certain errors."""

    missing = "no decoded responses"
    codes: tuple[int, ...] = ()
    errors: ErrorTally

    def which(self, calls: EventRows) -> Mask:
        """The calls it is about."""
        return calls.is_in("error_code", self.codes)

    def take(self, batch: EventBatch) -> None:
        self.looked += int(batch.calls.known("error_code").sum())
        self.errors.take(batch, self.which(batch.calls))


class NotableErrors(ErrorRule):
    """Responses with an error that needs somebody's attention, or that clients get over by trying again but
    which keeps coming. Errors that belong to a protocol (a new member is given its id, a fetch session is
    renewed, a group rebalances) are left out; leaders, groups, authentication and authorization have rules
    of their own."""

    code = "errors"
    about = "errors"
    several = "{answers:answer} carried one of {count} errors that need attention, or that keep coming."
    needs = columns("error_code topics topic_ids partitions user")

    def which(self, calls: EventRows) -> Mask:
        return np.asarray(calls.ints("error_code") != 0)

    def lines(self, context: Context) -> list[ErrorLine]:
        """Every error in every API, the most frequent first: also those that the rule is silent about."""
        found = [self._line(key, entry, context) for key, entry in self.errors.calls.by(0, 1).items()]
        return sorted(found, key=lambda line: (-line.calls, line.error, line.api))

    def _line(self, key: Key, entry: Entry, context: Context) -> ErrorLine:
        who = ranked((client(k[2], k[3]), e) for k, e in self.errors.calls.of((0, 1), key).items())
        where = ranked((place(k, context), e) for k, e in self.errors.places.of((0, 1), key).items())
        return ErrorLine(context.error(key[0]), str(key[1]), entry.count, who, where, entry)

    def findings(self, context: Context) -> Iterable[Finding]:
        for (code,) in self.errors.calls.by(0):
            # Clients that ask for a newer ApiVersions than there is are told so, and ask again: no error.
            entries = {
                key: entry
                for key, entry in self.errors.calls.of(0, code).items()
                if not (code == UNSUPPORTED_VERSION and key[1] == "ApiVersions")
            }
            retriable = context.retriable(code)
            why = cause(code, retriable)
            least = self.thresholds.retried_errors if retriable else 1
            if why.kind == TRANSIENT:
                least = self.thresholds.transient_errors
            total = sum(entry.count for entry in entries.values())
            if code not in ELSEWHERE and why.kind != NORMAL and total >= least:
                yield self._finding(code, why, total, entries, context)

    def _finding(
        self, code: int, why: Cause, total: int, entries: dict[Key, Entry], context: Context
    ) -> Finding:
        who = ranked((client(key[2], key[3]), entry) for key, entry in entries.items())
        where = ranked((place(key, context), entry) for key, entry in self.errors.places.of(0, code).items())
        shown = evidence(*entries.values())
        words = f": {why.words}" if why.words else ""
        within = f", within {duration((shown[1].time - shown[0].time) / 1e6)}" if total > 1 else ""
        about = f" about {listed(where)}" if where else ""
        apis = summed((str(key[1]), entry.count) for key, entry in entries.items())
        brief = f"{many(total, 'answer')} ({counted(apis)}) to {listed(who)}"
        again = AGAIN[context.retriable(code)]
        severe = why.kind == ATTENTION and total >= self.thresholds.errors
        return self.found(
            "warning" if severe else "notice", context.error(code),
            f"{context.error(code)} in {brief}{about}{within}{words}{again}.", figures(code, answers=total),
            shown, look(code), weight=total, share=context.of_calls(total), brief=f"{brief}{words}",
        )  # fmt: skip


def ranked(pairs: Iterable[tuple[str, Entry]]) -> list[str]:
    """Names, the most frequent first."""
    counts = summed((text, entry.count) for text, entry in pairs)
    return [text for text, _ in sorted(counts, key=lambda pair: (-pair[1], pair[0]))]


def place(key: Key, context: Context) -> str:
    """The topic and partition in a key of `ErrorTally.places`."""
    topic = name(context.topic(key[2]))
    return topic if not isinstance(key[3], int) or key[3] < 0 else f"{topic}[{key[3]}]"
