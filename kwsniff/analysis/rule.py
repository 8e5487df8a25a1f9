"""What a rule says: one sentence with the figures it rests on, the packets that show it, and where to look
next."""

from __future__ import annotations

import json
import re
import shlex
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from functools import cache
from typing import Any, ClassVar, Literal, NamedTuple, Self, get_args, get_type_hints

import pyarrow as pa

from kwsniff.count.codes import OTHERS
from kwsniff.count.eventrows import UNKNOWN, EventBatch
from kwsniff.count.tally import Entry, Packet
from kwsniff.output import suggestion
from kwsniff.output.text import printable
from kwsniff.output.units import in_unit, many
from kwsniff.rows.schema import TIMESTAMP

Severity = Literal["critical", "warning", "notice", "ok", "not_shown"]
CRITICAL, WARNING, NOTICE, OK, NOT_SHOWN = get_args(Severity)
SEVERITIES = {
    CRITICAL: "something does not work",
    WARNING: "something works badly, or is about to fail",
    NOTICE: "worth knowing",
    OK: "the rule looked and found nothing",
    NOT_SHOWN: "the capture does not show what the rule looks at",
}
"""From the worst on."""


def documented(name: str, kind: pa.DataType, doc: str) -> pa.Field:
    """A column with what it says, which the docs list."""
    return pa.field(name, kind, metadata={"doc": doc})


FINDINGS = pa.schema(
    [
        documented("code", pa.string(), "name of the rule, see docs/findings.md"),
        documented("severity", pa.string(), ", ".join(SEVERITIES)),
        documented("subject", pa.string(), "who or what it is about; empty if ok"),
        documented("finding", pa.string(), "one sentence or two"),
        documented("numbers", pa.string(), "the figures as `name=value`, joined by `; `; units in the names"),
        documented("evidence", pa.string(), "packets as `capture:number`, joined by `;`"),
        documented("first_time", TIMESTAMP, "when it was first seen"),
        documented("last_time", TIMESTAMP, "when it was last seen"),
        documented("command", pa.string(), "what shows more; FILE stands for the input"),
    ]
)
"""A row for each finding, and one for each rule that found nothing."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One row of FINDINGS."""

    code: str
    severity: Severity
    subject: str
    sentence: str
    numbers: Mapping[str, float] = field(default_factory=dict)
    evidence: tuple[Packet, ...] = ()
    command: str = ""
    weight: float = 0.0
    """Among findings of one severity and share the greatest comes first."""
    share: float = 0.0
    """The part of the traffic that it concerns: calls, connections, bytes or clients, as its rule says."""
    brief: str = ""
    """What is said of the subject in a list of findings of this rule."""
    explains: tuple[str, ...] = ()
    """Findings of these codes about the same subject say no more than this one."""

    def row(self) -> dict[str, Any]:
        """As FINDINGS has it."""
        times = [packet.time for packet in self.evidence if packet.time != UNKNOWN]
        return {
            "code": self.code,
            "severity": self.severity,
            "subject": self.subject,
            "finding": self.sentence,
            "numbers": "; ".join(f"{name}={_number(value)}" for name, value in self.numbers.items()) or None,
            "evidence": ";".join(map(_place, places(self.evidence))) or None,
            "first_time": min(times, default=None),
            "last_time": max(times, default=None),
            "command": self.command or None,
        }

    def as_json(self) -> dict[str, Any]:
        """The same with figures and packets as objects, for JSON."""
        shown = [{"capture": packet.capture, "packet": packet.number} for packet in places(self.evidence)]
        times = {name: _when(value) for name, value in self.row().items() if name.endswith("_time")}
        return {**self.row(), "numbers": dict(self.numbers), "evidence": shown, **times}


def table(found: Iterable[Finding]) -> pa.Table:
    """All rows."""
    return pa.Table.from_pylist([each.row() for each in found], schema=FINDINGS)


def places(evidence: Iterable[Packet]) -> list[Packet]:
    """The packets whose number is known, each once, in order."""
    known = {(each.capture, each.number): each for each in evidence if each.number != UNKNOWN}
    return sorted(known.values(), key=lambda each: (each.time, each.number))


def evidence(*entries: Entry) -> tuple[Packet, ...]:
    """First and last packet of all entries together."""
    first = min((entry.first for entry in entries), key=lambda packet: packet.time)
    last = max((entry.last for entry in entries), key=lambda packet: packet.time)
    return (first, last)


def command(name: str, where: str = "", option: str = "") -> str:
    """A command line of kwsniff."""
    words = ["kwsniff", name, "FILE", option, f"--where {shlex.quote(where)}" if where else ""]
    return " ".join(filter(None, words))


def both(*conditions: str) -> str:
    """Conditions of `--where` that all have to hold."""
    return " and ".join(conditions)


