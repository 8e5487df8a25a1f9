"""What an input shows that somebody should know: rules over EVENTS, each in one place.

`Findings` takes EVENTS batches in their order, in memory that does not grow with the input, and merges with
what others took of other parts of it. docs/findings.md says what each rule means.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from kwsniff.analysis.auth import (
    AuthenticationFailed,
    ClearPasswords,
    NotAuthorized,
    PlaintextOnTls,
    QuotaExceeded,
    TlsOnPlaintext,
)
from kwsniff.analysis.demand import (
    ApiVersionsStorm,
    HotPartition,
    MetadataStorm,
    StaleLeader,
    Throttled,
    TinyBatches,
    Uncompressed,
)
from kwsniff.analysis.encryption import Certificates, TlsChurn, TlsHandshakes, WeakTls
from kwsniff.analysis.errors import ErrorLine, NotableErrors
from kwsniff.analysis.groups import MemberExpelled, Rebalances, StandsStill
from kwsniff.analysis.lag import FallsBehind
from kwsniff.analysis.network import Churn, Retransmissions, Unanswered, Unreachable, ZeroWindows
from kwsniff.analysis.rule import (
    FINDINGS,
    NOT_SHOWN,
    OK,
    SEVERITIES,
    Context,
    Finding,
    Rule,
    Thresholds,
    joined,
    order,
    table,
)
from kwsniff.analysis.slow import SlowBroker, SlowQueue
from kwsniff.analysis.tabular import columns
from kwsniff.analysis.upgrade import OldClients
from kwsniff.count.eventrows import EventBatch
from kwsniff.count.tally import NAME_LENGTH
from kwsniff.count.topics import TopicNames

if TYPE_CHECKING:
    from kwsniff.count.eventrows import EventRows


__all__ = ["FINDINGS", "NEEDED", "RULES", "Fact", "Finding", "Findings", "Rule", "Thresholds", "facts"]

RULES: tuple[type[Rule], ...] = (
    *(PlaintextOnTls, TlsOnPlaintext, TlsHandshakes, Certificates, Unreachable),
    *(AuthenticationFailed, NotAuthorized, ClearPasswords),
    *(Unanswered, NotableErrors, StaleLeader, SlowBroker, SlowQueue, Throttled, QuotaExceeded),
    *(Rebalances, MemberExpelled, StandsStill, FallsBehind),
    *(HotPartition, TinyBatches, Uncompressed, MetadataStorm, ApiVersionsStorm, Churn),
    *(Retransmissions, ZeroWindows, TlsChurn, WeakTls, OldClients),
)
"""All rules, in the order in which what they looked at is named."""

_EVERY_RULE = columns(
    """
    event time capture status client_id client_ip broker_ip broker_port api_key api error_code
    latency_us request_packet response_packet packet request_time request_end_time response_time
    response_end_time topics topic_ids last_packet
    """
)
NEEDED = frozenset().union(_EVERY_RULE, *(rule.needs for rule in RULES))
"""Columns of EVENTS that the rules read."""

MAX_ADDRESSES = 1_000
MAX_IDS = 20


class ClientNames:
    """Client ids by address: connections have no client id of their own."""

    def __init__(self) -> None:
        self.of: dict[str, dict[str, None]] = {}

    def take(self, calls: EventRows) -> None:
        """Learn those of some calls."""
        known = calls.client
        for client_id, ip in zip(*known.named(list(range(known.size))), strict=True):
            self._put(ip, client_id)

    def merge(self, other: ClientNames) -> None:
        """Learn what another one knows."""
        for ip, ids in other.of.items():
            for client_id in ids:
                self._put(ip, client_id)

    def _put(self, ip: str | None, client_id: str | None) -> None:
        if ip is None or not client_id or (ip not in self.of and len(self.of) >= MAX_ADDRESSES):
            return
        known = self.of.setdefault(ip, {})
        if len(known) < MAX_IDS:
            known[client_id[:NAME_LENGTH]] = None


class Findings:
    """All rules over one input."""

    def __init__(self, thresholds: Thresholds | None = None) -> None:
        self._rules = [rule(thresholds or Thresholds()) for rule in RULES]
        self._topics = TopicNames()
        self._clients = ClientNames()
        self._calls = self._connections = 0

    def take(self, batch: pa.RecordBatch | EventBatch) -> None:
        """Take one EVENTS batch."""
        seen = EventBatch.of(batch)
        self._topics.know(seen.named)
        self._clients.take(seen.calls)
        self._calls += len(seen.calls)
        self._connections += len(seen.connections)
        for rule in self._rules:
            rule.take(seen)

    def merge(self, other: Findings) -> None:
        """Take what another one took, of batches that come after those of this one."""
        self._topics.merge(other._topics)
        self._clients.merge(other._clients)
        self._calls += other._calls
        self._connections += other._connections
        for mine, theirs in zip(self._rules, other._rules, strict=True):
            mine.merge(theirs)

    def found(self, errors: Mapping[int, tuple[str, bool]] | None = None) -> list[Finding]:
        """What was found so far, the worst first; then a row for each rule that found nothing, or that had
        nothing it could judge. `errors` gives name and retriability of error codes."""
        context = self._context(errors)
        rows: list[Finding] = []
        for place, rule in enumerate(self._rules):
            rows += [*rule.findings(context)] or [_nothing(rule, -place)]
        explained = {(code, row.subject) for row in rows for code in row.explains}
        return sorted((row for row in rows if (row.code, row.subject) not in explained), key=order)

    def errors(self, errors: Mapping[int, tuple[str, bool]] | None = None) -> list[ErrorLine]:
        """Every error in every API with who got it and for what, the most frequent first."""
        rule = next(rule for rule in self._rules if isinstance(rule, NotableErrors))
        return rule.lines(self._context(errors))

    def lag(self) -> pa.Table:
        """How far consumers and groups were behind at last, as rows of `kwsniff.analysis.lag.LAG`."""
        rule = next(rule for rule in self._rules if isinstance(rule, FallsBehind))
        return rule.positions.table(self._context(None).topic)

    def table(self, errors: Mapping[int, tuple[str, bool]] | None = None) -> pa.Table:
        """What `found` gives, as a table of FINDINGS."""
        return table(self.found(errors))

    def _context(self, errors: Mapping[int, tuple[str, bool]] | None) -> Context:
        clients = {ip: sorted(ids) for ip, ids in self._clients.of.items()}
        return Context(self._topics.names, errors or {}, clients, self._calls, self._connections)


class Fact(NamedTuple):
    """All findings of one rule that say something: one sentence, and whom it is about."""

    severity: str
    sentence: str
    command: str
    found: list[Finding]


def facts(found: Sequence[Finding]) -> list[Fact]:
    """What was found, a fact for each rule: the worst first, then what concerns most of the traffic."""
    rules: dict[str, list[Finding]] = {}
    for each in sorted(found, key=order):
        if each.severity not in (OK, NOT_SHOWN):
            rules.setdefault(each.code, []).append(each)
    ranks = list(SEVERITIES)
    ranked = sorted(
        rules.values(), key=lambda some: (ranks.index(some[0].severity), -sum(each.share for each in some))
    )
    return [_fact(some) for some in ranked]


def _fact(found: list[Finding]) -> Fact:
    first = found[0]
    rule = next(rule for rule in RULES if rule.code == first.code)
    command = joined([each.command for each in found])
    return Fact(first.severity, rule.headline(found) if found[1:] else first.sentence, command, found)


def _nothing(rule: Rule, weight: float) -> Finding:
    why = rule.unjudged() if rule.looked else rule.missing
    if not why:
        return Finding(rule.code, OK, "", f"{rule.about}: nothing found", weight=weight)
    sentence = f"{rule.about}: not shown by this capture ({why})"
    return Finding(rule.code, NOT_SHOWN, "", sentence, weight=weight)
