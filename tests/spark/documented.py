"""What docs/spark.md shows to be run: commands, Python, and what is printed beneath."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "spark.md"
FENCED = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`((?:kwsniff|python|spark-submit|tcpdump|pip|duckdb) [^`]+)`")
GIVEN = re.compile(r"/|://|results")
"""A sentence that names a command without what it is about shows nothing to be run."""
SHELL = re.compile(r"(?:kwsniff|python|pip|tcpdump|duckdb|spark-submit) |MAIN=")


@cache
def text() -> str:
    """The page."""
    return PAGE.read_text(encoding="utf-8")


def commands() -> list[str]:
    """Every command of the page, each once: lines of blocks, put together where they are continued, and what
    sentences and tables name with its arguments."""
    found = [line for kind, block in FENCED.findall(text()) if not kind for line in _lines(block)]
    sentences = FENCED.sub("", text()).replace("\n", " ")
    named = [each for each in INLINE.findall(sentences) if GIVEN.search(each)]
    return list(dict.fromkeys([*found, *named]))


def _lines(block: str) -> Iterator[str]:
    for line in re.sub(r"\\\n\s*", "", block).splitlines():
        if SHELL.match(line):
            yield line.strip()


def python() -> list[tuple[str, str | None]]:
    """Every block of Python, and the block without a language that follows it at once: what it prints."""
    blocks = re.findall(r"^```python\n(.*?)^```\n(?:^```\n(.*?)^```)?", text(), re.MULTILINE | re.DOTALL)
    return [(code, None if SHELL.match(said) else said or None) for code, said in blocks]


def sql() -> list[str]:
    """Every block of SQL."""
    return [block for kind, block in FENCED.findall(text()) if kind == "sql"]
