"""Paths and directories: what is read, in which order, what is told, which are finished."""

from __future__ import annotations

import gzip
import os
import shutil
from pathlib import Path

import pytest
from files import START, brief, expected, frame, frames, notes, pcap, pcapng

from kwsniff.capture.error import CaptureError
from kwsniff.capture.place import Unread, named_as_capture, recursive
from kwsniff.capture.rotation import Rotation, grown, listed, present, unread
from kwsniff.capture.source import CaptureTotals, resolve, segments
from kwsniff.config import Config
from kwsniff.net.segments import SEGMENTS
from tests.samples import CAPTURES

# Paths: directories, order, what cannot be read


def rows(paths, totals=None, **kwargs):
    return [row for batch in segments(paths, Config(), totals, **kwargs) for row in batch.to_pylist()]


@pytest.fixture
def rotation(tmp_path):
    """Four files of one rotation, named so that the order of names is not that of times."""
    packets = frames(40)
    names = ["trace9.pcap", "trace10.pcap.gz", "trace1.pcapng", "a.pcap"]
    for index, name in enumerate(names):
        part = packets[index * 10 : index * 10 + 10]
        data = pcapng(part) if name.endswith("ng") else pcap(part)
        (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith("gz") else data)
    return tmp_path, names, packets


def test_the_captures_of_a_directory_are_read_in_time_order(rotation):
    directory, names, packets = rotation
    (directory / "notes.md").write_text("how these were recorded")
    (directory / "empty").touch()
    (directory / "deeper").mkdir()
    totals = CaptureTotals()
    found = rows([directory], totals)
    assert [row["time"] for row in found] == [time for time, _ in packets]
    assert [row["capture"] for row in found[::10]] == [str(directory / name) for name in names]
    assert [row["packet"] for row in found] == [*range(1, 11)] * 4
    assert (totals.files, totals.packets) == (4, 40)
    assert (totals.first_time_ns, totals.last_time_ns) == (packets[0][0], packets[-1][0])


def test_files_given_one_by_one_are_read_in_time_order_too(rotation):
    directory, names, packets = rotation
    found = rows([directory / name for name in reversed(names)])
    assert [row["time"] for row in found] == [time for time, _ in packets]


def test_files_that_start_at_once_are_in_the_natural_order_of_their_names(tmp_path):
    for name in ("t10", "t9", "t1", "u"):
        (tmp_path / name).write_bytes(pcap([(START, frame(1))]))
    assert [os.path.basename(file.path) for file in resolve([tmp_path])] == ["t1", "t9", "t10", "u"]


def test_all_batches_have_the_schema_of_segments_and_are_valid(rotation):
    for batch in segments([rotation[0]]):
        assert batch.schema.equals(SEGMENTS, check_metadata=True)
        batch.validate(full=True)


def test_progress_ends_with_all_bytes(rotation):
    directory, names, _ = rotation
    total = sum((directory / name).stat().st_size for name in names)
    calls = []
    rows([directory], progress=lambda done, of: calls.append((done, of)))
    assert calls[-1] == (total, total)
    assert calls == sorted(calls)


def missing(path):
    pass


def empty(path):
    path.touch()


def text(path):
    path.write_text("hello\n")


def compressed_text(path):
    path.write_bytes(gzip.compress(b"hello"))


def compressed_empty(path):
    path.write_bytes(gzip.compress(b""))


def cut_compressed(path):
    path.write_bytes(gzip.compress(b"hello")[:12])


def empty_directory(path):
    path.mkdir()


def directory_of_text(path):
    path.mkdir()
    (path / "readme").write_text("hello")


PROBLEMS = {
    missing: "No such file or directory",
    empty: "the file is empty",
    text: "is no capture file (neither pcap nor pcapng)",
    compressed_text: "is no capture file (neither pcap nor pcapng)",
    compressed_empty: "the file is empty",
    cut_compressed: "is no capture that can be read: the gzip data ends early",
    empty_directory: "no capture files in this directory",
    directory_of_text: "no capture files in this directory",
}


@pytest.mark.parametrize("make", PROBLEMS)
def test_what_cannot_be_read_is_said_in_one_line_before_any_work(tmp_path, make):
    good = tmp_path / "good.pcap"
    good.write_bytes(pcap(frames(3)))
    bad = tmp_path / "bad"
    make(bad)
    with pytest.raises(CaptureError) as caught:
        segments([good, bad])
    assert str(caught.value) == f"{bad}: {PROBLEMS[make]}"


def test_an_unreadable_file_is_said_in_one_line(tmp_path, monkeypatch):
    bad = tmp_path / "bad"
    bad.touch()

    def refuse(*args, **kwargs):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("builtins.open", refuse)
    with pytest.raises(CaptureError) as caught:
        segments([bad])
    assert str(caught.value) == f"{bad}: Permission denied"


def test_no_paths_at_all_are_an_error():
    with pytest.raises(CaptureError, match="no capture files given"):
        segments([])


def test_a_damaged_file_does_not_keep_the_next_from_being_read(tmp_path):
    packets = frames(20)
    (tmp_path / "1.pcap").write_bytes(pcap(packets[:10])[:-5])
    (tmp_path / "2.pcap").write_bytes(pcap(packets[10:]))
    totals = CaptureTotals()
    found = rows([tmp_path], totals)
    assert brief(found) == expected(packets[:9]) + expected(packets[10:])
    assert notes(found) == ["capture_cut_short"]
    assert (totals.files, totals.cut_short) == (2, 1)


def test_totals_of_two_processes_can_be_merged():
    one = CaptureTotals(packets=1, bytes=10, first_time_ns=5, last_time_ns=9)
    one.merge(CaptureTotals(packets=2, bytes=20, dropped=3, first_time_ns=2, last_time_ns=7))
    one.merge(CaptureTotals())
    assert one == CaptureTotals(packets=3, bytes=30, dropped=3, first_time_ns=2, last_time_ns=9)


