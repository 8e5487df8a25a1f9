"""Events for a command: the pipeline over its inputs, watched for damage, with names filled in.

Invariant: what passes through is what the pipeline gave, in its order; watching never takes a row away.
"""

from __future__ import annotations

import os
import re
import stat
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from kwsniff.capture.place import is_directory, is_remote, local, recursive
from kwsniff.cli.problem import CommandError, said
from kwsniff.config import LEAST_MEMORY, Config, bytes_of, ports_of
from kwsniff.report.trust import DAMAGE

UNREAD = "capture_unreadable"


class Damage:
    """Counts what was damaged in the events that pass, and names files that could not be read."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._first = ""
        self._unread = 0

    def watch(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The same batches."""
        for batch in batches:
            self._look(batch)
            yield batch
            del batch  # before the next is made

    def _look(self, batch: pa.RecordBatch) -> None:
        if batch["code"].null_count == batch.num_rows:
            return
        hit = pc.fill_null(pc.is_in(batch["code"], pa.array(DAMAGE, pa.string())), False)
        if not pc.any(hit).as_py():
            return
        for row in batch.select(["code", "capture", "packet", "detail"]).filter(hit).to_pylist():
            if row["code"] == UNREAD:
                self._unread += 1
                said(f"{row['capture']}: {row['detail']}; it is passed over")
                continue
            self._counts[row["code"]] += 1
            self._first = self._first or _place(row)

    def __bool__(self) -> bool:
        return bool(self._counts or self._unread)

    def line(self) -> str:
        """What was damaged, in one line; files that could not be read were named before."""
        if not self._counts:
            return f"{self._unread:,} file{'' if self._unread == 1 else 's'} could not be read"
        counts = ", ".join(f"{count} {code}" for code, count in sorted(self._counts.items()))
        return f"part of the input was damaged: {counts} (first: {self._first})"


def _place(row: dict[str, Any]) -> str:
    packet = "" if row["packet"] is None else f", packet {row['packet']}"
    detail = f": {row['detail']}" if row["detail"] else ""
    return f"{row['capture'] or 'input'}{packet}{detail}"


def parsed_ports(text: str | None, default: tuple[int, ...]) -> tuple[int, ...]:
    """Ports from a list such as ``9092,19092-19094``.

    Raises:
        CommandError: a part is no port or range of ports.
    """
    if text is None:
        return default
    try:
        return ports_of(text)
    except ValueError as error:
        raise CommandError(f"--port: {error}") from None


def from_pipe(paths: Sequence[str]) -> bool:
    """Whether something comes through a pipe (standard input, a named pipe), so that it may still be
    written."""
    return any(is_pipe(path) for path in paths)


PATIENCE_S = 60.0
"""Seconds after which a request counts as unanswered though its connection is open."""


def patient(config: Config) -> Config:
    """The configuration for input that tells the time, as what comes when it is captured does."""
    return replace(config, request_timeout=PATIENCE_S)


def is_pipe(path: str) -> bool:
    """Whether this is neither a file nor a directory."""
    try:
        mode = (os.fstat(sys.stdin.fileno()) if path == "-" else os.stat(path)).st_mode
    except (OSError, ValueError):
        return path == "-"
    return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)


def deeper(paths: Sequence[str]) -> list[str]:
    """The paths, each directory with the directories in it."""
    return [recursive(path) if _is_directory(path) else path for path in paths]


def _is_directory(path: str) -> bool:
    return is_directory(path) if is_remote(path) else os.path.isdir(local(path))


def refuse_overwriting(output: str | None, paths: Sequence[str]) -> None:
    """Raise CommandError if the output would replace an input."""
    if output in (None, "-"):
        return
    target = os.path.realpath(str(output))
    for path in paths:
        if path != "-" and os.path.realpath(path) == target:
            raise CommandError(f"-o {output} is one of the inputs")


def refuse_bodies(columns: frozenset[str], *, full: bool) -> None:
    """Raise CommandError if an expression, which uses these columns, looks into bodies that are not
    decoded."""
    asked = sorted(columns & {"request", "response"})
    if asked and not full:
        raise CommandError(f"--where looks into the body of the {asked[0]}, which needs --full")


def parsed_size(text: str, option: str) -> int:
    """Bytes from a number with K, M or G (powers of 1000), or without.

    Raises:
        CommandError: it is no size; the message names the option.
    """
    try:
        return bytes_of(text)
    except ValueError as error:
        raise CommandError(f"{option}: {error}") from None


def parsed_duration(text: str | None, option: str) -> float | None:
    """Seconds from a number with s, m, h or d, or without; None for None.

    Raises:
        CommandError: it is no time above zero; the message names the option.
    """
    if text is None:
        return None
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(|s|m|h|d)", text.strip())
    seconds = float(found[1]) * {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400}[found[2]] if found else 0.0
    if seconds <= 0:
        raise CommandError(f"{option}: {text!r} is no time such as 90s, 10m or 2h")
    return seconds


def config_within(memory: str, **choices: Any) -> Config:
    """The configuration for `--max-memory`: bytes, or a number with K, M or G (powers of 1000).

    Raises:
        CommandError: it is no size, or too small to run in.
    """
    size = parsed_size(memory, "--max-memory")
    try:
        return Config.within(size, **choices)
    except ValueError:
        raise CommandError(
            f"--max-memory: {memory} is too little, kwsniff takes {LEAST_MEMORY // 10**6}M at least"
        ) from None
