"""Which files of a directory are finished, and that they keep their number."""

from __future__ import annotations

import gzip
import os
import shutil
from pathlib import Path

import pytest

from kwsniff.capture.error import CaptureError
from kwsniff.capture.place import Unread
from kwsniff.capture.rotation import Rotation, grown, listed, present, unread
from tests.samples import CAPTURES

OLD, NEWER = CAPTURES / "midstream.pcap", CAPTURES / "librdkafka-errors.pcap"
LATEST = CAPTURES / "connection-churn.pcapng.zst"


def put(into: Path, source: Path, seconds: int) -> Path:
    """A capture whose last byte was written so many seconds since 1970."""
    shutil.copyfile(source, into)
    os.utime(into, (seconds, seconds))
    return into


def found(rotation: Rotation) -> list[str]:
    rotation.look()
    return [Path(each.path).name for each in rotation.files]


def test_the_newest_file_waits_for_the_next_one(tmp_path: Path) -> None:
    rotation = Rotation([str(tmp_path)], tmp_path / ".list", quiet=1e12)
    put(tmp_path / "a.pcap", OLD, 100)
    assert found(rotation) == []
    put(tmp_path / "b.pcap", NEWER, 200)
    assert found(rotation) == ["a.pcap"]


def test_the_newest_file_is_finished_when_it_was_quiet_for_long(tmp_path: Path) -> None:
    put(tmp_path / "a.pcap", OLD, 100)
    assert found(Rotation([str(tmp_path)], tmp_path / ".list", quiet=60)) == ["a.pcap"]


def test_each_directory_has_a_newest_file(tmp_path: Path) -> None:
    for name, second in (("one", 100), ("two", 300)):
        (tmp_path / name).mkdir()
        put(tmp_path / name / f"{name}-0.pcap", OLD, second)
        put(tmp_path / name / f"{name}-1.pcap", NEWER, second + 1)
    directories = [str(tmp_path / "one"), str(tmp_path / "two")]
    assert found(Rotation(directories, tmp_path / ".list", quiet=1e12)) == ["one-0.pcap", "two-0.pcap"]


def test_files_keep_their_number_whatever_comes_later(tmp_path: Path) -> None:
    source, files = tmp_path / "in", tmp_path / "list"
    source.mkdir()
    put(source / "z.pcap", NEWER, 100)
    assert found(Rotation([str(source)], files, quiet=0)) == ["z.pcap"]
    put(source / "a.pcap", OLD, 200)
    (source / "z.pcap").unlink()
    assert found(Rotation([str(source)], files, quiet=0)) == ["z.pcap", "a.pcap"]


def test_a_look_finds_files_in_the_order_of_their_packets(tmp_path: Path) -> None:
    put(tmp_path / "1.pcap", CAPTURES / "librdkafka-transactions.pcap", 300)
    put(tmp_path / "2.pcap", NEWER, 100)
    put(tmp_path / "3.pcap", OLD, 200)
    rotation = Rotation([str(tmp_path)], tmp_path / ".list", quiet=0)
    rotation.look()
    times = [each.first_time_ns for each in rotation.files]
    assert len(times) == 3
    assert times == sorted(times)


def test_a_file_that_was_compressed_meanwhile_is_the_same_file(tmp_path: Path) -> None:
    source = tmp_path / "in"
    source.mkdir()
    path = put(source / "a.pcap", OLD, 100)
    rotation = Rotation([str(source)], tmp_path / "list", quiet=0)
    assert found(rotation) == ["a.pcap"]
    (source / "a.pcap.gz").write_bytes(gzip.compress(path.read_bytes()))
    path.unlink()
    assert found(rotation) == ["a.pcap"]
    assert present(rotation.files[0]) == str(path) + ".gz"
    (source / "a.pcap.gz").unlink()
    with pytest.raises(CaptureError, match="was removed before it could be read"):
        present(rotation.files[0])


def test_a_name_that_is_used_again_is_another_file(tmp_path: Path) -> None:
    source = tmp_path / "in"
    source.mkdir()
    rotation = Rotation([str(source)], tmp_path / "list", quiet=0)
    put(source / "ring0.pcap", OLD, 100)
    assert found(rotation) == ["ring0.pcap"]
    put(source / "ring0.pcap", NEWER, 200)
    assert found(rotation) == ["ring0.pcap", "ring0.pcap"]


def test_a_file_that_grew_is_told_and_not_read_twice(tmp_path: Path) -> None:
    source = tmp_path / "in"
    source.mkdir()
    path = put(source / "a.pcap", OLD, 100)
    rotation = Rotation([str(source)], tmp_path / "list", quiet=0)
    assert found(rotation) == ["a.pcap"]
    with path.open("ab") as file:
        file.write(bytes(40))
    assert found(rotation) == ["a.pcap"]
    assert grown(rotation.files) == {str(path): 40}


def test_what_is_no_capture_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "empty.pcap").touch()
    (tmp_path / ".a.pcap.part").write_bytes(OLD.read_bytes())
    put(tmp_path / "a.pcap", OLD, 100)
    assert found(Rotation([str(tmp_path)], tmp_path / ".list", quiet=0)) == ["a.pcap"]


def test_a_line_that_was_not_written_to_its_end_is_written_again(tmp_path: Path) -> None:
    source, files = tmp_path / "in", tmp_path / "list"
    source.mkdir()
    put(source / "a.pcap", OLD, 100)
    Rotation([str(source)], files, quiet=0).look()
    whole = files.read_bytes()
    files.write_bytes(whole + whole[:17])
    put(source / "b.pcap", NEWER, 200)
    assert found(Rotation([str(source)], files, quiet=0)) == ["a.pcap", "b.pcap"]
    assert [Path(each.path).name for each in listed(files)] == ["a.pcap", "b.pcap"]


def test_a_directory_that_is_gone_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match="No such file or directory"):
        Rotation([str(tmp_path / "none")], tmp_path / ".list", quiet=0).look()


def test_a_link_to_a_file_that_is_followed_is_no_other_file(tmp_path: Path) -> None:
    """As some programs keep one to the latest file."""
    source = tmp_path / "in"
    source.mkdir()
    (tmp_path / "other").mkdir()
    rotation = Rotation([str(source)], tmp_path / "list", quiet=0)
    for number, (name, capture) in enumerate((("a.pcap", OLD), ("b.pcap", NEWER))):
        put(source / name, capture, 100 + number)
        (source / "0-latest.pcap").unlink(missing_ok=True)
        (source / "0-latest.pcap").symlink_to(name)
        found(rotation)
        (source / f"0-hard-{name}").hardlink_to(source / name)
    (source / "c.pcap").symlink_to(put(tmp_path / "other" / "c.pcap", LATEST, 105))
    assert found(rotation) == ["a.pcap", "b.pcap", "c.pcap"]


def test_what_the_system_refuses_to_show_is_named_once_and_stops_nothing(tmp_path: Path) -> None:
    source = tmp_path / "in"
    source.mkdir()
    put(source / "a.pcap", OLD, 100)
    (source / "loop.pcap").symlink_to(tmp_path / "loop")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (source / "nowhere.pcap").symlink_to("gone.pcap")
    rotation = Rotation([str(source)], tmp_path / "list", quiet=0)
    assert found(rotation) == ["a.pcap"]
    assert found(rotation) == ["a.pcap"]
    told = unread(tmp_path / "list")
    assert told == [Unread(str(source / "loop.pcap"), "Too many levels of symbolic links")]
