"""kwsniff as its users run it, by its command line."""

from __future__ import annotations

import json
import re
import tempfile
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

from kwsniff.cli.running import run

FINE = (0, 1, 3)
"""Exit codes: all is well, something was found, the input was damaged."""


def printed(*words: str) -> str:
    """What a command prints. It runs in this process: importing takes longer than most answers."""
    with tempfile.TemporaryDirectory() as folder:
        out, told = Path(folder) / "out", Path(folder) / "told"
        with (
            out.open("w") as shown,
            told.open("w") as errors,
            redirect_stdout(shown),
            redirect_stderr(errors),
        ):
            code = run(words)
        assert code in FINE, (words, told.read_text())
        return out.read_text()


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
