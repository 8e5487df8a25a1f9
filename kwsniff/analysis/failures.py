"""What error codes are due to: which need somebody's attention, and which belong to how Kafka works.

Codes without an entry need attention if clients may not try again, and are transient if they may
(`dissectors/errors`)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from kwsniff.analysis.rule import NOTICE, WARNING, Context, Finding, Rule, command, evidence
from kwsniff.count.codes import Coded
from kwsniff.count.eventrows import EventBatch, EventRows, Picked, texts
from kwsniff.count.keyed import Key
from kwsniff.count.tally import Entry, Tally
from kwsniff.count.topics import elements
from kwsniff.output.units import client, counted, duration, listed, many, name
from kwsniff.rows import lists
from kwsniff.rows.columns import Mask

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


def cause(code: int | None, retriable: bool | None) -> Cause:
    """That of an error code."""
    known = None if code is None else CAUSES.get(code)
    return known or Cause(TRANSIENT if retriable else ATTENTION, "")


# Errors by cause, with who got them and for which partition.

API_VERSIONS = 18
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
            keys = [codes, api, parts.key.at(places), parts.coded("partition").at(places), *_who(batch, of)]
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
        keys = [calls.coded("error_code").at(of), calls.coded("api").at(of), texts(names), _nothing(len(of))]
        keys += _who(batch, of)
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


def _figures(code: int | None, **figures: float) -> dict[str, float]:
    """The figures of a finding; the several codes of clients that are too many to be told apart are none."""
    return figures if code is None else {"error_code": code, **figures}


def _look(code: int | None) -> str:
    return command("errors", "" if code is None else f"error_code == {code}")


class ErrorRule(Rule):
    """A rule about responses with certain errors."""

    missing = "no decoded responses"

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.errors = ErrorTally()

    @abstractmethod
    def which(self, calls: EventRows) -> Mask:
        """The calls it is about."""

    def take(self, batch: EventBatch) -> None:
        self.looked += int(batch.calls.known("error_code").sum())
        self.errors.take(batch, self.which(batch.calls))


class Errors(ErrorRule):
    """Responses with an error that needs somebody's attention, or that clients get over by trying again but
    which keeps coming. Errors that belong to a protocol (a new member is given its id, a fetch session is
    renewed, a group rebalances) are left out; leaders, groups, authentication and authorization have rules
    of their own."""

    code = "errors"
    about = "errors"
    several = "{answers:answer} carried one of {count} errors that need attention, or that keep coming."
    needs = frozenset(("error_code", "topics", "topic_ids", "partitions", "user"))

    def which(self, calls: EventRows) -> Mask:
        failed: Mask = calls.ints("error_code") != 0
        return failed

    def lines(self, context: Context) -> list[ErrorLine]:
        """Every error in every API, the most frequent first: also those that the rule is silent about."""
        found = [self._line(key, entry, context) for key, entry in self.errors.calls.by(0, 1).items()]
        return sorted(found, key=lambda line: (-line.calls, line.error, line.api))

    def _line(self, key: Key, entry: Entry, context: Context) -> ErrorLine:
        who = ranked((client(k[2], k[3]), e) for k, e in self.errors.calls.of((0, 1), key).items())
        where = ranked((place(k, context), e) for k, e in self.errors.places.of((0, 1), key).items())
        return ErrorLine(context.error(key[0]), str(key[1]), entry.count, who, where, entry)

    def findings(self, context: Context) -> list[Finding]:
        codes = self.errors.calls.by(0)
        return [
            self._finding(code, context)
            for (code,) in codes
            if code not in ELSEWHERE and self._matters(code, context)
        ]

    def _matters(self, code: int, context: Context) -> bool:
        retriable = context.retriable(code)
        kind = cause(code, retriable).kind
        least = self.thresholds.retried_errors if retriable else 1
        if kind == TRANSIENT:
            least = self.thresholds.transient_errors
        count = sum(entry.count for entry in self._entries(code).values())
        return kind != NORMAL and count >= least

    def _entries(self, code: int) -> dict[Key, Entry]:
        """Clients that ask for a newer ApiVersions than there is are told so, and ask again: that is no
        error."""
        return {
            key: entry
            for key, entry in self.errors.calls.of(0, code).items()
            if not (code == UNSUPPORTED_VERSION and key[1] == "ApiVersions")
        }

    def _finding(self, code: int, context: Context) -> Finding:
        entries = self._entries(code)
        total = sum(entry.count for entry in entries.values())
        apis: dict[str, float] = {}
        for key, entry in entries.items():
            apis[str(key[1])] = apis.get(str(key[1]), 0) + entry.count
        who = ranked((client(key[2], key[3]), entry) for key, entry in entries.items())
        where = ranked((place(key, context), entry) for key, entry in self.errors.places.of(0, code).items())
        shown = evidence(*entries.values())
        retriable, why = context.retriable(code), cause(code, context.retriable(code))
        again = (
            ""
            if retriable is None
            else "; clients may try again"
            if retriable
            else "; trying again is no use"
        )
        what = f"{many(total, 'answer')} ({counted(list(apis.items()))})"
        sentence = (
            f"{context.error(code)} in {what} to {listed(who)}"
            f"{f' about {listed(where)}' if where else ''}"
            f"{f', within {duration((shown[1].time - shown[0].time) / 1e6)}' if total > 1 else ''}"
            f"{f': {why.words}' if why.words else ''}{again}."
        )
        brief = f"{what} to {listed(who)}{f': {why.words}' if why.words else ''}"
        severe = why.kind == ATTENTION and total >= self.thresholds.errors
        severity = WARNING if severe else NOTICE
        return Finding(
            self.code, severity, context.error(code), sentence, _figures(code, answers=total), shown,
            _look(code), total, share=context.of_calls(total), brief=brief,
        )  # fmt: skip


class NotAuthorized(ErrorRule):
    """A client was refused what it asked for: an ACL is missing, or it came as the wrong user."""

    code = "not_authorized"
    about = "authorization"
    several = "{answers:answer} refused what clients asked for: ACLs are missing, or the users are wrong."
    needs = Errors.needs | {"group_id", "transactional_id"}
    codes: tuple[int, ...] = AUTHORIZATION
    verb = "may not"

    def which(self, calls: EventRows) -> Mask:
        return calls.is_in("error_code", self.codes)

    def findings(self, context: Context) -> list[Finding]:
        return [self._finding(key, context) for key in self.errors.calls.by(0, 2, 3, 4)]

    def _finding(self, key: Key, context: Context) -> Finding:
        code, client_id, ip, user = key
        mine = self.errors.calls.of((0, 2, 3, 4), key)
        apis = [(str(k[1]), float(e.count)) for k, e in mine.items()]
        places = self.errors.places.of((0, 4, 5), (code, client_id, ip))
        where = ranked((place(k, context), e) for k, e in places.items())
        total = sum(entry.count for entry in mine.values())
        brief = f"{context.error(code)} in {many(total, 'answer')} ({counted(apis)})"
        brief += f", topic {listed(where)}" if where else ""
        sentence = (
            f"{client(client_id, ip)}{f' (user {name(user)})' if user else ''} may not do what it asks for: "
            f"{brief}. An ACL is missing, or it is the wrong user."
        )
        return Finding(
            self.code, WARNING, client(client_id, ip), sentence, _figures(code, answers=total),
            evidence(*mine.values()), _look(code), total,
            share=context.of_calls(total), brief=brief,
        )  # fmt: skip


class QuotaExceeded(NotAuthorized):
    """The broker refuses to make or delete topics or partitions faster than a quota allows
    (THROTTLING_QUOTA_EXCEEDED, KIP-599)."""

    code = "quota_exceeded"
    about = "quotas"
    several = "{count} clients change more than their quotas allow: {answers:refusal}."
    codes = THROTTLING

    def _finding(self, key: Key, context: Context) -> Finding:
        mine = self.errors.calls.of((0, 2, 3, 4), key).values()
        total = sum(entry.count for entry in mine)
        sentence = f"{client(key[1], key[2])} changes more than its quota allows: {many(total, 'refusal')}."
        return Finding(
            self.code, WARNING, client(key[1], key[2]), sentence, {"answers": total}, evidence(*mine),
            _look(key[0]), total, share=context.of_calls(total),
            brief=many(total, "refusal"),
        )  # fmt: skip


class AuthenticationFailed(Rule):
    """A client failed to authenticate: a wrong password, a user the broker does not know, an expired token,
    or a mechanism that it does not offer. Clients try again for ever, so it costs connections as well."""

    code = "authentication_failed"
    about = "authentication"
    several = "{count} clients failed to authenticate, in {attempts:attempt}."
    needs = frozenset(("error_code", "user"))
    missing = "no SaslAuthenticate in the clear"

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.calls = Tally()

    def take(self, batch: EventBatch) -> None:
        calls = batch.calls
        # After SaslHandshake v0 a failure shows in nothing but that the broker closes the connection.
        told = calls.is_in("api_key", (36,)) | calls.is_in("error_code", AUTHENTICATION)
        self.looked += int(told.sum())
        names = ("client_id", "client_ip", "user", "error_code")
        keys = [*(calls.coded(each) for each in names), calls.broker]
        self.calls.add(calls, calls.is_in("error_code", AUTHENTICATION), keys)

    def findings(self, context: Context) -> list[Finding]:
        return [self._finding(key, entry, context) for key, entry in self.calls.by(0, 1, 2, 3).items()]

    def _finding(self, key: Key, entry: Entry, context: Context) -> Finding:
        client_id, ip, user, code = key
        brokers = listed(str(k[4]) for k in self.calls.of((0, 1, 2, 3), key))
        brief = f"{context.error(code)} in {many(entry.count, 'attempt')} within {duration(entry.span_s)}"
        sentence = (
            f"{client(client_id, ip)}{f' (user {name(user)})' if user else ''} failed to authenticate at "
            f"{brokers}: {brief}."
        )
        return Finding(
            self.code, WARNING, client(client_id, ip), sentence,
            _figures(code, attempts=entry.count), evidence(entry), command("auth"), entry.count,
            share=context.of_clients(), brief=brief,
        )  # fmt: skip


def _who(batch: EventBatch, of: Any) -> list[Coded]:
    return [batch.calls.coded(name).at(of) for name in ("client_id", "client_ip")]


def _nothing(count: int) -> Coded:
    return Coded([None], np.zeros(count, np.int64))


def ranked(pairs: Iterator[tuple[str, Entry]] | Any) -> list[str]:
    counts: dict[str, int] = {}
    for text, entry in pairs:
        counts[text] = counts.get(text, 0) + entry.count
    return sorted(counts, key=lambda text: (-counts[text], text))


def place(key: Key, context: Context) -> str:
    topic = name(context.topic(key[2]))
    return topic if not isinstance(key[3], int) or key[3] < 0 else f"{topic}[{key[3]}]"
