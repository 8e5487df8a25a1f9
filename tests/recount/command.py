"""kwsniff as its users run it, by its command line."""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

from kwsniff.cli.running import run

FINE = (0, 1, 3)
"""Exit codes: all is well, something was found, the input was damaged."""


def printed(*words: str) -> str:
    """What a command prints. It runs in this process: importing takes longer than most answers."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as told:
        sys.stdout.flush()
        sys.stderr.flush()
        kept = os.dup(1), os.dup(2)
        try:
            os.dup2(out.fileno(), 1)
            os.dup2(told.fileno(), 2)
            code = run(words)
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            for place, former in zip((1, 2), kept, strict=True):
                os.dup2(former, place)
                os.close(former)
        out.seek(0)
        told.seek(0)
        assert code in FINE, told.read().decode()
        return out.read().decode()


def answer(*words: str) -> dict[str, Any]:
    """All rows that a command answers."""
    found: dict[str, Any] = json.loads(printed(*words, "-f", "json", "-q", "--top", "0"))
    return found


def page(path: str, folder: Path) -> dict[str, Any]:
    """The data in the page of the report."""
    file = folder / "page.html"
    printed("report", path, "-q", "--html", str(file))
    script = r'<script type="application/json" id="data">(.*?)</script>'
    found = re.search(script, file.read_text(), re.DOTALL)
    assert found is not None
    data: dict[str, Any] = json.loads(found[1])
    return data
