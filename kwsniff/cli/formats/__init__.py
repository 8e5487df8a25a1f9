"""The forms in which `kwsniff decode` writes events: one module each, one writer each."""

from __future__ import annotations

import os
from typing import IO, Protocol
from zoneinfo import ZoneInfo

import pyarrow as pa

from kwsniff.cli.problem import CommandError, suggestion

FORMATS = ("text", "jsonl", "csv", "parquet")
ENDINGS = {
    "": "text",
    ".txt": "text",
    ".text": "text",
    ".log": "text",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".csv": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
}


class Writer(Protocol):
    """Takes EVENTS batches in order."""

    @property
    def note(self) -> str:
        """What whoever reads the output should know, empty if there is nothing."""

    def write(self, batch: pa.RecordBatch) -> None:
        """Write the rows of `batch` to the stream."""

    def close(self) -> None:
        """Write what a complete output ends with. The stream stays open."""


def chosen_format(asked: str | None, output: str | None) -> str:
    """The format asked for, else the one the ending of the output file stands for, else text.

    Raises:
        CommandError: there is no such format, or the ending says nothing.
    """
    if asked is not None:
        if asked not in FORMATS:
            known = ", ".join(FORMATS)
            raise CommandError(f"unknown format {asked!r}{suggestion(asked, FORMATS)}; there are {known}")
        return asked
    if output in (None, "-") or (os.path.exists(str(output)) and not os.path.isfile(str(output))):
        return "text"
    ending = os.path.splitext(str(output))[1].lower()
    if ending not in ENDINGS:
        raise CommandError(f"{output}: the ending {ending} stands for no format; give one with -f")
    return ENDINGS[ending]


def open_writer(
    form: str,
    stream: IO[bytes],
    columns: list[str] | None,
    *,
    width: int | None,
    colour: bool,
    zone: ZoneInfo | None = None,
) -> Writer:
    """A writer of `form` on `stream`.

    Args:
        columns: event columns to write, None for those the format has by default; not for text.
        width: columns of the terminal that text is fitted to; None for lines as long as they are.
        colour: whether text may be coloured.
        zone: time zone of text, None for UTC; other formats are in UTC always.
    """
    if form == "text":
        from kwsniff.cli.formats.text import TextWriter

        return TextWriter(stream, width=width, colour=colour, zone=zone)
    if form == "jsonl":
        from kwsniff.cli.formats.jsonl import JsonlWriter

        return JsonlWriter(stream, columns)
    if form == "csv":
        from kwsniff.cli.formats.csv import CsvWriter

        return CsvWriter(stream, columns)
    from kwsniff.cli.formats.parquet import ParquetWriter

    return ParquetWriter(stream, columns)
