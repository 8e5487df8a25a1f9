"""`kwsniff follow`: its options, and what they ask for."""

from __future__ import annotations

from typing import Annotated

import typer

from kwsniff.cli.asked import Asked, asking
from kwsniff.cli.options import CHOICE, OneInput

EXAMPLES = (
    "kwsniff follow trace.pcapng 4905ac74e8683338",
    "kwsniff follow trace.pcapng payments --as group --since 12:03:05",
)
LEFT_OUT = frozenset(("table", "sort"))


def _follow(
    asked: Asked,
    what: Annotated[
        str,
        typer.Argument(
            metavar="CONNECTION|CLIENT|GROUP|TOPIC",
            help="The beginning of a connection's id, a client id or address, a group, or a topic.",
            show_default=False,
        ),
    ],
    kind: Annotated[
        str | None,
        typer.Option(
            "--as",
            metavar="KIND",
            help="connection, client, group or topic, where one name is several of them.",
            rich_help_panel=CHOICE,
        ),
    ] = None,
) -> int:
    """Show a conversation in order: each request, each response.

    One line each, with its packets.
    """
    from kwsniff.answers.conversation import KINDS, Follow
    from kwsniff.cli.answering import answer
    from kwsniff.cli.problem import CommandError, suggestion

    if kind is not None and kind not in KINDS:
        raise CommandError(f"--as: {kind!r} is none of {', '.join(KINDS)}{suggestion(kind, KINDS)}")
    return answer(asked, Follow(what, kind))


follow = asking(_follow, without=LEFT_OUT, files=OneInput)
