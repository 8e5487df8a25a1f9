"""Spark's daemon of Python workers, with what the pipeline's tasks need loaded before workers are made of it.

Workers are copies of the daemon (`spark.python.daemon.module`): what is loaded here is loaded once, not by
each worker in its first task, and is in memory once. As many tasks run as there are cores, so each has one
thread and one heap.
"""

from __future__ import annotations

import gc
import importlib

from kwsniff.tuning import one_thread, tuned

LOADED = ("pyarrow.parquet", "kwsniff.kernel.engine", "kwsniff.spark.finish", "kwsniff.spark.splits")


def main() -> None:
    """Make workers until Spark is done."""
    tuned()
    for name in LOADED:
        importlib.import_module(name)
    one_thread()
    from pyspark.daemon import manager

    gc.freeze()  # looking through them would copy their pages
    manager()


if __name__ == "__main__":
    main()
