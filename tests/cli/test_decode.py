"""`kwsniff decode` over stand-ins for captures."""

from __future__ import annotations

import csv
import io
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kwsniff.count.naming import named
from tests.cli.conftest import ROOT, Ended, anomaly, call, connection, process
from tests.cli.stand_in import batch_of

# Decode

Run = Callable[..., Ended]
Capture = Callable[..., str]


def test_events_go_to_standard_output_and_the_summary_to_standard_error(
    kwsniff: Run, capture: Capture
) -> None:
    ended = kwsniff("decode", capture(call(), connection()), "-f", "jsonl")
    assert ended.code == 0
    assert [json.loads(line)["event"] for line in ended.out.splitlines()] == ["call", "connection"]
    assert "1 connection" in ended.err


def test_quiet_leaves_the_summary_out(kwsniff: Run, capture: Capture) -> None:
    assert kwsniff("decode", capture(call()), "-q").err == ""


def test_several_files_are_read_in_turn(kwsniff: Run, capture: Capture) -> None:
    paths = [capture(call(api=name), name=name) for name in ("A", "B")]
    out = kwsniff("decode", *paths, "-f", "csv", "--columns", "api").out
    assert out.split() == ['"api"', '"A"', '"B"']


def test_damage_is_said_in_one_line_with_exit_code_3(kwsniff: Run, capture: Capture) -> None:
    ended = kwsniff("decode", capture(call(), anomaly("capture_cut_short")), "-q", "-f", "jsonl")
    assert ended.code == 3
    assert len(ended.out.splitlines()) == 2
    assert ended.err == (
        "kwsniff: part of the input was damaged: 1 capture_cut_short (first: a.pcap, packet 9: in words)\n"
    )


def test_other_anomalies_are_no_damage(kwsniff: Run, capture: Capture) -> None:
    assert kwsniff("decode", capture(call(), anomaly("gap"))).code == 0


def test_damage_counts_even_where_the_filter_drops_it(kwsniff: Run, capture: Capture) -> None:
    path = capture(call(), anomaly("capture_damaged"))
    assert kwsniff("decode", path, "--where", "event == 'call'").code == 3


def test_where_sees_topic_names_that_come_later(kwsniff: Run, capture: Capture) -> None:
    path = capture(
        call(correlation_id=1, topics=[None], topic_ids=["u-1"]),
        {"do": "batch"},
        call(correlation_id=2, topics=["orders"], topic_ids=["u-1"]),
        call(correlation_id=3),
    )
    out = kwsniff(
        "decode", path, "--where", "'orders' in topics", "-f", "csv", "--columns", "correlation_id"
    ).out
    assert out.split() == ['"correlation_id"', "1", "2"]


def test_count_stops_reading(kwsniff: Run, capture: Capture) -> None:
    path = capture(call(correlation_id=1), call(correlation_id=2), {"do": "forever"})
    ended = kwsniff("decode", path, "-c", "3", "-f", "csv", "--columns", "correlation_id")
    assert (ended.code, ended.out.split()[1:]) == (0, ["1", "2", "1"])
    assert "Stopped before the end" in ended.err
    assert "No gaps" not in ended.err


def test_count_counts_rows_that_pass_the_filter(kwsniff: Run, capture: Capture) -> None:
    path = capture(call(correlation_id=1), call(correlation_id=2), {"do": "forever"})
    ended = kwsniff("decode", path, "-c", "2", "--where", "correlation_id == 2", "-f", "jsonl")
    assert [json.loads(line)["correlation_id"] for line in ended.out.splitlines()] == [2, 2]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (
            ["--where", "latncy_us > 1"],
            "--where, position 1: unknown column 'latncy_us' (did you mean latency_us",
        ),
        (
            ["--columns", "api,clientid", "-f", "csv"],
            "--columns: unknown column 'clientid' (did you mean client_id",
        ),
        (["--columns", "api"], "--columns goes with"),
        (["--columns", ",", "-f", "csv"], "--columns names no column"),
        (["--columns", "api,api", "-f", "csv"], "api is given twice"),
        (["-f", "jsnl"], "unknown format 'jsnl' (did you mean jsonl"),
        (["-o", "out.docx"], "the ending .docx stands for no format"),
        (["-o", "/nonexistent/out.csv"], "cannot write /nonexistent/out.csv: No such file or directory"),
        (["-o", "/tmp", "-f", "csv"], "cannot write /tmp: is a directory"),
        (["-c", "0"], "'-c'"),
        (["--port", "kafka"], "--port: 'kafka' is no port"),
        (["--port", "9092,70000"], "--port: '70000' is outside 1 to 65535"),
        (["--no-such-option"], "o such option"),
    ],
)
def test_a_wrong_request_is_one_line_and_exit_code_2_before_any_work(
    kwsniff: Run, tmp_path: Path, arguments: list[str], says: str
) -> None:
    ended = kwsniff("decode", str(tmp_path / "missing"), *arguments)
    assert (ended.code, ended.out) == (2, "")
    assert says in ended.err
    assert ended.err.startswith("kwsniff: ")
    assert ended.err.count("\n") == 1


