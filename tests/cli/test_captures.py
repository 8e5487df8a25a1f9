"""The command line over recorded captures: nothing stands in for the pipeline here."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import ROOT, process

SAMPLE = ROOT / "captures/librdkafka-groups.pcapng"


def test_a_capture_cut_short_gives_what_comes_before_the_cut_and_exit_code_3(tmp_path: Path) -> None:
    cut = tmp_path / "cut.pcapng"
    cut.write_bytes(SAMPLE.read_bytes()[:20_000])
    whole, part = (process("decode", str(path), "-f", "jsonl", module="kwsniff") for path in (SAMPLE, cut))
    assert (whole.returncode, part.returncode) == (0, 3)
    assert b"kwsniff: part of the input was damaged: 1 capture_cut_short" in part.stderr
    rows = [json.loads(line) for line in part.stdout.splitlines()]
    answered = [row for row in rows if row["event"] == "call" and "response_packet" in row]
    known = {
        (row.get("connection"), row.get("correlation_id"), row.get("latency_us"))
        for row in map(json.loads, whole.stdout.splitlines())
    }
    assert len(answered) > 10
    assert {(row["connection"], row["correlation_id"], row["latency_us"]) for row in answered} <= known


@pytest.mark.parametrize(
    ("content", "says"), [(b"", "is empty"), (b"garbage!" * 9, "no capture file"), (None, "No such file")]
)
def test_what_is_no_capture_is_one_line_and_exit_code_2(
    tmp_path: Path, content: bytes | None, says: str
) -> None:
    path = tmp_path / "bad.pcap"
    if content is not None:
        path.write_bytes(content)
    ended = process("decode", str(path), module="kwsniff")
    assert (ended.returncode, ended.stdout) == (2, b"")
    assert says in ended.stderr.decode()
    assert ended.stderr.count(b"\n") == 1


def test_standard_input_gives_what_the_file_gives() -> None:
    columns = ("-q", "-f", "csv", "--columns", "connection,api,correlation_id,latency_us,status")
    piped = process("decode", "-", *columns, module="kwsniff", input=SAMPLE.read_bytes())
    assert piped.returncode == 0
    assert piped.stdout == process("decode", str(SAMPLE), *columns, module="kwsniff").stdout
