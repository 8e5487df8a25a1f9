"""The questions that can be asked of events: each is a command and a Python function of the same name.

An entry says all that both need: which answer takes the events, what it can be asked, what its tables are and
how each is described. `kwsniff.cli.commands` and `kwsniff.api.whole` are made from it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from kwsniff.analysis import Answer


class Setting(NamedTuple):
    """What one question alone can be asked; an option of its command, an argument in Python."""

    name: str
    help: str
    """As the command's help has it."""
    meaning: str
    """As the function's docstring has it; empty for a field of Config, which every function takes."""
    metavar: str | None = None
    """What the option takes; None for a switch, which is off."""
    required: bool = False


class Question(NamedTuple):
    """One question."""

    name: str
    """As the command is called; the function has underscores."""
    answer: str
    """Module and class that answer it."""
    help: str
    """Of the command: a sentence, an empty line, and more."""
    summary: str
    """First line of the function's docstring."""
    tables: str
    """The tables in words; empty where there is only one."""
    examples: tuple[str, ...]
    """Of the command."""
    python: str
    """Of the function, as doctest runs it."""
    settings: tuple[Setting, ...] = ()
    table: str | None = None
    """The table that the function gives if none is named; None for the first."""
    judges: bool = False
    """The answer's `breaks()` says whether something is wrong, and decides on the exit code."""

    @property
    def function(self) -> str:
        """The name in Python."""
        return self.name.replace("-", "_")

    def asked(self, **settings: Any) -> Answer:
        """A new answer, which takes events. Raises ValueError if a setting is wrong."""
        module, _, kind = self.answer.partition(":")
        made: Answer = getattr(import_module(f"kwsniff.analysis.{module}"), kind)(**settings)
        return made


