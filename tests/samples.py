"""The recorded samples of `captures/` and what is known of them from elsewhere."""

from __future__ import annotations

import csv
import gzip
import json
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from kwsniff.config import Config
from kwsniff.run.offline import events

CAPTURES = Path(__file__).parent.parent / "captures"
Row = dict[str, Any]


@dataclass(frozen=True)
class Sample:
    """One recording: its files, and the note its recorder wrote beside it."""

    name: str

    @cached_property
    def note(self) -> Row:
        note: Row = json.loads((CAPTURES / "expected" / f"{self.name}.json").read_text())
        return note

    @property
    def paths(self) -> list[str]:
        return [str(CAPTURES / name) for name in self.note["files"]]

    def events(self, **choices: Any) -> list[Row]:
        """All events, decoded in this process; with the secrets of a sample that has some."""
        if "keys" in self.note:
            choices = {"keylog": str(CAPTURES / self.note["keys"])} | choices
        return [row for batch in events(self.paths, Config(**choices)) for row in batch.to_pylist()]

    @cached_property
    def calls(self) -> list[Row]:
        return [row for row in self.events() if row["event"] == "call"]

    def tshark(self) -> Iterator[Row]:
        """What tshark saw, a row a packet, as saved when the sample was recorded."""
        with gzip.open(CAPTURES / "expected" / self.note["tshark"], "rt") as file:
            yield from csv.DictReader(file)

    def packets_before(self) -> dict[str, int]:
        """For each file of a rotation, the packets in the files before it: tshark read them as one."""
        from kwsniff.capture.source import CaptureTotals, segments

        before: dict[str, int] = {}
        totals = CaptureTotals()
        for path in self.paths:
            before[path] = totals.packets
            for _ in segments([path], Config(), totals):
                pass
        return before


def tshark_finds(path: str | Path, ports: Iterable[int]) -> Iterator[tuple[int, ...]]:
    """Requests as the installed tshark finds them: packet, correlation id, API key, version."""
    asked = [part for port in ports for part in ("-d", f"tcp.port=={port},kafka")]
    fields = ["frame.number", "kafka.correlation_id", "kafka.request_key", "kafka.request.version"]
    command = ["tshark", "-r", str(path), *asked, "-Y", "kafka.request_key", "-T", "fields"]
    command += [part for name in fields for part in ("-e", name)]
    for line in subprocess.run(command, capture_output=True, text=True, check=False).stdout.splitlines():
        frame, *columns = line.split("\t")
        for values in zip(*(column.split(",") for column in columns), strict=False):
            yield (int(frame), *(int(value, 0) for value in values))


@cache
def sample(name: str) -> Sample:
    return Sample(name)


def names() -> list[str]:
    """Samples that are read without a key log."""
    return [name for name in _recorded() if "keys" not in sample(name).note]


def encrypted() -> list[str]:
    """Samples of traffic over TLS that come with its secrets."""
    return [name for name in _recorded() if "keys" in sample(name).note]


def _recorded() -> list[str]:
    return sorted(path.stem for path in (CAPTURES / "expected").glob("*.json"))
