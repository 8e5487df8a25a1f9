"""What a stream keeps between batches: the run of one share of the connections, as a file.

The file begins with a line of JSON that says what wrote it; the rest is a compressed pickle. Only files of
the stream's own directory are read, and only those of the same version of kwsniff: what the classes hold is
no format that lasts.
"""

from __future__ import annotations

import json
import os
import pickle
from dataclasses import dataclass, field
from pathlib import Path

import zstandard

from kwsniff import __version__
from kwsniff.capture.directory import Unread
from kwsniff.capture.error import CaptureError
from kwsniff.capture.source import CaptureRun, CaptureTotals
from kwsniff.config import Config
from kwsniff.pipeline import Analysis
from kwsniff.report.sessions import Sessions

FORMAT = 3


@dataclass(slots=True)
class Kept:
    """The state of one share after some files."""

    capture_run: CaptureRun
    analysis: Analysis
    position: int = -1
    """That of the last event."""
    sessions: Sessions = field(default_factory=Sessions)
    """Fetch sessions of its connections."""
    lost: list[Unread] = field(default_factory=list)
    """Files of this batch that were listed and could not be read any more."""

    @classmethod
    def fresh(cls, config: Config, shard: tuple[int, int]) -> Kept:
        """The state before the first file."""
        return cls(CaptureRun(CaptureTotals()), Analysis(config, shard))

    def save(self, path: Path) -> None:
        """Write to `path`, whole or not at all. Raises OSError."""
        self.lost = []
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_name(f".{path.name}.{os.getpid()}")
        head = json.dumps({"format": FORMAT, "kwsniff": __version__})
        with beside.open("wb") as file:
            file.write(head.encode() + b"\n")
            with zstandard.ZstdCompressor(1).stream_writer(file, closefd=False) as packed:
                pickle.dump(self, packed, pickle.HIGHEST_PROTOCOL)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)

    @classmethod
    def load(cls, path: Path) -> Kept:
        """Read what `save` wrote.

        Raises:
            CaptureError: there is none, or another version wrote it; the text is one line.
        """
        try:
            with path.open("rb") as file:
                head = json.loads(file.readline())
                if head != {"format": FORMAT, "kwsniff": __version__}:
                    raise CaptureError(
                        f"{path}: was kept by kwsniff {head.get('kwsniff')}; end that stream with it (--end)"
                    )
                with zstandard.ZstdDecompressor().stream_reader(file) as packed:
                    kept: Kept = pickle.load(packed)
                    return kept
        except (OSError, ValueError) as error:
            raise CaptureError(f"{path}: what the stream kept cannot be read: {error}") from error
