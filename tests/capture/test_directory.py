"""Directories of captures: all that can be read is read, all else is told."""

from __future__ import annotations

import gzip
import os

import pytest
from files import brief, expected, frames, pcap

from kwsniff.capture.place import named_as_capture, recursive
from kwsniff.capture.source import CaptureError, CaptureTotals, resolve, segments
from kwsniff.config import Config

PACKETS = frames(30)


def rows(path, totals=None):
    return [row for batch in segments([path], Config(), totals) for row in batch.to_pylist()]


def unread(path):
    return {
        (os.path.relpath(row["capture"], path), row["detail"])
        for row in rows(path)
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


def empty(path):
    path.touch()


def one_byte(path):
    path.write_bytes(b"\xd4")


def magic_only(path):
    path.write_bytes(b"\xd4\xc3\xb2\xa1")


def text(path):
    path.write_text("hello\n")


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
    assert unread(folder) == {("bad.pcap", WHY[make])}
    totals = CaptureTotals()
    assert brief(rows(folder, totals)) == expected(PACKETS[:10]) + expected(PACKETS[10:20])
    assert totals.files == 2


def test_what_the_system_refuses_to_open_is_told_whatever_its_name(folder, monkeypatch):
    (folder / "secret").write_bytes(pcap(PACKETS))
    really = open

    def refuse(path, *args, **kwargs):
        if str(path).endswith("secret"):
            raise PermissionError(13, "Permission denied")
        return really(path, *args, **kwargs)

    monkeypatch.setattr("builtins.open", refuse)
    assert unread(folder) == {("secret", "Permission denied")}


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
    assert unread(folder) == set()


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
    assert len(brief(rows(folder))) == 20
    assert brief(rows(recursive(str(folder)))) == [
        row for first in (0, 10, 20) for row in expected(PACKETS[first : first + 10])
    ]


def test_a_directory_that_holds_only_directories_can_be_read_so(folder):
    assert len(brief(rows(recursive(str(folder / "more"))))) == 10
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
