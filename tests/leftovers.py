"""What a test leaves behind in its process, where other tests would find it.

A module that is imported for the first time while a name is replaced (`from kwsniff.run.offline import
events`) keeps the stand-in when the name is put back, so replace it in the modules that look it up, not where
it is defined."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]


def process_state() -> tuple[Path, dict[str, str]]:
    """What tests change only for themselves: the working directory, and the variables that kwsniff reads."""
    return Path.cwd(), {name: value for name, value in os.environ.items() if name.startswith("KWSNIFF_")}


START = process_state()


def leftovers() -> list[str]:
    """What is not as it was before the tests, and names in modules of kwsniff that tests made."""
    state = process_state()
    return [f"{state}, not {START}"] * (state != START) + [*_of_tests()]


def _of_tests() -> Iterator[str]:
    for name, module in [*sys.modules.items()]:
        if name.split(".")[0] == "kwsniff" and module is not None:
            for each, value in vars(module).items():
                if _made_by_tests(value):
                    yield f"{name}.{each}"


def _made_by_tests(value: Any) -> bool:
    """Whether it is a function or a class of one of the tests' modules, or one of these modules."""
    home = sys.modules.get(getattr(value, "__module__", None) or "", value)
    path = getattr(home, "__file__", None)
    return isinstance(path, str) and path.startswith(f"{ROOT / 'tests'}{os.sep}")
