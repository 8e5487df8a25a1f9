"""Names from the wire in every output; files that are whole or not there."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import re
import resource
import signal
import subprocess
import sys
import time
import unicodedata
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.cli.conftest import Said
from tests.damage.disk import small_disk
from tests.hostile.attacks import framed, metadata
from tests.hostile.wire import Flow, write

NASTY = [
    "usual", "\x1b[2J\x1b]0;owned\x07", "line\nbreak", "carriage\rreturn", 'quote"d', "=cmd|' /C calc'!A0",
    "+1+1", "-2", "@SUM(1)", "\tstart", "nul\0byte", "\u202eright to left", "\u2028separator",
    "<script>alert(1)</script>", "a,b;c", "\x9b31mred", "\uff1d1+1", "\uff20SUM(1)", "\ufeff=1+1", "  =1+1",
    "\u3000=1+1", "a;=1+1", "\ufe63 2", "\u200b=1", "\x1b]8;;http://x/\x1b\\link", "\u2066isolate\u2069",
]  # fmt: skip
"""Topics and client ids that want to be something else."""


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    flow = Flow()
    records = [*flow.open()]
    for corr, name in enumerate(NASTY):
        raw = name.encode()
        records += flow.stream(0, [metadata(corr, [raw], raw)])
        topic = b"\0\3" + len(raw).to_bytes(2) + raw + bytes(4)
        reply = corr.to_bytes(4) + bytes(4) + (1).to_bytes(4) + topic
        records += flow.stream(1, [framed(reply)])
    return write(tmp_path_factory.mktemp("nasty") / "nasty.pcap", records)


def kwsniff(*arguments: str) -> subprocess.CompletedProcess[bytes]:
    """Runs the command line as a process of its own."""
    return subprocess.run([sys.executable, "-m", "kwsniff", *arguments], capture_output=True, check=False)


@pytest.mark.parametrize(
    "command",
    [
        *(["decode", "-f", form] for form in ("text", "jsonl", "csv")),
        *(["decode", "--full", "-f", form] for form in ("text", "jsonl", "csv")),
        ["report", "--by", "api,client,topic,broker,error"],
        ["report", "--json"],
        ["report"],
        ["report", "--top", "0"],
    ],
    ids=" ".join,
)
def test_nothing_from_the_wire_reaches_a_terminal_as_a_command(
    said: Said, command: list[str], capture: Path
) -> None:
    done = said(command[0], str(capture), *command[1:])
    assert done.returncode == 0
    assert _unprintable(done.stdout.decode()) == set()


def _unprintable(text: str) -> set[str]:
    """Characters that make a terminal do something, or that nobody sees; lines end as lines do."""
    return {char for char in text if unicodedata.category(char) in ("Cc", "Cf", "Zl", "Zp")} - {"\n"}


def test_nothing_from_the_wire_is_unprintable_in_tables(said: Said, capture: Path, tmp_path: Path) -> None:
    assert said("report", str(capture), "--csv", str(tmp_path)).returncode == 0
    assert {path.name: _unprintable(path.read_text()) for path in tmp_path.iterdir()} == {
        f"{name}.csv": set()
        for name in ("api", "broker", "calls", "client", "error", "findings", "lag", "topic")
    }


def test_bodies_in_csv_are_json_that_says_what_was_sent(said: Said, capture: Path) -> None:
    out = said("decode", "--full", "-f", "csv", str(capture), "--columns", "request").stdout.decode()
    rows = [json.loads(row["request"]) for row in csv.DictReader(io.StringIO(out)) if row["request"]]
    assert [row["topics"][0]["name"] for row in rows] == NASTY


def test_the_name_of_a_file_is_no_command_either(said: Said, tmp_path: Path) -> None:
    odd = tmp_path / "\x1b]0;owned\x07\u202e.pcap"
    assert _unprintable(said("decode", str(odd)).stderr.decode()) == set()
    odd.write_bytes(Path("captures/ipv6.pcap").read_bytes()[:-7])
    done = said("decode", str(odd), "-f", "csv")
    assert done.returncode == 3
    assert _unprintable(done.stdout.decode() + done.stderr.decode()) == set()


def test_each_event_is_one_line_of_json_with_its_name_as_sent(said: Said, capture: Path) -> None:
    rows = [json.loads(line) for line in said("decode", str(capture), "-f", "jsonl").stdout.splitlines()]
    calls = [row for row in rows if row["event"] == "call"]
    assert [row["client_id"] for row in calls] == NASTY
    assert [row["topics"] for row in calls] == [[name] for name in NASTY]


@pytest.mark.parametrize("table", ["calls", "client", "topic"])
def test_no_cell_of_a_csv_file_is_a_formula(said: Said, table: str, capture: Path, tmp_path: Path) -> None:
    assert said("report", str(capture), "--csv", str(tmp_path)).returncode == 0
    _assert_no_formula(tmp_path / f"{table}.csv")


def test_no_cell_of_decoded_csv_is_a_formula(said: Said, capture: Path, tmp_path: Path) -> None:
    out = tmp_path / "events.csv"
    assert said("decode", str(capture), "-o", str(out)).returncode == 0
    _assert_no_formula(out)


def _assert_no_formula(path: Path) -> None:
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) >= len(NASTY) // 2
    for row in rows:
        for cell in row.values():
            is_number = re.fullmatch(r"[-+]?[\d.]+(e[-+]?\d+)?", cell or "")
            read = unicodedata.normalize("NFKC", cell or "").replace("\u2212", "-")
            assert is_number or not re.search(r"(^|;)\W*?[=+\-@\t\r\n]", read.replace("'", "x")), cell
            assert "\0" not in cell


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
@pytest.mark.parametrize("form", ["jsonl", "csv", "parquet", "text"])
def test_a_full_disk_leaves_no_file_and_one_line(form: str, tmp_path: Path) -> None:
    with small_disk(tmp_path / "small") as disk:
        done = kwsniff("decode", "captures", "-q", "-f", form, "-o", str(disk / f"events.{form}"))
        assert done.returncode == 2
        assert done.stderr.decode().count("\n") == 1
        assert b"No space left" in done.stderr
        assert list(disk.iterdir()) == []


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
def test_a_full_disk_leaves_no_table_of_a_report_half_written(tmp_path: Path) -> None:
    with small_disk(tmp_path / "small") as disk:
        done = kwsniff("report", "captures", "-q", "--csv", str(disk))
        assert done.returncode == 2
        assert not [path for path in disk.iterdir() if path.name == "calls.csv" or path.suffix == ".part"]


def limited(size: int) -> Callable[[], None]:
    """For a child: files may have so many bytes, as though the disk were full then."""
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


@pytest.mark.one_of(2)
@pytest.mark.parametrize("earlier", [False, True])
@pytest.mark.parametrize("form", ["jsonl", "csv", "parquet", "text"])
def test_a_file_that_may_not_grow_is_not_there_and_an_earlier_one_stays(
    form: str, earlier: bool, tmp_path: Path
) -> None:
    out = tmp_path / f"events.{form}"
    if earlier:
        out.write_text("of yesterday")
    done = subprocess.run(
        [sys.executable, "-m", "kwsniff", "decode", "captures", "-q", "-j", "1", "-f", form, "-o", str(out)],
        capture_output=True, text=True, check=False, preexec_fn=limited(50_000),
    )  # fmt: skip
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert [path.read_text() for path in tmp_path.iterdir()] == (["of yesterday"] if earlier else [])


def test_tables_of_a_report_that_may_not_grow_are_whole_or_not_there(said: Said, tmp_path: Path) -> None:
    whole, limit = tmp_path / "whole", tmp_path / "limit"
    assert said("report", "captures", "-q", "-j", "1", "--csv", str(whole)).returncode == 0
    longest = max(whole.iterdir(), key=lambda path: path.stat().st_size)
    done = subprocess.run(
        [sys.executable, "-m", "kwsniff", "report", "captures", "-q", "-j", "1", "--csv", str(limit)],
        capture_output=True, text=True, check=False, preexec_fn=limited(longest.stat().st_size - 1),
    )  # fmt: skip
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert not (limit / longest.name).exists()
    for path in limit.iterdir():
        assert path.read_bytes() == (whole / path.name).read_bytes()


def fed(folder: Path, *arguments: str, patience: float = 30) -> subprocess.Popen[bytes]:
    """A run that has read part of its standard input and waits for more, its output begun, if that is seen
    within `patience` seconds."""
    process = subprocess.Popen(
        [sys.executable, "-m", "kwsniff", *arguments], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    assert process.stdin is not None
    process.stdin.write(Path("captures/ipv6.pcap").read_bytes()[:20_000])
    process.stdin.flush()
    begun = time.monotonic()
    while not list(folder.iterdir()) and time.monotonic() - begun < patience:
        time.sleep(0.1)
    time.sleep(0.3)
    return process


def ended(process: subprocess.Popen[bytes], how: signal.Signals) -> int:
    process.send_signal(how)
    code = process.wait(timeout=60)
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError):
        process.stdin.close()
    return code


@pytest.mark.parametrize("form", ["jsonl", "csv", "parquet", "text"])
def test_a_killed_run_leaves_nothing_that_looks_whole(form: str, tmp_path: Path) -> None:
    out = tmp_path / f"events.{form}"
    ended(fed(tmp_path, "decode", "-", "-f", form, "-o", str(out)), signal.SIGKILL)
    assert not out.exists()
    assert all(path.name.startswith(".") and path.suffix == ".part" for path in tmp_path.iterdir())


def test_a_killed_report_leaves_no_table(tmp_path: Path) -> None:
    ended(fed(tmp_path, "report", "-", "--csv", str(tmp_path), patience=2), signal.SIGKILL)
    assert not list(tmp_path.glob("*.csv"))


@pytest.mark.parametrize("form", ["jsonl", "csv", "parquet"])
def test_an_interrupted_run_leaves_whole_rows_and_says_so_by_its_exit_code(form: str, tmp_path: Path) -> None:
    out = tmp_path / f"events.{form}"
    assert ended(fed(tmp_path, "decode", "-", "-f", form, "-o", str(out)), signal.SIGINT) == 130
    assert [path.name for path in tmp_path.iterdir()] == [out.name]
    if form == "jsonl":
        assert all(json.loads(line)["event"] for line in out.read_text().splitlines())
    elif form == "parquet":
        assert pq.read_table(out).num_rows >= 0
    else:
        with out.open(newline="") as file:
            assert all(None not in row.values() for row in csv.DictReader(file))
