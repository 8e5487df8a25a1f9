"""Directories with files that cannot be read: every command names them, does the rest, and ends with 3."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.cli.conftest import ROOT, process


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "in" / "deeper").mkdir(parents=True)
    shutil.copy(ROOT / "captures/ipv6.pcap", tmp_path / "in/a.pcap")
    shutil.copy(ROOT / "captures/midstream.pcap", tmp_path / "in/deeper/b.pcap")
    (tmp_path / "in/empty.pcap").touch()
    (tmp_path / "in/loop.pcap").symlink_to("loop.pcap")
    (tmp_path / "in/notes.md").write_text("how it was recorded")
    return tmp_path / "in"


def named(folder: Path) -> list[str]:
    return [
        f"kwsniff: {folder}/empty.pcap: the file is empty; it is passed over",
        f"kwsniff: {folder}/loop.pcap: Too many levels of symbolic links; it is passed over",
    ]


@pytest.mark.parametrize(
    "command", [["decode", "-f", "jsonl"], ["report"], ["report", "-j", "2"]], ids=" ".join
)
def test_each_is_named_in_one_line_and_the_rest_is_done(command: list[str], folder: Path) -> None:
    done = process(*command, "-q", str(folder), module="kwsniff")
    said = done.stderr.decode().splitlines()
    assert done.returncode == 3
    assert said == [*named(folder), "kwsniff: 2 files could not be read"]
    alone = process(*command, "-q", str(folder / "a.pcap"), module="kwsniff").stdout
    rows = [line for line in done.stdout.splitlines() if b"capture_unreadable" not in line]
    assert rows == alone.splitlines()
    assert len(done.stdout.splitlines()) - len(rows) == (2 if command[0] == "decode" else 0)


def test_the_closing_paragraph_counts_them(folder: Path) -> None:
    said = process("report", str(folder), module="kwsniff").stderr.decode()
    assert "Damaged input: 2 files unreadable." in said


@pytest.mark.parametrize("command", ["decode", "report"])
def test_directories_in_it_are_read_where_asked(command: str, folder: Path) -> None:
    paths = [str(folder / "a.pcap"), str(folder / "deeper/b.pcap")]
    for option in ("-r", "--recursive"):
        done = process(command, "-q", option, str(folder), "--where", 'event == "call"', module="kwsniff")
        assert done.returncode == 3
        alone = process(command, "-q", *paths, "--where", 'event == "call"', module="kwsniff")
        assert done.stdout == alone.stdout


def test_following_knows_no_directories_in_directories(folder: Path) -> None:
    done = process("decode", "--follow", "-r", str(folder), module="kwsniff")
    assert (done.returncode, done.stderr) == (2, b"kwsniff: --recursive does not go with --follow\n")
