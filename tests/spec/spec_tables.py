"""The published facts in `tests/data`, read without any help of the product."""

from __future__ import annotations

import csv
import gzip
import json
from functools import cache
from pathlib import Path
from typing import Any

DATA = Path(__file__).resolve().parent.parent / "data"
RENAMED = {"ListClientMetricsResources": "ListConfigResources"}


@cache
def messages() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((DATA / "messages.json").read_text(encoding="utf-8"))
    return found


@cache
def guide_tables() -> list[dict[str, Any]]:
    with gzip.open(DATA / "guide_tables.jsonl.gz", "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


@cache
def error_codes() -> dict[int, tuple[str, bool]]:
    with (DATA / "error_codes.csv").open(encoding="utf-8") as file:
        return {int(r["code"]): (r["name"], r["retriable"] == "true") for r in csv.DictReader(file)}


def covers(ranges: str | None, version: int) -> bool:
    """Whether a version lies in ranges such as `3+`, `0-5` or `0,2-4`."""
    if ranges in (None, "none"):
        return False
    for part in str(ranges).split(","):
        low, _, high = part.rstrip("+").partition("-")
        last = 1 << 15 if part.endswith("+") else int(high or low)
        if int(low) <= version <= last:
            return True
    return False


def versions_of(message: dict[str, Any]) -> range:
    low, _, high = message["versions"].partition("-")
    return range(int(low), int(high or low) + 1)


def all_versions() -> list[tuple[dict[str, Any], int]]:
    """Every (message, version)."""
    return [(message, version) for message in messages() for version in versions_of(message)]