MOST_FILES, MOST_ALTERNATIVES = 10, 10
TOKENS = re.compile(r'"(?:[^"\\]|\\.)*"|\w+| == |.')
"""Texts, words and operators of an expression of `--where`."""


def about_input(
    found: Iterable[Finding], paths: Sequence[str], options: Sequence[str] = (), where: str | None = None
) -> list[Finding]:
    """The same with commands that run as they stand; see `with_input`."""
    return [replace(each, command=with_input(each.command, paths, options, where)) for each in found]


def with_input(line: str, paths: Sequence[str], options: Sequence[str] = (), where: str | None = None) -> str:
    """A command line with its input for FILE, unless that are too many files to name, and with what chose
    the rows of it: `options`, and an expression."""
    words = shlex.split(line)
    if "FILE" not in words:
        return line
    if 0 < len(paths) <= MOST_FILES:
        place = words.index("FILE")
        words[place : place + 1] = map(printable, paths)
    if where and "--where" in words:
        place = words.index("--where") + 1
        words[place] = f"({printable(where)}) and ({words[place]})"
    elif where:
        words += ["--where", printable(where)]
    return shlex.join([*words, *map(printable, options)])


def joined(lines: Sequence[str]) -> str:
    """One command line for what several of one kind show: options that differ are left out, expressions of
    `--where` are alternatives; the first one, if they are too many."""
    commands = [shlex.split(line) for line in dict.fromkeys(lines)]
    if len(commands) == 1:
        return lines[0]
    words, at = [], 0
    while at < len(commands[0]):
        size = 1 + (commands[0][at].startswith("--") and at + 1 < len(commands[0]))
        part = commands[0][at : at + size]
        others = [_option(each, part[0], size) for each in commands]
        if all(each == part for each in others):
            words += part
        elif part[0] == "--where" and all(others):
            if len(others) > MOST_ALTERNATIVES:
                return lines[0]
            words += [part[0], _either([each[1] for each in others])]
        at += size
    return shlex.join(words)


def _either(expressions: Sequence[str]) -> str:
    """What holds where one of some expressions does: with `in` if they differ in one value only."""
    pieces = [TOKENS.findall(each) for each in expressions]
    if len({len(each) for each in pieces}) == 1:
        differing = [place for place, some in enumerate(zip(*pieces, strict=True)) if len(set(some)) > 1]
        first, place = pieces[0], differing[0]
        if len(differing) == 1 and first[place - 1 : place] == [" == "]:
            values = ", ".join(each[place] for each in pieces)
            return "".join([*first[: place - 1], f" in ({values})", *first[place + 1 :]])
    return " or ".join(f"({each})" for each in expressions)


def _option(words: list[str], first: str, size: int) -> list[str]:
    place = words.index(first) if first in words else len(words)
    return words[place : place + size]


def summed(pairs: Iterable[tuple[str, float]]) -> list[tuple[str, float]]:
    """Counts by name, those of the same name in one."""
    found: dict[str, float] = {}
    for text, count in pairs:
        found[text] = found.get(text, 0) + count
    return list(found.items())


def is_broker(broker: Any) -> str:
    """The condition for a broker."""
    return f"broker == {literal(str(broker))}"


def is_client(client_id: Any, ip: Any) -> str:
    """The condition for a client: by its id if it has one, else by its address."""
    return f"client_id == {literal(client_id)}" if client_id else f"client_ip == {literal(ip)}"


def literal(value: Any) -> str:
    """A value as `--where` takes it."""
    return json.dumps(printable(value), ensure_ascii=False) if isinstance(value, str) else str(value)


def order(finding: Finding) -> tuple[int, float, float, str, str]:
    """Sorts the worst first, then what concerns most of the traffic."""
    place = list(SEVERITIES).index(finding.severity)
    return (place, -finding.share, -finding.weight, finding.code, finding.subject)


def _place(packet: Packet) -> str:
    return f"{packet.capture or ''}:{packet.number}"


def _when(microseconds: int | None) -> datetime | None:
    return None if microseconds is None else datetime.fromtimestamp(microseconds / 1e6, UTC)


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else f"{value:.6g}"


# When a rule speaks: every threshold with its default, its unit in its name, in one table.
#
# They are meant for captures of seconds to hours of production traffic. A rule that compares rates also asks
# for a least number, so that the first second of a short capture proves nothing.


