"""What Python programs call: the functions behind the names of the package itself."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from kwsniff import offline
from kwsniff.cli.naming import named
from kwsniff.config import Config
from kwsniff.events import CALL
from kwsniff.table import EVENTS

if TYPE_CHECKING:
    import pandas as pd

Path = str | os.PathLike[str]


def events(paths: Path | Sequence[Path], **config: Any) -> Iterator[pa.RecordBatch]:
    """Everything seen in captures, as batches of the schema `kwsniff.table.EVENTS`.

    Rows come in the order in which events were completed. Topic names that the captures give for uuids are
    filled in, also where they come later; rows wait for them, on disk if they are many.

    Args:
        paths: a capture file, a directory of them, or a list of such; `-` is standard input.
        config: fields of `kwsniff.Config`, for instance ``ports=(19092,)`` or ``full=True``.

    Raises:
        kwsniff.capture.error.CaptureError: an input cannot be read; the text is one line.
        TypeError: `config` has no such field.
    """
    return named(offline.events(_paths(paths), Config(**config)))


def calls(paths: Path | Sequence[Path], **config: Any) -> pd.DataFrame:
    """The calls in captures: one row for each request with its response, Arrow-backed.

    Times are UTC with microseconds, durations microseconds as float. Arguments and errors as of `events`.
    """
    import pandas as pd

    chosen = [batch.filter(pc.equal(batch["event"], CALL)) for batch in events(paths, **config)]
    table = pa.Table.from_batches(chosen, EVENTS)
    frame: pd.DataFrame = table.to_pandas(types_mapper=pd.ArrowDtype)
    return frame


def _paths(paths: Path | Sequence[Path]) -> list[str]:
    given = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    return [os.fspath(path) for path in given]
