"""What a stream keeps is taken up by any worker, whether kernels are compiled there or not."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle
from pathlib import Path

import pyarrow as pa
import pytest

from kwsniff.config import Config
from kwsniff.native.code import fitting
from kwsniff.rows.schema import EVENTS
from kwsniff.run.offline import events
from kwsniff.spark.streamsource import Kept
from tests.kernel.kinds import kernels
from tests.samples import sample
from tests.spark.rotated import rotated

SAMPLE = "midstream"
compiled = pytest.mark.skipif(fitting() is None, reason="no compiled kernels for this machine")


def read(files: list[Path], place: Path, kinds: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
    """The events of files, each of which a worker with other kernels reads."""
    for file, kind in zip(files, cycle(kinds), strict=False):
        with kernels(kind):
            kept = Kept.fresh(Config(), (0, 1)) if file == files[0] else Kept.load(place)
            for batch in kept.capture_run.file(str(file), Config()):
                yield from (made for made, _ in kept.engine.keyed(kept.engine.take(batch)))
            kept.save(place)
    with kernels(kinds[0]):
        kept = Kept.load(place)
        for batch in kept.capture_run.end():
            yield from (made for made, _ in kept.engine.keyed(kept.engine.take(batch)))
        yield from (made for made, _ in kept.engine.keyed(kept.engine.end()))


@compiled
@pytest.mark.parametrize("kinds", [("interpreted",), ("", "interpreted")])
def test_what_is_kept_is_taken_up_with_whatever_kernels_there_are(
    tmp_path: Path, kinds: tuple[str, ...]
) -> None:
    files = rotated(sample(SAMPLE).paths, tmp_path / "in", 60)
    assert len(files) > 3
    expected = pa.Table.from_batches(list(events([str(file) for file in files], Config())), EVENTS)
    found = pa.Table.from_batches(list(read(files, tmp_path / "kept", kinds)), EVENTS)
    assert found.equals(expected)
