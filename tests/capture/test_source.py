"""Paths: directories, order, what cannot be read."""

from __future__ import annotations

import gzip
import os

import pytest
from files import START, brief, expected, frame, frames, notes, pcap, pcapng

from kwsniff.capture.source import CaptureError, CaptureTotals, resolve, segments
from kwsniff.config import Config
from kwsniff.net.segments import SEGMENTS


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
