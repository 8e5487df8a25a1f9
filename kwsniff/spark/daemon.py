"""Spark's daemon of Python workers, with what the pipeline's tasks need loaded before workers are made of it.

Workers are copies of the daemon (`spark.python.daemon.module`): what is loaded here is loaded once, not by
each worker in its first task, and is in memory once.
"""

from __future__ import annotations

import gc

import pyarrow.parquet  # noqa: F401
from pyspark.daemon import manager

from kwsniff.kernel import engine  # noqa: F401
from kwsniff.spark import finish, splits  # noqa: F401

if __name__ == "__main__":
    gc.freeze()  # looking through them would copy their pages
    manager()
