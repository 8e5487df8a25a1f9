"""Spark's daemon of Python workers, with what the pipeline's tasks need loaded before workers are made of it.

Workers are copies of the daemon (`spark.python.daemon.module`): what is loaded here is loaded once, not by
each worker in its first task, and is in memory once. As many tasks run as there are cores, so each has one
thread and one heap.
"""

from __future__ import annotations

import gc
import importlib
import sys
from pathlib import Path

from kwsniff.run.tuning import one_thread, tuned

LOADED = (
    "pyarrow.dataset",
    "pyarrow.parquet",
    "numpy.ma",
    "kwsniff.engine.engine",
    "kwsniff.spark.finish",
    "kwsniff.spark.splits",
)


def main() -> None:
    """Make workers until Spark is done."""
    tuned()
    sys.path[:] = unpacked(sys.path)
    for name in LOADED:
        importlib.import_module(name)
    one_thread()
    from pyspark.daemon import manager

    gc.freeze()  # looking through them would copy their pages
    manager()


def unpacked(paths: list[str]) -> list[str]:
    """Where to import from, with the archives of PySpark last that lie in an installed PySpark.

    Spark has workers import from those first. They hold no compiled files, so that takes a second each time.
    """
    spared = [each for each in paths if _installed(Path(each)) in paths]
    return [each for each in paths if each not in spared] + spared


def _installed(archive: Path) -> str | None:
    """The directory in which what is in the archive is installed."""
    package = archive.parent.parent.parent
    if archive.suffix != ".zip" or archive.parts[-4:-1] != ("pyspark", "python", "lib"):
        return None
    name = archive.stem.partition("-")[0]  # py4j-0.10.9.9-src
    return str(package.parent) if (package.parent / name / "__init__.py").is_file() else None


if __name__ == "__main__":
    main()
