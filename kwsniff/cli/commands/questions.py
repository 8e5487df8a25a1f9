"""The commands that answer a question: their options, and what they ask for."""

from __future__ import annotations

from typing import Annotated

import typer

from kwsniff.cli.asked import Asked, asking
from kwsniff.cli.options import CHOICE, FirstInput

EXAMPLES = {
    "slow": (
        "kwsniff slow trace.pcapng",
        "kwsniff slow trace.pcapng --where 'api == \"Produce\" and latency > 1s' --top 5",
    ),
    "errors": (
        "kwsniff errors trace.pcapng",
        "kwsniff errors trace.pcapng --full --where 'topic == \"orders\"'",
        "kwsniff errors captures/ -f csv --top 0",
    ),
    "clients": (
        "kwsniff clients trace.pcapng",
        "kwsniff clients trace.pcapng --topic orders",
        "kwsniff clients results/events -f csv --table settings",
    ),
    "groups": (
        "kwsniff groups trace.pcapng",
        "kwsniff groups trace.pcapng --group payments --table lag --sort lag",
    ),
    "compare": (
        "kwsniff compare before.pcapng after.pcapng",
        "kwsniff compare trace.pcapng --a /12:03 --b 12:03/",
        "kwsniff compare monday.parquet tuesday.parquet --where 'topic == \"orders\"'",
    ),
    "audit": (
        "kwsniff audit trace.pcapng",
        "kwsniff audit captures/ --where 'api == \"DeleteTopics\"' -f csv",
    ),
    "auth": ("kwsniff auth trace.pcapng", "kwsniff auth captures/ --table failures -f csv"),
    "upgrade_check": (
        "kwsniff upgrade-check --target 4.0 trace.pcapng",
        "kwsniff upgrade-check --target 4.3 captures/ -f csv --table apis",
    ),
}


@asking
def slow(
    asked: Asked,
    waiting: Annotated[
        bool,
        typer.Option(
            "--waiting",
            help="Also calls that wait on purpose: Fetch without data, JoinGroup, SyncGroup.",
            rich_help_panel=CHOICE,
        ),
    ] = False,
) -> int:
    """Show which calls and clients took longest, and why.

    Tables: calls, clients (a row for each client, API and broker).
    """
    from kwsniff.answers.slow import Slow
    from kwsniff.cli.answering import answer

    return answer(asked, Slow(waiting=waiting))


@asking
def errors(
    asked: Asked,
    full: Annotated[
        bool,
        typer.Option(
            "--full",
            help="Look into bodies, for error codes that stand anywhere in them; slower.",
            rich_help_panel=CHOICE,
        ),
    ] = False,
) -> int:
    """Show who got which error, for which topic, and when.

    Every error code of every response counts, whether it can be retried or not. Tables: errors, codes (a row
    for each code with its meaning).
    """
    from kwsniff.answers.errors import Errors
    from kwsniff.cli.answering import answer

    return answer(asked, Errors(bodies=full))


@asking
def clients(
    asked: Asked,
    topic: Annotated[
        str | None,
        typer.Option("--topic", metavar="NAME", help="Only who uses this topic.", rich_help_panel=CHOICE),
    ] = None,
    full: Annotated[
        bool,
        typer.Option(
            "--full", help="Look into bodies too, for isolation levels; slower.", rich_help_panel=CHOICE
        ),
    ] = False,
) -> int:
    """Show who uses which topic, in which group, and how.

    Each client is shown with its address, software and user. Tables: uses (a row for each client and topic),
    clients, settings.
    """
    from kwsniff.answers.clients import Clients
    from kwsniff.cli.answering import answer

    return answer(asked, Clients(topic, bodies=full))


@asking
def groups(
    asked: Asked,
    group: Annotated[
        str | None, typer.Option("--group", metavar="NAME", help="Only this group.", rich_help_panel=CHOICE)
    ] = None,
) -> int:
    """Show rebalances and their causes, members, commits and lag.

    For each rebalance, who joined or left. Lag is as far as the packets show it. Tables: rebalances,
    members, lag.
    """
    from kwsniff.answers.groups import Groups
    from kwsniff.cli.answering import answer

    return answer(asked, Groups(group))


def _compare(
    asked: Asked,
    other: Annotated[
        str | None,
        typer.Argument(
            metavar="[B]",
            help="The second input, of the same kinds; without one, --a and --b are windows of A.",
            show_default=False,
        ),
    ] = None,
    a: Annotated[
        str | None,
        typer.Option(
            "--a",
            metavar="FROM/UNTIL",
            help="Of A only this time, such as 12:03:05/12:04; one side may be left out.",
            rich_help_panel=CHOICE,
        ),
    ] = None,
    b: Annotated[
        str | None,
        typer.Option(
            "--b", metavar="FROM/UNTIL", help="Of B, or of A a second time, likewise.", rich_help_panel=CHOICE
        ),
    ] = None,
) -> int:
    """Compare inputs or windows of one: latency, errors, clients.

    What got slower is shown with the size of the effect and the counts. Tables: latency, errors,
    clients (who came and went).
    """
    from kwsniff.cli.comparing import compare as job

    return job(asked, other, (a, b))


compare = asking(_compare, files=FirstInput, without=frozenset(("recursive",)))


@asking
def audit(asked: Asked) -> int:
    """Show who created, changed or deleted what.

    Topics, settings, ACLs, users, quotas, offsets and groups: a line for each, with its own result.
    Credentials are never shown.
    """
    from kwsniff.answers.audit import Audit
    from kwsniff.cli.answering import answer

    return answer(asked, Audit())


@asking
def auth(asked: Asked) -> int:
    """Show who logs in how, who fails, and what is unencrypted.

    Tables: logins, failures, denied.
    """
    from kwsniff.answers.auth import Auth
    from kwsniff.cli.answering import answer

    return answer(asked, Auth())


@asking
def upgrade_check(
    asked: Asked,
    target: Annotated[
        str,
        typer.Option(
            "--target",
            metavar="RELEASE",
            help="Release of the brokers after the upgrade, such as 4.0 or 4.1.",
            rich_help_panel=CHOICE,
        ),
    ],
) -> int:
    """Show which clients another release of brokers would break.

    The verdict is breaks, will negotiate or unknown. A client that uses an old version only because its
    broker offers no newer one does not break. Exit code 1 says that a client breaks. Tables: clients, apis
    (versions that the release does not serve).
    """
    from kwsniff.answers.upgrade import UpgradeCheck
    from kwsniff.cli.answering import answer
    from kwsniff.cli.problem import DONE, FINDINGS, CommandError

    try:
        question = UpgradeCheck(target)
    except ValueError as error:
        raise CommandError(f"--target: {error}") from None
    code = answer(asked, question)
    return FINDINGS if code == DONE and question.breaks() else code