@dataclass(frozen=True, slots=True)
class Thresholds:
    """docs/findings.md lists them from here."""

    @classmethod
    def of(cls, chosen: Iterable[tuple[str, float]]) -> Self:
        """The defaults but for those chosen.

        Raises:
            ValueError: there is no threshold of that name, or it cannot have that value.
        """
        known = {each.name: int if isinstance(each.default, int) else float for each in fields(cls)}
        values: dict[str, float] = {}
        for name, value in chosen:
            if name not in known:
                raise ValueError(f"there is no threshold {name!r}{suggestion(name, known)}")
            if not 0 <= value < float("inf") or known[name](value) != value:
                kind = "whole number" if known[name] is int else "number"
                raise ValueError(f"threshold {name} is a {kind} from 0 on, not {value:g}")
            values[name] = known[name](value)
        return cls(**values)  # type: ignore[arg-type]

    throttled_ms: int = 1_000
    """Throttle time of a client, in all, from which on it is a warning; less is a notice."""

    slow_ms: float = 100.0
    """A broker is slow with an API if so much of its own time goes into one call of twenty ..."""
    slow_calls: int = 20
    """... of at least so many calls."""
    queued_calls: int = 10
    """Fewer calls that stood in a queue say nothing."""
    queued_ms: float = 100.0
    """A queue is slow if one call of twenty waits so long behind earlier ones of its connection."""

    unanswered_wait_ms: float = 30_000.0
    """A request that is still open at the end of the capture counts as unanswered after so long."""
    long_poll_margin_ms: float = 1_000.0
    """A Fetch that its connection's end cut off counts only if it waited so much longer than it had asked."""

    stale_leader_errors: int = 10
    """Answers of a broker that it does not lead a partition, to one client, beyond what a change of leader
    brings about."""

    rebalances: int = 5
    """A group that rebalances so often ..."""
    rebalance_every_s: float = 600.0
    """... and on average more often than once in this time is not stable."""
    rebalance_pause_ms: float = 500.0
    """JoinGroup and SyncGroup calls closer together than this belong to one rebalance."""
    still_s: float = 10.0
    """A member stands still whose heartbeats go on for so long after its last Fetch."""
    lag_records: int = 250
    """A consumer that is so many records behind at its last Fetch ..."""
    lag_growth: float = 1.2
    """... and so many times as many as at its first falls behind."""

    tiny_batches: int = 200
    """A producer sends tiny batches if so many of them ..."""
    tiny_batch_bytes: float = 1_000.0
    """... are smaller than this on average ..."""
    tiny_batches_per_s: float = 10.0
    """... and come faster than this."""
    uncompressed_bytes: int = 1_000_000
    """Record data sent without compression to a topic, in all; ..."""
    uncompressed_batch_bytes: float = 1_000.0
    """... smaller batches would hardly shrink."""

    storm_calls: int = 50
    """Metadata, ApiVersions and FindCoordinator calls of one client are a storm if there are so many ..."""
    storm_per_s: float = 2.0
    """... at more than this rate."""
    churn_connections: int = 30
    """A client connects anew again and again if so many of its connections (for each of the client ids at its
    address, where connections do not tell whose they are) ..."""
    churn_life_s: float = 10.0
    """... lived shorter than this ..."""
    churn_per_s: float = 1.0
    """... and more than this began each second."""
    refused: int = 3
    """Attempts to connect to an address that refuses or does not answer."""
    given_up_s: float = 10.0
    """Such an address is one that nobody needs now if nobody tried it for so long, and others connected."""

    certificate_days: float = 30.0
    """A certificate that is valid for fewer days than this should be renewed, ..."""
    certificate_left: float = 0.2
    """... if less than this share of its life is left. What renews by itself does so with a third left
    (ACME clients, cert-manager), or with a fifth at the latest: then something is wrong."""

    hot_share: float = 0.5
    """A partition is hot if it takes so much of what is produced to its topic ..."""
    hot_times_fair: float = 3.0
    """... and so many times what would be its fair share ..."""
    hot_bytes: int = 100_000
    """... of so much record data."""

    unanswered: int = 5
    """Requests that a broker left unanswered are a warning from so many on, else a notice; ..."""
    unanswered_many: int = 20
    """... all are critical if there are so many ..."""
    unanswered_share: float = 0.01
    """... and they are so much of the requests that expect an answer."""
    outage_refused: int = 20
    """Connections refused by a broker that answers at other times: from so many on it is a warning."""

    retransmitted_ratio: float = 0.01
    """Packets retransmitted, as a part of those sent in a direction ..."""
    retransmissions: int = 10
    """... and at least so many."""
    zero_windows: int = 3
    """Times that a receiver closed its window."""

    errors: int = 10
    """Answers with an error that needs somebody's attention are a warning from so many on, else a notice."""
    retried_errors: int = 5
    """The same, of an error that clients may try again after: fewer are left out."""
    transient_errors: int = 20
    """Answers with an error that clients get over by trying again."""


# What a rule is: it takes EVENTS batches, merges with what another instance of it took, and says what it
# found.
#
# A rule keeps its state in parts (`Tally`, `Histogram`, ...) that are bounded and merge; so does it. Rules
# pickle, so that parts of an input may be taken in different processes and brought together.
#
# Invariant: taking two batches one after the other is the same as taking each with its own instance and
# merging.