def test_an_input_is_never_overwritten(kwsniff: Run, capture: Capture, tmp_path: Path) -> None:
    path = capture(call())
    before = Path(path).read_bytes()
    ended = kwsniff("decode", path, "-o", str(tmp_path / "." / "events.jsonl"))
    assert ended.code == 2
    assert "is one of the inputs" in ended.err
    assert Path(path).read_bytes() == before


def test_unreadable_input_is_one_line_and_leaves_an_earlier_output_alone(
    kwsniff: Run, capture: Capture, tmp_path: Path
) -> None:
    out = tmp_path / "out.csv"
    out.write_text("earlier")
    ended = kwsniff("decode", str(tmp_path / "missing"), "-o", str(out))
    assert (ended.code, ended.err) == (2, f"kwsniff: {tmp_path}/missing: No such file or directory\n")
    assert out.read_text() == "earlier"
    assert list(tmp_path.iterdir()) == [out]


def test_what_was_decoded_before_an_unreadable_input_is_delivered(
    kwsniff: Run, capture: Capture, tmp_path: Path
) -> None:
    out = tmp_path / "out.parquet"
    ended = kwsniff("decode", capture(call(), {"do": "unreadable"}), "-q", "-o", str(out))
    assert ended.code == 2
    assert "not a capture file" in ended.err
    assert pq.read_table(out).num_rows == 1


def test_the_ending_of_the_output_decides_the_format(kwsniff: Run, capture: Capture, tmp_path: Path) -> None:
    path = capture(call())
    for name, start in (("o.csv", b'"event"'), ("o.jsonl", b"{"), ("o.parquet", b"PAR1"), ("o", b"2026-")):
        assert kwsniff("decode", path, "-o", str(tmp_path / name)).out == ""
        assert (tmp_path / name).read_bytes().startswith(start)


def test_an_interrupt_leaves_complete_rows_and_exit_code_130(
    kwsniff: Run, capture: Capture, tmp_path: Path
) -> None:
    out = tmp_path / "out.parquet"
    ended = kwsniff("decode", capture(call(), {"do": "interrupt"}), "-o", str(out))
    assert ended.code == 130
    assert pq.read_table(out).num_rows == 1


def test_a_fault_is_one_line_with_exit_code_70_and_no_output_file(
    kwsniff: Run, capture: Capture, tmp_path: Path
) -> None:
    path = capture(call(), {"do": "fault"})
    ended = kwsniff("decode", path, "-o", str(tmp_path / "out.csv"))
    assert ended.code == 70
    assert ended.err.count("\n") == 1
    assert "ZeroDivisionError: nobody expected this" in ended.err
    assert "--debug" in ended.err
    assert [entry.name for entry in tmp_path.iterdir()] == ["events.jsonl"]
    with pytest.raises(ZeroDivisionError):
        kwsniff("--debug", "decode", path)


@pytest.mark.parametrize("form", ["text", "jsonl", "csv", "parquet"])
def test_a_closed_pipe_is_no_error(capture: Capture, form: str) -> None:
    rows = [call(correlation_id=number) for number in range(3000)]
    command = [sys.executable, "-W", "error", str(ROOT / "tests/cli/stand_in.py"), "decode", "-f", form]
    run = subprocess.Popen(
        [*command, capture(*rows, {"do": "forever"})],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={"PYTHONPATH": str(ROOT)},
    )
    assert run.stdout is not None
    assert run.stdout.read(3)
    run.stdout.close()
    _, err = run.communicate(timeout=60)
    assert (run.returncode, err) == (0, b"")


def test_a_pipe_closed_before_the_last_flush_is_no_error(capture: Capture) -> None:
    path = capture(call())
    shell = (
        f"{sys.executable} -W error tests/cli/stand_in.py decode -q {path} | true; exit ${{PIPESTATUS[0]}}"
    )
    ended = subprocess.run(
        ["bash", "-c", shell],
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
        capture_output=True,
    )
    assert (ended.returncode, ended.stderr) == (0, b"")


