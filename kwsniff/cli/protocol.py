"""The job of `kwsniff protocol`: the dissectors as a table, as one layout, or as data."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

from kwsniff.cli import problem
from kwsniff.cli.problem import CommandError, suggestion
from kwsniff.cli.request import Request
from kwsniff.spec import describe
from kwsniff.spec.load import catalog

DUMP = "dump"


def protocol(request: Request, api: str | None, version: int | None) -> int:
    """Print the list of APIs (`api` None), everything (`dump`), or one layout; return the exit code.

    Raises:
        CommandError: there is no such API, message or version.
    """
    if api is None:
        _print_listing()
    elif api.lower() == DUMP and version is None:
        for message in describe.dump():
            print(json.dumps(message, separators=(",", ":")))
    else:
        print(_layout(api, version), end="")
    return problem.DONE


def _layout(api: str, version: int | None) -> str:
    try:
        return describe.layout(api, version)
    except KeyError:
        names = [row.api for row in describe.listing()]
        names += [message.name for message in catalog().data_messages()]
        raise CommandError(f"no API or data message {api!r}{suggestion(api, names)}") from None
    except ValueError as error:
        raise CommandError(str(error)) from None


HEADINGS = ("key", "api", "versions", "flexible", "in 4.x")


def _print_listing() -> None:
    rows = [(str(row.api_key), row.api, row.versions, row.flexible, row.kafka4) for row in describe.listing()]
    if sys.stdout.isatty():
        _print_table(rows)
        return
    widths = [max(len(row[column]) for row in [HEADINGS, *rows]) for column in range(len(HEADINGS))]
    for row in [HEADINGS, *rows]:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _print_table(rows: Sequence[tuple[str, ...]]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD)
    for heading in HEADINGS:
        table.add_column(heading, justify="right" if heading == "key" else "left")
    for row in rows:
        table.add_row(*row)
    Console().print(table)
