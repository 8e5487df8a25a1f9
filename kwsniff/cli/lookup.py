"""The job of `kwsniff schema`: the columns of every kind of row, and the language of `--where`."""

from __future__ import annotations

import csv
import json
import sys
import textwrap
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from kwsniff.cli import problem
from kwsniff.cli.problem import CommandError, suggestion
from kwsniff.cli.request import Request
from kwsniff.count.where.name import SHORT
from kwsniff.rows.events import ANOMALIES, CLOSED_BY, SECURITY, STATUSES, UNANSWERED_REASONS
from kwsniff.rows.schema import ALL, COLUMNS, ITEMS, Column
from kwsniff.spec import describe
from kwsniff.spec.load import catalog

# The language of `--where` in words, for `kwsniff schema` and the documentation.

INTRODUCTION = """An expression over the columns. Rows for which it is true are taken. Words of the language
(and, or, not, in, is, like, between, true, none) may be written in any case. A mistake is named with its
position before any input is read: a column that there is not, a number compared with text, an API, error or
status that no call can have."""

RULES = (
    ("== != < <= > >=", "compare; also chained: 1ms < latency < 2ms"),
    ("and or not ( )", "join tests"),
    ("+ - * /", "with numbers; a quotient is a fraction"),
    ("x between a and b", "a <= x and x <= b"),
    ('x in ("a", "b")', "one of several; [ ] may be written for ( )"),
    ('"a" in topics', "a list column holds it"),
    ('"a" in client_id', "a text holds it"),
    ('x ~ "regular expression"', "RE2, anywhere in the text; !~ is its opposite"),
    ('x like "pattern"', "% stands for any characters, _ for one"),
    ("x == None", "there is no value; also x is none, x is null, x is not null"),
    ("100us 5ms 2s 10min 1h", "times, for columns of µs or ms; a bare number is in the column's unit"),
    ("10B 10kB 5MB 1GB 64KiB", "sizes, for columns of bytes; kB is 1,000 bytes, KiB 1,024"),
    ("time > 12:03:05", "time of day, in the zone of --tz (UTC)"),
    (
        "time >= 2026-01-31T12:00:00Z",
        "moment in ISO 8601, with or without quotes; without a zone it is that of --tz",
    ),
    (
        "client_ip in 10.0.0.0/8",
        "an address or range of client_ip, broker_ip, client or broker; IPv6 as well",
    ),
    ("partitions.error_code", "that field of each partition: 6 in partitions.error_code"),
    ("request.topics.name", "field of a decoded body, named as kwsniff protocol does; decode needs --full"),
    ('contains(x, "t")', 'also x.contains("t"); and so startswith, endswith, matches (RE2)'),
    ("lower(x) upper(x) len(x) abs(x)", "len is of a text or a list"),
)
"""What can be written, and what it means."""

NAMES = (
    *SHORT.items(),
    (
        "latency duration throttle waited rtt ...",
        "latency_us and so on: columns without the unit in their name",
    ),
    ("error == None", "error has no value where the code is 0, so error != None are the failures"),
)
"""Names that are no columns, and what they stand for."""

LOGIC = """A column without a value equals nothing but None: comparing it is false, != and not in are true; a
missing list holds nothing, and a flag such as syn without a value counts as false."""

EXAMPLES = (
    'api == "Fetch" and latency > 100ms',
    'error != None and topic == "orders"',
    'status in ("error", "unanswered") and client_ip in 10.20.0.0/16',
    'client like "billing-%" and broker == "10.0.0.9:9092"',
    "request_bytes > 1MB or record_count > 10000",
    'event == "connection" and (rst or handshake > 50ms)',
    'api ~ "^(Join|Sync|Leave)Group$" AND group == "payments"',
    "time between 12:03:05 and 12:04",
    "6 in partitions.error_code",
    "len(topics) > 1",
    "request.acks == 0",
)


FORMATS = ("text", "csv", "json", "markdown")
KINDS = {
    "call": "Calls: a request with its response",
    "exchange": "Exchanges: of TLS without keys, what is taken for a request and its response",
    "anomaly": "Anomalies: something is not as it should be",
    "connection": "Connections: one row when a connection ends, or the capture does",
}
PARTS = {
    "partitions": "Items of partitions: what a data call says of each partition",
    "resources": "Items of resources: what an administrative call is about",
}
VALUES = {
    "status": ("Values of status", STATUSES),
    "unanswered_because": ("Values of unanswered_because", UNANSWERED_REASONS),
    "closed_by": ("Values of closed_by", CLOSED_BY),
    "security": ("Values of security", SECURITY),
    "code": ("Values of code", ANOMALIES),
}
WHERE = "where"
WIDTH = 98
TOPICS = (*KINDS, *PARTS, *VALUES, WHERE)
"""What can be asked for."""


class SchemaTable(NamedTuple):
    """One table of the answer."""

    name: str
    title: str
    head: Sequence[str]
    rows: list[tuple[str, ...]]


