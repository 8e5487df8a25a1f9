"""The command line over recorded captures: nothing stands in for the pipeline here."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kwsniff.spec.load import catalog
from tests.analysis.conftest import Ended, kwsniff
from tests.capture.files import START, frame, pcap
from tests.cli.conftest import ROOT, Said, process
from tests.samples import sample

# The command line over recorded captures: nothing stands in for the pipeline here

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


# What Kafka 4.4 brought, as an operator meets it: in reports, in filters and in the list of layouts


def printed(*arguments: str) -> str:
    done = process(*arguments, module="kwsniff")
    assert done.returncode == 0, done.stderr
    return done.stdout.decode()


@pytest.fixture(scope="module")
def report() -> dict[str, list[dict[str, Any]]]:
    paths = [path for name in ("java-streams", "misrouted") for path in sample(name).paths]
    made: dict[str, list[dict[str, Any]]] = json.loads(printed("report", *paths, "--json", "-q"))
    return made


def test_a_report_has_the_new_apis_with_their_calls_and_errors(
    report: dict[str, list[dict[str, Any]]],
) -> None:
    rows = {row["api_key"]: row for row in report["api"]}
    told = {key: (rows[key]["api"], rows[key]["calls"], rows[key]["errors"]) for key in (93, 94)}
    assert told == {93: ("StreamsGroupTopologyDescriptionUpdate", 3, 1), 94: ("UnregisterController", 2, 1)}


def test_a_report_names_the_errors_that_came_with_it(report: dict[str, list[dict[str, Any]]]) -> None:
    codes = {row["error_code"]: row["error"] for row in report["error"]}
    new = {code: name for code, name in codes.items() if code >= 129}
    assert new == {
        129: "REBOOTSTRAP_REQUIRED",
        134: "GROUP_DELETION_FAILED",
        135: "STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED",
        136: "CONTROLLER_ID_NOT_REGISTERED",
    }


def test_a_filter_finds_them_by_name() -> None:
    (path,) = sample("java-streams").paths
    rows = printed("decode", path, "-q", "-f", "jsonl", "--where", 'error == "CONTROLLER_ID_NOT_REGISTERED"')
    assert [json.loads(row)["api"] for row in rows.splitlines()] == ["UnregisterController"]


def test_why_a_group_was_not_deleted_is_in_the_full_body() -> None:
    (path,) = sample("java-streams").paths
    rows = printed("decode", path, "-q", "-f", "jsonl", "--full", "--where", "error_code == 134")
    (result,) = json.loads(rows)["response"]["results"]
    assert result["group_id"] == "streams-kept"
    assert result["error_message"]


def test_the_topic_of_offsets_committed_by_uuid_has_its_name() -> None:
    (path,) = sample("java-streams").paths
    rows = printed("decode", path, "-q", "-f", "jsonl", "--where", 'api == "TxnOffsetCommit"')
    assert [json.loads(row)["topics"] for row in rows.splitlines()] == [["orders"]] * 3


# A capture without Kafka says so, with what is there instead and what to try

__all__ = ["kwsniff"]

WEB = (8080).to_bytes(2, "big")


@pytest.fixture
def web(tmp_path: Path) -> str:
    """A request to a web server on port 8080."""
    sent = frame(1, b"GET / HTTP/1.1\r\n\r\n")
    path = tmp_path / "web.pcap"
    path.write_bytes(pcap([(START + at, sent[:36] + WEB + sent[38:]) for at in range(5)]))
    return str(path)


@pytest.mark.parametrize("command", ["report", "slow", "clients", "decode"])
def test_it_says_that_there_is_no_kafka(kwsniff: Callable[..., Ended], web: str, command: str) -> None:
    ended = kwsniff(command, web)
    told = " ".join((ended.out + ended.err).split())
    assert ended.code == 0
    assert "No Kafka was found. Instead: TCP on port 8080 (HTTP, 5 packets)." in told
    assert "--port 8080" in told
    assert "No gaps" not in told
    assert "Nothing was found that somebody should look into" not in told


def test_nothing_is_praised_in_quiet_either(kwsniff: Callable[..., Ended], web: str) -> None:
    assert "There are no Kafka calls in it" in kwsniff("report", "-q", web).out


def test_a_capture_of_nothing_asks_for_the_interface(kwsniff: Callable[..., Ended], tmp_path: Path) -> None:
    path = tmp_path / "empty.pcap"
    path.write_bytes(pcap([]))
    assert "It holds no TCP: was the right interface captured" in kwsniff("slow", str(path)).err


# Directories with files that cannot be read: every command names them, does the rest, and ends with 3


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


# Protocol

Run = Callable[..., Ended]


def test_the_list_has_a_line_for_each_api(kwsniff: Run) -> None:
    heading, *lines = kwsniff("protocol").out.splitlines()
    assert heading.split()[:3] == ["key", "api", "versions"]
    assert [int(line.split()[0]) for line in lines] == list(catalog().apis)
    assert lines[3].split()[:2] == ["3", "Metadata"]


def test_a_layout_goes_by_name_in_any_case_or_by_key(kwsniff: Run) -> None:
    by_name = kwsniff("protocol", "apiversions", "3")
    assert by_name.code == 0
    assert "client_software_name" in by_name.out
    assert kwsniff("protocol", "18", "3").out == by_name.out


def test_dump_is_one_json_object_a_line(kwsniff: Run) -> None:
    messages = [json.loads(line) for line in kwsniff("protocol", "dump").out.splitlines()]
    assert {message["direction"] for message in messages} == {"request", "response", "data"}
    keys = {"api_key", "api", "direction", "version", "flexible", "fields"}
    assert all(set(message) == keys for message in messages)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["fech"], "no API or data message 'fech' (did you mean Fetch"),
        (["Fetch", "99"], "Fetch has versions"),
        (["Fetch", "new"], "'[VERSION]'"),
        (["999"], "no API or data message '999'"),
    ],
)
def test_what_is_not_there_is_one_line_and_exit_code_2(kwsniff: Run, arguments: list[str], says: str) -> None:
    ended = kwsniff("protocol", *arguments)
    assert (ended.code, ended.out) == (2, "")
    assert says in ended.err
    assert ended.err.count("\n") == 1
