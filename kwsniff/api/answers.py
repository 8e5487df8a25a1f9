"""The answers of `kwsniff clients`, `slow`, `groups` and so on as DataFrames.

All take the same: what to read, what chooses the rows, and which of their tables is wanted.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kwsniff.api.inputs import Selection, Source, rows
from kwsniff.config import Config
from kwsniff.table import EVENTS

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd
    import pyarrow as pa

    from kwsniff.answers import Answer
    from kwsniff.answers.tabular import AnswerTable


def clients(
    paths: Source,
    *,
    table: str = "clients",
    topic: str | None = None,
    where: str | None = None,
    since: str | None = None,
    until: str | None = None,
    tz: str = "UTC",
    **config: Any,
) -> pd.DataFrame:
    """Who is there, and who uses which topic: `kwsniff clients` as a DataFrame.

    Args:
        paths: as of `kwsniff.calls`.
        table: ``clients``, ``uses`` (a row for each client and topic) or ``settings`` (acks, codecs, ...).
        topic: only what uses this topic.
        where, since, until, tz: which calls count, as of `kwsniff.calls`.
        config: fields of `kwsniff.Config`.

    Raises:
        As `kwsniff.calls`; ValueError if there is no such table.

    Example:
        >>> import kwsniff
        >>> uses = kwsniff.clients("captures/stuck-consumer.pcapng.zst", table="uses")
        >>> uses[["client", "does", "topic", "records"]]
                  client      does   topic  records
        0    audit-quick  consumes  orders     3170
        1    java-feeder  produces  orders     3170
        2   reports-slow  consumes  orders      905
        3  billing-stuck  consumes  orders      627
    """  # fmt: skip
    from kwsniff.answers.clients import Clients

    return _frame(paths, Clients(topic), table, Selection(where, None, since, until, tz), config)


def slow(
    paths: Source,
    *,
    table: str = "calls",
    waiting: bool = False,
    where: str | None = None,
    since: str | None = None,
    until: str | None = None,
    tz: str = "UTC",
    **config: Any,
) -> pd.DataFrame:
    """The calls and the clients that took longest, and where the time went: `kwsniff slow` as a DataFrame.

    Args:
        paths: as of `kwsniff.calls`.
        table: ``calls`` (the slowest first, at most 1,000) or ``clients`` (by client, API and broker).
        waiting: also calls that waited on purpose, as a Fetch does for data.
        where, since, until, tz: which calls count, as of `kwsniff.calls`.
        config: fields of `kwsniff.Config`.

    Raises:
        As `kwsniff.calls`; ValueError if there is no such table.

    Example:
        >>> import kwsniff
        >>> kwsniff.slow("captures/throttled.pcapng")[["api", "client", "mostly"]].head(3)
                         api       client                     mostly
        0              Fetch  java-greedy  held back by a quota 100%
        1       CreateTopics   java-setup                broker 100%
        2  AlterClientQuotas   java-setup                broker 100%
    """  # fmt: skip
    from kwsniff.answers.slow import Slow

    return _frame(paths, Slow(waiting=waiting), table, Selection(where, None, since, until, tz), config)


def groups(
    paths: Source,
    *,
    table: str = "rebalances",
    group: str | None = None,
    where: str | None = None,
    since: str | None = None,
    until: str | None = None,
    tz: str = "UTC",
    **config: Any,
) -> pd.DataFrame:
    """What groups did: `kwsniff groups` as a DataFrame. Bodies are decoded for it.

    Args:
        paths: as of `kwsniff.calls`.
        table: ``rebalances``, ``members`` or ``lag`` (by partition, as the wire shows it).
        group: only this group.
        where, since, until, tz: which calls count, as of `kwsniff.calls`.
        config: fields of `kwsniff.Config`.

    Raises:
        As `kwsniff.calls`; ValueError if there is no such table.

    Example:
        >>> import kwsniff
        >>> found = kwsniff.groups("captures/rebalance-leave.pcapng.zst")
        >>> found[["group", "generation", "trigger"]].head(3)
              group  generation                                            trigger
        0  shipping           1                             shipping-steady joined
        1  shipping           2                             shipping-fickle joined
        2  shipping           3  shipping-fickle left: the consumer is being cl...
    """  # fmt: skip
    from kwsniff.answers.groups import Groups

    return _frame(paths, Groups(group), table, Selection(where, None, since, until, tz), config)


def errors(
    paths: Source,
    *,
    table: str = "errors",
    where: str | None = None,
    since: str | None = None,
    until: str | None = None,
    tz: str = "UTC",
    **config: Any,
) -> pd.DataFrame:
    """Every error that a broker answered with: `kwsniff errors` as a DataFrame.

    Args:
        paths: as of `kwsniff.calls`.
        table: ``errors`` (by client, API, topic and partition) or ``codes``.
        where, since, until, tz: which calls count, as of `kwsniff.calls`.
        config: fields of `kwsniff.Config`; with ``full=True`` errors are found in bodies, too.

    Raises:
        As `kwsniff.calls`; ValueError if there is no such table.

    Example:
        >>> import kwsniff
        >>> kwsniff.errors("captures/stale-leader.pcapng.zst", table="codes")[["error", "count", "clients"]]
                               error  count  clients
        0     NOT_LEADER_OR_FOLLOWER     60        1
        1  COORDINATOR_NOT_AVAILABLE      2        1
        2        OFFSET_OUT_OF_RANGE      2        1
        3       UNKNOWN_LEADER_EPOCH      2        2
    """  # fmt: skip
    from kwsniff.answers.errors import Errors

    question = Errors(bodies=bool(config.get("full")))
    return _frame(paths, question, table, Selection(where, None, since, until, tz), config)


def audit(
    paths: Source,
    *,
    where: str | None = None,
    since: str | None = None,
    until: str | None = None,
    tz: str = "UTC",
    **config: Any,
) -> pd.DataFrame:
    """Who created, changed and deleted what, with which result: `kwsniff audit` as a DataFrame.

    Args:
        paths: as of `kwsniff.calls`.
        where, since, until, tz: which calls count, as of `kwsniff.calls`.
        config: fields of `kwsniff.Config`.

    Example:
        >>> import kwsniff
        >>> kwsniff.audit("captures/java-admin.pcapng")[["client", "api", "result"]].head(3)
               client           api               result
        0  java-admin  CreateTopics                   ok
        1  java-admin  CreateTopics                   ok
        2  java-admin  ElectLeaders  ELECTION_NOT_NEEDED
    """  # fmt: skip
    from kwsniff.answers.audit import Audit

    return _frame(paths, Audit(), None, Selection(where, None, since, until, tz), config)


def auth(
    paths: Source,
    *,
    table: str | None = None,
    where: str | None = None,
    since: str | None = None,
    until: str | None = None,
    tz: str = "UTC",
    **config: Any,
) -> pd.DataFrame:
    """Who authenticates how, fails, or sends passwords in the clear: `kwsniff auth` as a DataFrame.

    Args:
        paths: as of `kwsniff.calls`.
        table: one of the tables that `kwsniff auth` prints, by its name; the first one if none is given.
        where, since, until, tz: which calls count, as of `kwsniff.calls`.
        config: fields of `kwsniff.Config`.

    Example:
        >>> import kwsniff
        >>> kwsniff.auth("captures/sasl.pcapng")[["user", "mechanism"]].drop_duplicates().head(3)
              user      mechanism
        0    alice          PLAIN
        1    alice  SCRAM-SHA-256
        2  mallory  SCRAM-SHA-256
    """  # fmt: skip
    from kwsniff.answers.auth import Auth

    return _frame(paths, Auth(), table, Selection(where, None, since, until, tz), config)


def upgrade_check(
    paths: Source,
    target: str,
    *,
    table: str = "clients",
    where: str | None = None,
    since: str | None = None,
    until: str | None = None,
    tz: str = "UTC",
    **config: Any,
) -> pd.DataFrame:
    """Which clients brokers of another release would break: `kwsniff upgrade-check` as a DataFrame.

    Args:
        paths: as of `kwsniff.calls`.
        target: release of the brokers after the upgrade, such as ``4.0``.
        table: ``clients`` or ``apis``.
        where, since, until, tz: which calls count, as of `kwsniff.calls`.
        config: fields of `kwsniff.Config`.

    Example:
        >>> import kwsniff
        >>> found = kwsniff.upgrade_check("captures/kafka-0.10-clients.pcapng", "4.0")
        >>> found["verdict"].value_counts().to_dict()
        {'will negotiate': 28}
    """  # fmt: skip
    from kwsniff.answers.upgrade import UpgradeCheck

    return _frame(paths, UpgradeCheck(target), table, Selection(where, None, since, until, tz), config)


def compare(
    paths: Source, other: Source, *, table: str | None = None, where: str | None = None, **config: Any
) -> pd.DataFrame:
    """What differs between two inputs: `kwsniff compare` as a DataFrame.

    Args:
        paths, other: as of `kwsniff.calls`.
        table: one of the tables that `kwsniff compare` prints, by its name; the first one if none is given.
        where: which calls count, as of `kwsniff.calls`.
        config: fields of `kwsniff.Config`.

    Example:
        >>> import kwsniff
        >>> found = kwsniff.compare("captures/librdkafka-produce.pcapng", "captures/slow-broker.pcapng.zst")
        >>> found[["api", "calls_a", "calls_b"]].head(2)
                api  calls_a  calls_b
        0   Produce       30       61
        1  Metadata       18        3
    """
    from kwsniff.answers.compare import Profile, compared

    profiles = (Profile(), Profile())
    for profile, each in zip(profiles, (paths, other), strict=True):
        _take(profile, each, Selection(where), config)
    return _chosen(compared(*profiles), table)


def findings(
    paths: Source,
    *,
    where: str | None = None,
    since: str | None = None,
    until: str | None = None,
    tz: str = "UTC",
    **config: Any,
) -> pd.DataFrame:
    """What somebody should know of an input, the worst first, as a DataFrame (docs/findings.md).

    Rows of severity ``ok`` and ``not_shown`` say what was looked at.

    Args:
        paths: as of `kwsniff.calls`.
        where, since, until, tz: which events count, as of `kwsniff.calls`.
        config: fields of `kwsniff.Config`; among them `thresholds`, pairs of name and value such as
            ``[("slow_ms", 250)]``, which docs/findings.md lists.

    Example:
        >>> import kwsniff
        >>> found = kwsniff.findings("captures/stuck-consumer.pcapng.zst")
        >>> found[found["code"] == "consumer_stands_still"][["severity", "subject"]]
          severity                  subject
        2  warning  billing-stuck@127.0.0.1
    """  # fmt: skip
    from kwsniff.findings import NEEDED, Findings, Thresholds
    from kwsniff.spec.load import catalog

    chosen = Config(**config)
    rules, columns = Findings(Thresholds.of(chosen.thresholds)), NEEDED & frozenset(EVENTS.names)
    for batch in rows(paths, Selection(where, columns, since, until, tz), chosen):
        rules.take(batch)
    known = {code: (error.name, error.retriable) for code, error in catalog().errors.items()}
    return _pandas(rules.table(known))


def _frame(
    source: Source, question: Answer, table: str | None, asked: Selection, config: dict[str, Any]
) -> pd.DataFrame:
    _take(question, source, asked, config)
    return _chosen(question.tables(), table)


def _take(question: Any, source: Source, asked: Selection, config: dict[str, Any]) -> None:
    columns = question.needs & frozenset(EVENTS.names)
    wanted = replace(asked, columns=columns, owned="connection" in columns)
    for batch in rows(source, wanted, Config(**config)):
        question.take(batch)


def _chosen(tables: Sequence[AnswerTable], name: str | None) -> pd.DataFrame:
    found = [each for each in tables if name in (None, each.name)]
    if not found:
        raise ValueError(f"there is no table {name!r}; there are {', '.join(each.name for each in tables)}")
    return _pandas(found[0].arrow())


def _pandas(table: pa.Table) -> pd.DataFrame:
    import pandas as pd

    frame: pd.DataFrame = table.to_pandas(types_mapper=pd.ArrowDtype)
    return frame