# Directories of captures: all that can be read is read, all else is told

PACKETS = frames(30)


def rows_in(path, totals=None):
    return [row for batch in segments([path], Config(), totals) for row in batch.to_pylist()]


def left_out(path):
    return {
        (os.path.relpath(row["capture"], path), row["detail"])
        for row in rows_in(path)
        if row["anomaly"] == "capture_unreadable"
    }


@pytest.fixture
def folder(tmp_path):
    """Two captures with ten packets each, and ten more in a folder of the folder."""
    deeper = tmp_path / "more" / "yet"
    deeper.mkdir(parents=True)
    (tmp_path / "1.pcap").write_bytes(pcap(PACKETS[:10]))
    (tmp_path / "2.pcap.gz").write_bytes(gzip.compress(pcap(PACKETS[10:20])))
    (deeper / "3.pcap").write_bytes(pcap(PACKETS[20:]))
    return tmp_path


def one_byte(path):
    path.write_bytes(b"\xd4")


def magic_only(path):
    path.write_bytes(b"\xd4\xc3\xb2\xa1")


def cut_gzip(path):
    path.write_bytes(gzip.compress(pcap(PACKETS))[:12])


def self_linked(path):
    path.symlink_to(path)


def dangling(path):
    path.symlink_to("nowhere")


WHY = {
    empty: "the file is empty",
    one_byte: "is no capture file (neither pcap nor pcapng)",
    magic_only: "ends inside its file header",
    text: "is no capture file (neither pcap nor pcapng)",
    cut_gzip: "is no capture that can be read: the gzip data ends early",
    self_linked: "Too many levels of symbolic links",
    dangling: "No such file or directory",
}


@pytest.mark.parametrize("make", WHY)
def test_what_cannot_be_read_is_told_and_the_rest_is_read(folder, make):
    make(folder / "bad.pcap")
    assert left_out(folder) == {("bad.pcap", WHY[make])}
    totals = CaptureTotals()
    assert brief(rows_in(folder, totals)) == expected(PACKETS[:10]) + expected(PACKETS[10:20])
    assert totals.files == 2


def test_what_the_system_refuses_to_open_is_told_whatever_its_name(folder, monkeypatch):
    (folder / "secret").write_bytes(pcap(PACKETS))
    really = open

    def refuse(path, *args, **kwargs):
        if str(path).endswith("secret"):
            raise PermissionError(13, "Permission denied")
        return really(path, *args, **kwargs)

    monkeypatch.setattr("builtins.open", refuse)
    assert left_out(folder) == {("secret", "Permission denied")}


def test_what_becomes_unreadable_while_others_are_read_is_told(folder):
    batches = segments([folder], Config(block_packets=5))
    found = next(batches).to_pylist()
    (folder / "2.pcap.gz").unlink()
    found += [row for batch in batches for row in batch.to_pylist()]
    assert brief(found) == expected(PACKETS[:10])
    told = [(row["capture"], row["detail"]) for row in found if row["anomaly"]]
    assert told == [(str(folder / "2.pcap.gz"), "No such file or directory")]


def test_a_file_that_was_named_itself_is_an_error_still(folder):
    empty(folder / "bad.pcap")
    with pytest.raises(CaptureError, match="the file is empty"):
        segments([folder / "1.pcap", folder / "bad.pcap"])


def test_other_files_are_passed_over_in_silence(folder):
    (folder / "README.md").write_text("how these were recorded")
    (folder / "list.gz").write_bytes(gzip.compress(b"1.pcap"))
    (folder / ".gitkeep").touch()
    assert left_out(folder) == set()


def test_a_directory_of_which_nothing_can_be_read_is_an_error_that_says_why(tmp_path):
    empty(tmp_path / "a.pcap")
    with pytest.raises(CaptureError) as error:
        segments([tmp_path])
    why = f"can be read ({tmp_path}/a.pcap: the file is empty)"
    assert str(error.value) == f"{tmp_path}: no capture files in this directory {why}"


def test_a_file_with_several_names_is_read_once(folder):
    (folder / "0-latest.pcap").symlink_to("1.pcap")
    os.link(folder / "2.pcap.gz", folder / "kept.pcap.gz")
    names = [os.path.basename(file.path) for file in resolve([folder])]
    assert names == ["1.pcap", "2.pcap.gz"]


def test_directories_in_it_are_read_where_asked(folder):
    (folder / "more" / "up").symlink_to(folder)
    assert len(brief(rows_in(folder))) == 20
    assert brief(rows_in(recursive(str(folder)))) == [
        row for first in (0, 10, 20) for row in expected(PACKETS[first : first + 10])
    ]


def test_a_directory_that_holds_only_directories_can_be_read_so(folder):
    assert len(brief(rows_in(recursive(str(folder / "more"))))) == 10
    with pytest.raises(CaptureError, match="no capture files in this directory"):
        segments([folder / "more"])


@pytest.mark.parametrize(
    "name", ["a.pcap", "a.PCAP.gz", "a.pcap12", "a.pcapng", "a.cap", "a.dmp", "a.pcap.7", "a.pcapng-2026.zst"]
)
def test_names_of_captures(name):
    assert named_as_capture(f"/x/{name}")


@pytest.mark.parametrize(
    "name", ["a.md", "pcap", "a.pcap.md5", "a.capture.txt", "a.pcap" + "1" * 200 + "x", "a.gz"]
)
def test_names_of_other_files(name):
    assert not named_as_capture(f"/x.pcap/{name}")


# Which files of a directory are finished, and that they keep their number

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
