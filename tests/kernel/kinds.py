"""Running kernels in each of the ways that they can be run in, in one process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from kwsniff.native.code import CHECKED, functions, path_of

KINDS = ("", CHECKED, "interpreted")
"""Values of KWSNIFF_KERNELS: compiled as users have them, compiled with each index checked, interpreted."""


@contextmanager
def kernels(kind: str) -> Iterator[None]:
    """Run kernels so meanwhile."""
    before = os.environ.get("KWSNIFF_KERNELS")
    os.environ["KWSNIFF_KERNELS"] = kind
    functions.cache_clear()
    try:
        yield
    finally:
        os.environ.pop("KWSNIFF_KERNELS")
        if before is not None:
            os.environ["KWSNIFF_KERNELS"] = before
        functions.cache_clear()


def make_checked() -> None:
    """Compile with checks, unless that is done: a minute of one core."""
    if not path_of(CHECKED).exists():
        command = [sys.executable, "-m", "kwsniff.engine.build", "--checked"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