SLOW = Question(
    "slow",
    "slow:Slow",
    """Show which calls and clients took longest, and why.

    Tables: calls, clients (a row for each client, API and broker).
    """,
    "The calls and the clients that took longest, and where the time went",
    "``calls`` (the slowest first, at most 1,000) or ``clients`` (by client, API and broker)",
    (
        "kwsniff slow trace.pcapng",
        "kwsniff slow trace.pcapng --where 'api == \"Produce\" and latency > 1s' --top 5",
    ),
    """
    >>> kwsniff.slow("captures/throttled.pcapng")[["api", "client", "mostly"]].head(3)
                     api       client                     mostly
    0              Fetch  java-greedy  held back by a quota 100%
    1       CreateTopics   java-setup                broker 100%
    2  AlterClientQuotas   java-setup                broker 100%
    """,
    settings=(
        Setting(
            "waiting",
            "Also calls that wait on purpose: Fetch without data, JoinGroup, SyncGroup.",
            "also calls that waited on purpose, as a Fetch does for data",
        ),
    ),
    table="calls",
)
ERRORS = Question(
    "errors",
    "errors:Errors",
    """Show who got which error, for which topic, and when.

    Every error code of every response counts, whether it can be retried or not. Tables: errors, codes (a row
    for each code with its meaning).
    """,
    "Every error that a broker answered with",
    "``errors`` (by client, API, topic and partition) or ``codes``",
    (
        "kwsniff errors trace.pcapng",
        "kwsniff errors trace.pcapng --full --where 'topic == \"orders\"'",
        "kwsniff errors captures/ -f csv --top 0",
    ),
    """
    >>> kwsniff.errors("captures/stale-leader.pcapng.zst", table="codes")[["error", "count", "clients"]]
                           error  count  clients
    0     NOT_LEADER_OR_FOLLOWER     60        1
    1  COORDINATOR_NOT_AVAILABLE      2        1
    2        OFFSET_OUT_OF_RANGE      2        1
    3       UNKNOWN_LEADER_EPOCH      2        2
    """,
    settings=(Setting("full", "Look into bodies, for error codes that stand anywhere in them; slower.", ""),),
    table="errors",
)
CLIENTS = Question(
    "clients",
    "clients:Clients",
    """Show who uses which topic, in which group, and how.

    Each client is shown with its address, software and user. Tables: uses (a row for each client and topic),
    clients, settings.
    """,
    "Who is there, and who uses which topic",
    "``clients``, ``uses`` (a row for each client and topic) or ``settings`` (acks, codecs, ...)",
    (
        "kwsniff clients trace.pcapng",
        "kwsniff clients trace.pcapng --topic orders",
        "kwsniff clients results/events -f csv --table settings",
    ),
    """
    >>> uses = kwsniff.clients("captures/stuck-consumer.pcapng.zst", table="uses")
    >>> uses[["client", "does", "topic", "records"]]
              client      does   topic  records
    0    audit-quick  consumes  orders     3170
    1    java-feeder  produces  orders     3170
    2   reports-slow  consumes  orders      905
    3  billing-stuck  consumes  orders      627
    """,
    settings=(
        Setting("topic", "Only who uses this topic.", "only what uses this topic", "NAME"),
        Setting("full", "Look into bodies too, for isolation levels; slower.", ""),
    ),
    table="clients",
)
GROUPS = Question(
    "groups",
    "groups:Groups",
    """Show rebalances and their causes, members, commits and lag.

    For each rebalance, who joined or left. Lag is as far as the packets show it. Tables: rebalances,
    members, lag.
    """,
    "What groups did, for which bodies are decoded",
    "``rebalances``, ``members`` or ``lag`` (by partition, as the wire shows it)",
    (
        "kwsniff groups trace.pcapng",
        "kwsniff groups trace.pcapng --group payments --table lag --sort lag",
    ),
    """
    >>> found = kwsniff.groups("captures/rebalance-leave.pcapng.zst")
    >>> found[["group", "generation", "trigger"]].head(3)
          group  generation                                            trigger
    0  shipping           1                             shipping-steady joined
    1  shipping           2                             shipping-fickle joined
    2  shipping           3  shipping-fickle left: the consumer is being cl...
    """,
    settings=(Setting("group", "Only this group.", "only this group", "NAME"),),
    table="rebalances",
)
AUDIT = Question(
    "audit",
    "audit:Audit",
    """Show who created, changed or deleted what.

    Topics, settings, ACLs, users, quotas, offsets and groups: a line for each, with its own result.
    Credentials are never shown.
    """,
    "Who created, changed and deleted what, with which result",
    "",
    (
        "kwsniff audit trace.pcapng",
        "kwsniff audit captures/ --where 'api == \"DeleteTopics\"' -f csv",
    ),
    """
    >>> kwsniff.audit("captures/java-admin.pcapng")[["client", "api", "result"]].head(3)
           client           api               result
    0  java-admin  CreateTopics                   ok
    1  java-admin  CreateTopics                   ok
    2  java-admin  ElectLeaders  ELECTION_NOT_NEEDED
    """,
)
AUTH = Question(
    "auth",
    "auth:Auth",
    """Show who logs in how, who fails, and what is unencrypted.

    Tables: logins, failures, denied.
    """,
    "Who authenticates how, fails, or sends passwords in the clear",
    "``logins``, ``failures`` or ``denied``",
    (
        "kwsniff auth trace.pcapng",
        "kwsniff auth captures/ --table failures -f csv",
    ),
    """
    >>> kwsniff.auth("captures/sasl.pcapng")[["user", "mechanism"]].drop_duplicates().head(3)
          user      mechanism
    0    alice          PLAIN
    1    alice  SCRAM-SHA-256
    2  mallory  SCRAM-SHA-256
    """,
)
UPGRADE_CHECK = Question(
    "upgrade-check",
    "upgrade:UpgradeCheck",
    """Show which clients another release of brokers would break.

    The verdict is breaks, will negotiate or unknown. A client that uses an old version only because its
    broker offers no newer one does not break. Exit code 1 says that a client breaks. Tables: clients, apis
    (versions that the release does not serve).
    """,
    "Which clients brokers of another release would break",
    "``clients`` or ``apis``",
    (
        "kwsniff upgrade-check --target 4.0 trace.pcapng",
        "kwsniff upgrade-check --target 4.3 captures/ -f csv --table apis",
    ),
    """
    >>> found = kwsniff.upgrade_check("captures/kafka-0.10-clients.pcapng", "4.0")
    >>> found["verdict"].value_counts().to_dict()
    {'will negotiate': 28}
    """,
    settings=(
        Setting(
            "target",
            "Release of the brokers after the upgrade, such as 4.0 or 4.1.",
            "release of the brokers after the upgrade, such as ``4.0``",
            "RELEASE",
            required=True,
        ),
    ),
    table="clients",
    judges=True,
)
QUESTIONS = {each.name: each for each in (SLOW, ERRORS, CLIENTS, GROUPS, AUDIT, AUTH, UPGRADE_CHECK)}
