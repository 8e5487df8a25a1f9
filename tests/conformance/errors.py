"""Error codes of a release, asked of its own classes by a small Java program."""

from __future__ import annotations

import csv
import subprocess
from collections.abc import Iterator
from pathlib import Path

from kwsniff.spec.parse import ErrorCode
from tests.conformance.compare import Finding

PROGRAM = Path(__file__).with_name("Errors.java")
_SECONDS = 60


def read(folder: Path) -> dict[int, tuple[str, bool]]:
    """Name and retriability of each code.

    Args:
        folder: the jars that `jars.fetch` put there.
    """
    command = ["java", "-cp", f"{folder}/*", str(PROGRAM)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=True)
    return {
        int(code): (name, retriable == "true")
        for code, name, retriable in csv.reader(done.stdout.splitlines())
    }


def compare(published: dict[int, tuple[str, bool]], known: dict[int, ErrorCode]) -> Iterator[Finding]:
    """Every code of the release; that it lacks some of ours is no finding, releases add codes."""
    for code, (name, retriable) in published.items():
        ours = known.get(code)
        if ours is None:
            yield Finding(f"error {code}", "code", name, "nothing")
            continue
        if ours.name != name:
            yield Finding(f"error {code}", "name", name, ours.name)
        if ours.retriable != retriable:
            yield Finding(f"error {code}", "retriable", str(retriable), str(ours.retriable))
