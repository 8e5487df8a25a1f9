"""`kwsniff schema`: its options, and what they ask for."""

from __future__ import annotations

from typing import Annotated

import typer

from kwsniff.cli.options import OUTPUT

EXAMPLES = ("kwsniff schema", "kwsniff schema where", "kwsniff schema call -f csv")


def schema(
    part: Annotated[
        str | None,
        typer.Argument(
            metavar="[PART]",
            help="call, anomaly, connection, partitions, resources, status, unanswered_because, closed_by, "
            "security, code or where. Default: everything.",
            show_default=False,
        ),
    ] = None,
    form: Annotated[
        str,
        typer.Option(
            "-f", "--format", metavar="FORMAT", help="text, csv, json or markdown.", rich_help_panel=OUTPUT
        ),
    ] = "text",
) -> None:
    """Print what each column means, and the language of --where.

    For each kind of row, its columns with type, unit and meaning.
    """
    from kwsniff.cli.schema import schema as job

    raise typer.Exit(job(part, form))
