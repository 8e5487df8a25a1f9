"""A file of a stream that is gone or another one when it is to be read is named and passed over: everything
else is there, and the stream goes on."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.compute as pc
import pytest

from kwsniff.capture.place import Unread
from kwsniff.capture.rotation import Rotation, unread
from kwsniff.spark.streamsource import LIST
from kwsniff.spark.version import STREAM
from tests.samples import sample
from tests.spark.rotated import rotated
from tests.spark.streams import Followed, expected, stored

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOST = 2
"""The number of the file that something happens to."""


def removed(file: Path) -> None:
    file.unlink()


def used_again(file: Path) -> None:
    """By a ring buffer, for later packets."""
    shutil.copy2(file.parent.with_name("later"), file)


def emptied(file: Path) -> None:
    file.write_bytes(b"")


def a_directory(file: Path) -> None:
    file.unlink()
    file.mkdir()


HAPPENED: dict[Callable[[Path], None], str] = {
    removed: "was removed before it could be read",
    used_again: "holds other packets than when it was found",
    emptied: "the file is empty",
    a_directory: "Is a directory",
}


@pytest.mark.parametrize("happen", list(HAPPENED))
def test_a_file_that_is_lost_is_named_and_the_stream_goes_on(
    spark: SparkSession, tmp_path: Path, happen: Callable[[Path], None]
) -> None:
    followed = Followed(spark, tmp_path)
    files = rotated(sample("midstream").paths, followed.source, 60)
    shutil.move(files.pop(), tmp_path / "later")
    # What is listed stays so, whatever happens to the directory.
    Rotation([str(followed.source)], followed.out / STREAM / LIST, 0.0).look()
    happen(files[LOST])
    followed.run(end=True)
    wanted = expected([file for file in files if file != files[LOST] or happen is used_again])
    found = stored(followed.out)
    lost = Unread(str(files[LOST]), HAPPENED[happen])
    assert unread(followed.out / STREAM / LIST).count(lost) == 1
    odd = found.filter(pc.equal(found["code"], "capture_unreadable"))
    assert list(zip(odd["capture"].to_pylist(), odd["detail"].to_pylist(), strict=True)) == [lost]
    rest = found.filter(pc.not_equal(pc.fill_null(found["code"], ""), "capture_unreadable"))
    assert rest.equals(wanted)