def test_ctrl_c_ends_a_running_decode_with_valid_output(capture: Capture, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    path = capture(*[call()] * 100, {"do": "forever"})
    command = [sys.executable, str(ROOT / "tests/cli/stand_in.py"), "decode", path, "-o", str(out)]
    run = subprocess.Popen(command, stderr=subprocess.PIPE, env={"PYTHONPATH": str(ROOT)})
    part = tmp_path / f".out.jsonl.{run.pid}.part"
    deadline = time.monotonic() + 30
    while not (part.exists() and part.stat().st_size) and time.monotonic() < deadline:
        time.sleep(0.02)
    run.send_signal(signal.SIGINT)
    _, err = run.communicate(timeout=60)
    assert run.returncode == 130, err
    assert all(json.loads(line)["api"] == "Metadata" for line in out.read_text().splitlines())
    assert not part.exists()


def test_standard_input_is_not_held_for_names(capture: Capture) -> None:
    rows = [call(topics=[None], topic_ids=["u"]), {"do": "batch"}, call(topics=["t"], topic_ids=["u"])]
    text = "".join(json.dumps(row) + "\n" for row in rows).encode()
    ended = process("decode", "-", "-q", "-f", "csv", "--columns", "topics", input=text)
    assert [row["topics"] for row in csv.DictReader(io.StringIO(ended.stdout.decode()))] == ["u", "t"]


def test_a_device_is_written_to_and_not_replaced(kwsniff: Run, capture: Capture) -> None:
    assert kwsniff("decode", capture(call()), "-o", "/dev/null", "-f", "csv").code == 0
    assert Path("/dev/null").is_char_device()


def test_a_link_keeps_pointing_at_the_output(kwsniff: Run, capture: Capture, tmp_path: Path) -> None:
    (tmp_path / "link.csv").symlink_to(tmp_path / "target.csv")
    assert kwsniff("decode", capture(call()), "-o", str(tmp_path / "link.csv")).code == 0
    assert (tmp_path / "link.csv").is_symlink()
    assert (tmp_path / "target.csv").read_text().startswith('"event"')


def test_a_full_disk_is_one_line(kwsniff: Run, capture: Capture) -> None:
    ended = kwsniff("decode", capture(*[call()] * 500), "-o", "/dev/full", "-f", "jsonl")
    assert ended.code == 2
    assert "No space left on device" in ended.err
    assert ended.err.count("\n") == 1


# Naming

A, B = "aaaaaaaa-0000-4000-8000-000000000001", "bbbbbbbb-0000-4000-8000-000000000002"


def nameless(number: int, uuid: str = A) -> dict[str, Any]:
    partitions = [{"topic": None, "topic_id": uuid, "partition": 0}]
    return call(correlation_id=number, topics=[None], topic_ids=[uuid], partitions=partitions)


def naming(number: int, uuid: str = A, name: str = "orders") -> dict[str, Any]:
    return call(correlation_id=number, topics=[name], topic_ids=[uuid])


def seen(batches: Iterator[pa.RecordBatch]) -> list[tuple[int, list[str | None]]]:
    return [(row["correlation_id"], row["topics"]) for batch in batches for row in batch.to_pylist()]


@pytest.mark.parametrize("memory", [1 << 20, 0], ids=["in memory", "on disk"])
def test_rows_get_names_that_come_later_and_keep_their_order(memory: int) -> None:
    rows = [
        call(correlation_id=0),
        nameless(1),
        nameless(2, B),
        naming(3),
        nameless(4),
        naming(5, B, "pay"),
        call(),
    ]
    batches = iter([batch_of([row]) for row in rows])
    result = seen(named(batches, memory=memory))
    assert [number for number, _ in result] == [0, 1, 2, 3, 4, 5, 7]
    assert [topics for _, topics in result[1:6]] == [["orders"], ["pay"], ["orders"], ["orders"], ["pay"]]


def test_partitions_get_names_too() -> None:
    (first, _) = named(iter([batch_of([nameless(1)]), batch_of([naming(2)])]))
    assert first["partitions"].to_pylist()[0][0]["topic"] == "orders"


@pytest.mark.parametrize("memory", [1 << 20, 0], ids=["in memory", "on disk"])
def test_rows_whose_topic_is_never_named_come_at_the_end_of_the_input(memory: int) -> None:
    batches = iter([batch_of([nameless(1, B)]), batch_of([naming(2)]), batch_of([nameless(3)])])
    assert seen(named(batches, memory=memory)) == [(1, [None]), (2, ["orders"]), (3, ["orders"])]


def test_nothing_is_held_before_the_first_unknown_uuid_nor_after_the_last_is_named() -> None:
    taken: list[int] = []

    def source() -> Iterator[pa.RecordBatch]:
        for number, row in enumerate([call(), nameless(1), call(), naming(3), call(), nameless(5)]):
            taken.append(number)
            yield batch_of([row])

    stream = named(source())
    reads = [len(taken) for _ in stream]
    assert reads == [1, 4, 4, 4, 5, 6]


def test_without_holding_each_batch_gets_the_names_known_by_then() -> None:
    batches = iter([batch_of([nameless(1)]), batch_of([naming(2)]), batch_of([nameless(3)])])
    assert seen(named(batches, hold=False)) == [(1, [None]), (2, ["orders"]), (3, ["orders"])]
