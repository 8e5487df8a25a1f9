"""What is said when a large input is read with interpreted kernels."""

from __future__ import annotations

import os
from collections.abc import Sequence

from kwsniff.cli.problem import said
from kwsniff.native.code import ACT, load

LARGE = 20_000_000
"""Bytes of input that compiled kernels decode in half a second, and interpreted ones in half a minute."""


def tell_if_interpreted(paths: Sequence[str]) -> None:
    """Say in one line that compiled kernels are missing, and how to get them, if that will be felt."""
    if sum(map(_size, paths)) >= LARGE and load(ACT) is None and not chosen():
        said(
            "the kernels are not compiled for this machine, so this takes many times as long: "
            "install kwsniff again here, or run `python -m kwsniff.kernel.build` (needs numba)"
        )


def chosen() -> bool:
    """Whether the user wanted them interpreted."""
    return os.environ.get("KWSNIFF_KERNELS") == "interpreted"


def _size(path: str) -> int:
    """Bytes of a file, or of those directly in a directory; 0 for a pipe, a URL and what is missing."""
    try:
        if os.path.isdir(path):
            with os.scandir(path) as found:
                return sum(each.stat().st_size for each in found if each.is_file())
        return os.stat(path).st_size
    except OSError:
        return 0
