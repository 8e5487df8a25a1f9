"""The job of `kwsniff pipeline`: captures to a directory of results, on Spark."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kwsniff.capture.directory import Unread
from kwsniff.capture.error import CaptureError
from kwsniff.cli import problem
from kwsniff.cli.problem import CommandError, said
from kwsniff.config import Config

if TYPE_CHECKING:
    from kwsniff.spark import job


@dataclass(frozen=True, slots=True)
class PipelineRequest:
    """What the user asked for."""

    paths: Sequence[str]
    out: str
    config: Config
    master: str | None = None
    append: bool = False
    partitions: int | None = None
    """Tasks that read everything each; None: tasks that read a part each."""
    split: int | None = None
    """Bytes of such a part, about."""
    quiet: bool = False
    verbose: bool = False
    form: str = "parquet"
    """Of the tables."""


def pipeline(request: PipelineRequest) -> int:
    """Run the job; return the exit code.

    Raises:
        CommandError: Spark cannot be started, the output is in the way, or an input could not be read.
    """
    from kwsniff.lake.manifest import OutputError, inputs
    from kwsniff.spark import job
    from kwsniff.spark.java import JavaError
    from kwsniff.spark.progress import watched
    from kwsniff.spark.session import (
        SparkFailedError,
        SparkMissingError,
        TaskError,
        context,
        plain_failures,
    )

    unread: list[Unread] = []
    try:
        job.check(request.out, request.form)
        inputs(request.paths, 0, unread)  # before Spark takes its seconds to start
        for each in unread:
            said(f"{each}; it is passed over")
        spark = context(request.master, verbose=request.verbose)
        with watched(spark, quiet=request.quiet) as steps, plain_failures():
            result = job.run(
                spark,
                request.paths,
                request.out,
                request.config,
                append=request.append,
                shards=request.partitions,
                split=request.split,
                form=request.form,
                tell=steps,
            )
    except (CaptureError, JavaError, OutputError, SparkMissingError) as error:
        raise CommandError(str(error)) from None
    except (TaskError, OSError) as error:
        raise CommandError(str(error)) from error
    except SparkFailedError as error:
        raise CommandError(f"{error} (-v shows Spark's log)", problem.INTERNAL) from error
    _tell(request, result)
    return problem.DAMAGED if result.damaged or unread else problem.DONE


def _tell(request: PipelineRequest, result: job.JobResult) -> None:
    known = result.manifest
    if result.report is None:
        print(f"kwsniff: nothing new: {request.out} holds all {len(known.inputs)} files", file=sys.stderr)
        return
    counts = ", ".join(f"{count:,} {kind}s" for kind, count in known.events.items())
    counts = counts.replace("anomalys", "anomalies")
    files = f"{len(result.read):,} file{'' if len(result.read) == 1 else 's'}"
    print(f"kwsniff: {files} read; {request.out} holds {counts}", file=sys.stderr)
    if not request.quiet:
        print(known.trust, file=sys.stderr)