def schema(request: Request, topic: str | None) -> int:
    """Print the schema, or the part of it that is asked for; return the exit code. Raises CommandError."""
    form = str(request.form)
    if form not in FORMATS:
        raise CommandError(f"-f: unknown format {form!r}{suggestion(form, FORMATS)}")
    if topic is not None and topic not in TOPICS:
        raise CommandError(f"there is no {topic!r}{suggestion(topic, TOPICS)}; there are {', '.join(TOPICS)}")
    tables = [table for table in _tables() if topic in (None, table.name)]
    {"text": _text, "csv": _csv, "json": _json, "markdown": _markdown}[form](tables)
    return problem.DONE


def _tables() -> Iterator[SchemaTable]:
    head = ("column", "type", "unit", "meaning", "from")
    for kind, title in KINDS.items():
        # What all kinds of rows have stands once, with the calls.
        columns = [each for each in COLUMNS if kind in each.kinds and (kind == "call" or each.kinds != ALL)]
        yield SchemaTable(kind, title, head, [_described(each) for each in columns])
    for name, title in PARTS.items():
        yield SchemaTable(name, title, ("field", *head[1:]), [_described(each) for each in ITEMS[name]])
    for name, (title, values) in VALUES.items():
        yield SchemaTable(name, title, ("value", "meaning"), [*values.items()])
    yield SchemaTable(WHERE, "The language of --where", ("written", "meaning"), [*RULES])
    yield SchemaTable(WHERE, "Names in --where that are no columns", ("name", "meaning"), [*NAMES])
    yield SchemaTable(WHERE, "Examples", ("expression",), [(line,) for line in EXAMPLES])


def _described(column: Column) -> tuple[str, ...]:
    return column.name, type_name(column), column.unit, column.meaning, column.source


def type_name(column: Column) -> str:
    """The type in a word; what a list column of structs holds has a table of its own."""
    return f"list of {column.name}" if column.name in ITEMS else str(column.type).replace(", tz=UTC", ", UTC")


# Formats


def _text(tables: list[SchemaTable]) -> None:
    parts = []
    for table in tables:
        if table.title == "The language of --where":
            parts.append(f"{table.title}\n\n{_wrapped(INTRODUCTION)}\n\n{_wrapped(LOGIC)}\n")
        parts.append(
            (f"{table.title}\n\n" if len(parts) == 0 or table.name != WHERE else "") + _aligned(table)
        )
    print("\n".join(parts), end="")


def _wrapped(text: str) -> str:
    return textwrap.fill(" ".join(text.split()), WIDTH)


def _aligned(table: SchemaTable) -> str:
    """The rows in columns, the meaning last and wrapped; where it comes from is left to the other formats."""
    rows = [tuple(row[:4]) for row in (tuple(table.head), *table.rows)]
    widths = [min(max(len(row[at]) for row in rows), 30) for at in range(len(rows[0]) - 1)]
    return "".join(_line(row, widths) for row in rows)


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    before = "".join(f"  {cell.ljust(width)}" for cell, width in zip(row, widths, strict=False)) + "  "
    indent = 4 + sum(width + 2 for width in widths) if widths else 2
    if len(before) > indent:
        return f"{before.rstrip()}\n" + textwrap.fill(row[-1], WIDTH, initial_indent=" " * indent) + "\n"
    return textwrap.fill(row[-1], WIDTH, initial_indent=before, subsequent_indent=" " * indent) + "\n"


def _csv(tables: list[SchemaTable]) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(("table", "name", "type", "unit", "meaning", "from"))
    for table in tables:
        for row in table.rows:
            cells = row if len(row) == 5 else (row[0], "", "", *row[1:2], *[""] * (2 - len(row[1:2])))
            writer.writerow((table.name, *cells))


def _json(tables: list[SchemaTable]) -> None:
    result: dict[str, list[dict[str, Any]]] = {}
    for table in tables:
        rows = [dict(zip(table.head, row, strict=True)) for row in table.rows]
        result.setdefault(table.name, []).extend(rows)
    print(json.dumps(result, ensure_ascii=False, indent=2))


def _markdown(tables: list[SchemaTable]) -> None:
    print(PAGE, end="")
    for table in tables:
        print(f"\n## {table.title}\n")
        if table.title == "The language of --where":
            print(f"{INTRODUCTION}\n\n{LOGIC}\n")
        if len(table.head) == 1:
            print("```where", *(row[0] for row in table.rows), "```", sep="\n")
            continue
        print(f"| {' | '.join(table.head)} |\n|{' --- |' * len(table.head)}")
        for row in table.rows:
            print(f"| `{row[0]}` | {' | '.join(_escaped(cell) for cell in row[1:])} |")


def _escaped(cell: str) -> str:
    return cell.replace("|", "\\|").replace("*", "\\*").replace("<", "&lt;")


PAGE = """# Columns, and the language of --where

Made by `kwsniff schema -f markdown`; a test fails when it is out of date. `kwsniff schema` prints the same on
a terminal, `kwsniff schema call` one part of it, with `-f csv` or `-f json` for programs.

Every event is a row of one flat table, in JSON lines, CSV, Parquet and Python alike. A column is empty in
kinds of rows that don't have it, and where the capture can't show it. Times are UTC. Units: µs and ms are
durations, `time` is a moment, `offset` a position in a partition's log, `code` a number that the protocol
gives a meaning.
"""

# The job of `kwsniff protocol`: the dissectors as a table, as one layout, or as data.

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