METADATA_ID, CLUSTER_METADATA = "00000000-0000-0000-0000-000000000001", "__cluster_metadata"
"""The topic of KRaft's log has the same uuid everywhere (KIP-595)."""


@dataclass
class Context:
    """What the whole input says that single rules need for their words."""

    names: Mapping[str, str] = field(default_factory=dict)
    """Topics by uuid."""
    errors: Mapping[int, tuple[str, bool]] = field(default_factory=dict)
    """Name of each error code, and whether clients may try again."""
    clients: Mapping[str, list[str]] = field(default_factory=dict)
    """Client ids by address."""
    calls: int = 0
    connections: int = 0

    def of_calls(self, count: float) -> float:
        """The share of all calls."""
        return count / max(self.calls, 1)

    def of_connections(self, count: float) -> float:
        """The share of all connections."""
        return count / max(self.connections, 1)

    def of_clients(self, count: float = 1) -> float:
        """The share of all clients."""
        return count / max(sum(map(len, self.clients.values())), 1)

    def topic(self, key: str | None) -> str:
        """The name of a topic that goes by name or uuid."""
        return CLUSTER_METADATA if key == METADATA_ID else self.names.get(key or "", key or "(unnamed)")

    def error(self, code: int | None) -> str:
        """The name of an error code; None stands for several."""
        if code is None:
            return OTHERS
        return self.errors[code][0] if code in self.errors else f"ERROR_{code}"

    def retriable(self, code: int | None) -> bool | None:
        """Whether clients may try again, None if that is not known."""
        return None if code is None or code not in self.errors else self.errors[code][1]


class Shown(NamedTuple):
    """A figure, written in the unit that its name ends with."""

    name: str
    value: float

    def __format__(self, noun: str) -> str:
        return many(self.value, noun) if noun else in_unit(self.name, self.value)


@cache
def _counted(rule: type[Rule]) -> list[tuple[str, type]]:
    """What a rule counts with: its annotations of what can be merged."""
    return [(name, kind) for name, kind in get_type_hints(rule).items() if hasattr(kind, "merge")]


class Rule(ABC):
    """One rule. Its docstring is its documentation in docs/findings.md: what it means and what to do.

    What it keeps is declared in its class as annotations with a type that merges (`calls: Tally`)."""

    code: ClassVar[str]
    about: ClassVar[str]
    """What it looks at, in a word or two: `throttling`."""
    needs: ClassVar[frozenset[str]] = frozenset()
    """Columns of EVENTS it reads beside those of every rule."""
    several: ClassVar[str]
    """The sentence of several findings: `{count}` of them, `{x}` is the sum of their figures `x`, `{max_x}`
    the greatest, in the unit that the name ends with; `{x:call}` says `2 calls`."""
    missing: ClassVar[str] = ""
    """What a capture lacks in which the rule finds nothing to look at: `no consumer groups`."""

    def __init__(self, thresholds: Thresholds) -> None:
        self.thresholds = thresholds
        self.looked = 0
        """Rows it could judge by; 0: the capture does not show what it looks at."""
        for name, kind in _counted(type(self)):
            setattr(self, name, kind())

    @abstractmethod
    def take(self, batch: EventBatch) -> None:
        """Take one batch."""

    @abstractmethod
    def findings(self, context: Context) -> Iterable[Finding]:
        """What was found so far."""

    def found(
        self,
        severity: Severity,
        subject: str,
        sentence: str,
        numbers: Mapping[str, float],
        shown: Entry | tuple[Packet, ...],
        command: str,
        **more: Any,
    ) -> Finding:
        """A finding of this rule, which `shown` proves; `more` are its other fields. The weight is the first
        of its numbers if none is given."""
        packets = evidence(shown) if isinstance(shown, Entry) else shown
        more = {"weight": next(iter(numbers.values())), **more}
        return Finding(self.code, severity, subject, sentence, numbers, packets, command, **more)

    @classmethod
    def headline(cls, found: Sequence[Finding]) -> str:
        """What several of its findings say together."""
        figures: dict[str, Any] = {"count": Shown("count", len(found))}
        for name in found[0].numbers:
            column = [each.numbers.get(name, 0) for each in found]
            figures[name], figures[f"max_{name}"] = Shown(name, sum(column)), Shown(name, max(column))
        return cls.several.format_map(figures)

    def unjudged(self) -> str:
        """Why finding nothing is no praise: what it looked at and could not judge. Empty if it could."""
        return ""

    def merge(self, other: Self) -> None:
        """Take what another instance took."""
        self.looked += other.looked
        for name, part in vars(self).items():
            merge: Any = getattr(part, "merge", None)
            if merge is not None:
                merge(getattr(other, name))
