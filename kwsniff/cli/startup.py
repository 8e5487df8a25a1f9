"""What a short-lived command does without."""

from __future__ import annotations

import sys
from importlib.abc import MetaPathFinder

OWN_PROCESS = object()
"""Tells a command that the process is its own, to be tuned for it and gone afterwards."""


def spare_pandas() -> None:
    """Keep pyarrow from importing pandas, which it does for the first array it makes of Python values, only
    to see whether they are pandas'. It asks once, and costs a tiny `decode` a third of its time."""
    if "pandas" in sys.modules:
        return
    import pyarrow as pa

    finder = _NoPandas()
    sys.meta_path.insert(0, finder)
    try:
        pa.array([None])
    finally:
        sys.meta_path.remove(finder)


class _NoPandas(MetaPathFinder):
    """Says that there is no pandas."""

    def find_spec(self, fullname: str, path: object, target: object = None) -> None:
        if fullname == "pandas":
            raise ModuleNotFoundError(fullname)
