"""What a process of our own does without: heaps, threads and imports."""

from __future__ import annotations

import ctypes
import importlib
import os
import sys
from contextlib import suppress
from types import ModuleType

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8
"""Of mallopt(3), glibc."""
LARGE, SPARE = 8 << 20, 32 << 20
"""Bytes from which on memory is given back to the system as soon as it is free, and of the heap's end that
may stay free."""


def tuned() -> None:
    """Tune this process, and those it starts, before it has threads and arrays."""
    one_heap()
    spare_pandas()
    spare_manual()


def one_heap() -> None:
    """Let Arrow and all threads take memory from one heap. What a heap has set free it keeps for itself, and
    Arrow's own and one for each thread together kept a fifth of all memory. Once a large piece was free,
    glibc would take the next ones of that size from the heap too, where others in between keep them from
    being given back: batches of 16 MB then took three times as much."""
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    for name, option, value in (
        ("MALLOC_ARENA_MAX", M_ARENA_MAX, 1),
        ("MALLOC_MMAP_THRESHOLD_", M_MMAP_THRESHOLD, LARGE),
        ("MALLOC_TRIM_THRESHOLD_", M_TRIM_THRESHOLD, SPARE),
    ):
        os.environ.setdefault(name, str(value))  # for worker processes; this one began without
        with suppress(OSError, AttributeError):  # another C library
            ctypes.CDLL(None).mallopt(option, value)


def trimmed() -> None:
    """Give back to the system what is free in between: a process that has done with one piece of work keeps
    all that it took for it, and takes the next one's on top."""
    with suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)


def one_thread() -> None:
    """Let Arrow work with one thread, where processes share the cores: more would wait for each other."""
    import pyarrow as pa

    pa.set_cpu_count(1)


def spare_pandas() -> None:
    """Keep pyarrow from importing pandas, which it does for the first array it makes of Python values, only
    to see whether they are pandas' or dateutil's. It asks once, and costs a tiny `decode` a third of its
    time."""
    if "pandas" in sys.modules:
        return
    import pyarrow as pa

    finder = _NoPandas()
    sys.meta_path.insert(0, finder)
    try:
        pa.array([None])
    finally:
        sys.meta_path.remove(finder)


MANUAL = "pyarrow.vendored.docscrape"


def spare_manual() -> None:
    """Keep pyarrow.compute from writing the manual of its three hundred functions when it is imported, which
    takes twice as long as the rest of it: what reads the docstrings of options finds no parameters there."""
    if "pyarrow.compute" in sys.modules or MANUAL in sys.modules:
        return
    blank = ModuleType(MANUAL)
    blank.NumpyDocString = lambda _: {"Parameters": []}  # type: ignore[attr-defined]
    sys.modules[MANUAL] = blank
    try:
        importlib.import_module("pyarrow.compute")
    finally:
        del sys.modules[MANUAL]


class _NoPandas:
    """Says that there is no pandas, and no dateutil, for which pyarrow asks whenever it has to find the type
    of values."""

    def find_spec(self, fullname: str, path: object, target: object = None) -> None:
        if fullname in ("pandas", "dateutil"):
            raise ModuleNotFoundError(fullname)
