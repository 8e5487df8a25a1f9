"""Every recorded sample yields the events it always did.

`pytest --update-golden` accepts new ones; read the difference before committing it.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.samples import CAPTURES, Row, encrypted, names, sample

GOLDEN = Path(__file__).parent / "data" / "golden"


def _without_nulls(value: Any) -> Any:
    """What a row says: a column that is not filled, also inside of a list, says nothing."""
    if isinstance(value, dict):
        return {name: _without_nulls(item) for name, item in value.items() if item is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value


def _text(row: Row) -> str:
    kept = {name: value for name, value in row.items() if value is not None}
    kept["capture"] = str(Path(kept["capture"]).relative_to(CAPTURES)) if kept.get("capture") else None
    return json.dumps(kept, default=lambda time: time.isoformat(), ensure_ascii=False)


def golden(name: str) -> list[Row]:
    """The events a sample always yielded, without what is null."""
    path = GOLDEN / f"{name}.jsonl.gz"
    return [
        _without_nulls(json.loads(line)) for line in gzip.decompress(path.read_bytes()).decode().split("\n")
    ]


def as_golden(rows: Iterable[Row]) -> list[Row]:
    """Events in the form of golden ones."""
    return [_without_nulls(json.loads(_text(row))) for row in rows]


@pytest.mark.parametrize("name", [*names(), *encrypted()])
def test_a_sample_yields_its_golden_events(name: str, request: pytest.FixtureRequest) -> None:
    rows = sample(name).events()
    if request.config.getoption("--update-golden"):
        GOLDEN.mkdir(exist_ok=True)
        lines = "\n".join(map(_text, rows))
        (GOLDEN / f"{name}.jsonl.gz").write_bytes(gzip.compress(lines.encode(), mtime=0))
    assert as_golden(rows) == golden(name)


def test_no_golden_file_is_left_over() -> None:
    assert {path.name.split(".jsonl")[0] for path in GOLDEN.iterdir()} == {*names(), *encrypted()}
