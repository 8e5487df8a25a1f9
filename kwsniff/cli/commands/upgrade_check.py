"""`kwsniff upgrade-check`: its options, and what they ask for."""

from __future__ import annotations

from typing import Annotated

import typer

from kwsniff.cli.asked import Asked, asking
from kwsniff.cli.options import CHOICE

EXAMPLES = (
    "kwsniff upgrade-check --target 4.0 trace.pcapng",
    "kwsniff upgrade-check --target 4.3 captures/ -f csv --table apis",
)


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
