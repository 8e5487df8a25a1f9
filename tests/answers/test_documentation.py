"""docs/answers.md shows what the commands print: every `$ kwsniff` of it is run from the folder of the
samples.

`pytest --update-golden` writes what they print now.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.answers.conftest import QUIET, Ended

PAGE = Path(__file__).parents[2] / "docs" / "answers.md"
BLOCK = re.compile(r"```console\n\$ (kwsniff [^\n]*)\n(.*?)```", re.DOTALL)


def test_every_output_in_the_page_is_what_its_command_prints(
    kwsniff: Callable[..., Ended], request: pytest.FixtureRequest
) -> None:
    page = PAGE.read_text(encoding="utf-8")

    def now(found: re.Match[str]) -> str:
        words = shlex.split(found[1])[1:]
        ended = kwsniff(*words, *([] if words[0] in QUIET else ["-q"]))
        assert ended.code in (0, 1), ended.err
        return f"```console\n$ {found[1]}\n{ended.out}```"

    assert len(BLOCK.findall(page)) >= 2
    made = BLOCK.sub(now, page)
    if request.config.getoption("--update-golden"):
        PAGE.write_text(made, encoding="utf-8")
    assert made == PAGE.read_text(encoding="utf-8")
