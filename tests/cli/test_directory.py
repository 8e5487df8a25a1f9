"""Directories with files that cannot be read: every command names them, does the rest, and ends with 3."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.cli.conftest import ROOT, Said


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
    "command",
    [["decode", "-f", "jsonl"], ["report", "--by", "api,client"], ["report", "--by", "error", "-j", "2"]],
    ids=" ".join,
)
def test_each_is_named_in_one_line_and_the_rest_is_done(said: Said, command: list[str], folder: Path) -> None:
    done = said(*command, "-q", str(folder))
    lines = done.stderr.decode().splitlines()
    assert done.returncode == 3
    assert lines == [*named(folder), "kwsniff: 2 files could not be read"]
    alone = said(*command, "-q", str(folder / "a.pcap")).stdout
    rows = [line for line in done.stdout.splitlines() if b"capture_unreadable" not in line]
    assert rows == alone.splitlines()
    assert len(done.stdout.splitlines()) - len(rows) == (2 if command[0] == "decode" else 0)


def test_the_closing_paragraph_counts_them(said: Said, folder: Path) -> None:
    """On the page it stands above the findings; wherever there is no page it comes last."""
    text = said("report", str(folder)).stdout.decode()
    assert "Damaged input: 2 files unreadable." in " ".join(text.split())
    text = said("report", "--by", "api", str(folder)).stderr.decode()
    assert "Damaged input: 2 files unreadable." in text


@pytest.mark.parametrize("command", [["decode"], ["report", "--by", "api"]], ids=" ".join)
def test_directories_in_it_are_read_where_asked(said: Said, command: list[str], folder: Path) -> None:
    paths = [str(folder / "a.pcap"), str(folder / "deeper/b.pcap")]
    for option in ("-r", "--recursive"):
        done = said(*command, "-q", option, str(folder), "--where", 'event == "call"')
        assert done.returncode == 3
        alone = said(*command, "-q", *paths, "--where", 'event == "call"')
        assert done.stdout == alone.stdout


def test_following_knows_no_directories_in_directories(said: Said, folder: Path) -> None:
    done = said("decode", "--follow", "-r", str(folder))
    assert (done.returncode, done.stderr) == (2, b"kwsniff: --recursive does not go with --follow\n")
