"""Whatever holds a capture gives the same calls as the file does."""

from __future__ import annotations

import gzip
import inspect
import io
import os
import pydoc
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import kwsniff
from kwsniff.count.where import WhereError
from tests.samples import CAPTURES

ROOT = Path(__file__).parents[2]
PATH = CAPTURES / "librdkafka-groups.pcapng"
SECOND = CAPTURES / "midstream.pcap"


def rows(found: pd.DataFrame) -> list[dict[str, Any]]:
    """What does not depend on the name of the input."""
    names = [name for name in found.columns if name != "capture"]
    records: list[dict[str, Any]] = (
        found[names].astype(object).where(found[names].notna(), None).to_dict("records")
    )
    return [{name: list(v) if hasattr(v, "tolist") else v for name, v in row.items()} for row in records]


def scapy_packets(path: Path) -> Any:
    from scapy.all import rdpcap

    return rdpcap(str(path))


def opened(path: Path) -> Any:
    return io.BytesIO(path.read_bytes())


SOURCES: dict[str, Callable[[Path], Any]] = {
    "text": str,
    "path": lambda path: path,
    "list": lambda path: [path],
    "bytes": lambda path: path.read_bytes(),
    "bytearray": lambda path: bytearray(path.read_bytes()),
    "memoryview": lambda path: memoryview(path.read_bytes()),
    "compressed": lambda path: gzip.compress(path.read_bytes()),
    "file": opened,
    "scapy": scapy_packets,
    "generator": lambda path: (packet for packet in scapy_packets(path)),
}


@pytest.mark.parametrize("path", [PATH, SECOND], ids=lambda path: path.name)
@pytest.mark.parametrize("source", SOURCES)
def test_any_source_gives_the_calls_of_the_file(source: str, path: Path) -> None:
    columns = [
        "time",
        "connection",
        "api",
        "correlation_id",
        "request_packet",
        "response_packet",
        "latency_us",
    ]
    expected = kwsniff.calls(path, columns=columns)
    found = kwsniff.calls(SOURCES[source](path), columns=columns)
    assert len(found) == len(expected) > 30
    assert rows(found) == rows(expected)


@pytest.mark.parametrize(("path", "linktype"), [(PATH, 113), (SECOND, 1)])
def test_bytes_with_their_times_are_packets(path: Path, linktype: int) -> None:
    packets = [(packet.time, bytes(packet)) for packet in scapy_packets(path)]
    found = kwsniff.calls(packets, linktype=linktype, columns=["time", "latency_us"])
    assert rows(found) == rows(kwsniff.calls(path, columns=["time", "latency_us"]))


def test_a_file_stays_open_and_is_read_from_where_it_stands() -> None:
    file = io.BytesIO(b"before" + PATH.read_bytes())
    file.seek(6)
    assert len(kwsniff.calls(file)) == 338
    assert not file.closed


@pytest.mark.parametrize(
    ("source", "says"),
    [
        (3, "int is neither a path, nor bytes, an open file, or packets"),
        ([3], "int is no packet: scapy's packets are, and pairs of seconds since 1970 and bytes"),
        ([("now", "text")], "tuple is no packet"),
    ],
)
def test_what_cannot_be_read_is_a_type_error(source: Any, says: str) -> None:
    with pytest.raises(TypeError, match=says):
        list(kwsniff.events(source))


def test_a_text_file_and_what_is_no_capture_are_one_line() -> None:
    from kwsniff.capture.error import CaptureError

    with pytest.raises(CaptureError, match="open it in mode 'rb'"):
        list(kwsniff.events(io.StringIO("text")))  # type: ignore[arg-type]
    with pytest.raises(CaptureError, match="bytes: is no capture file"):
        list(kwsniff.events(b"no capture at all"))


def test_columns_are_those_asked_for_in_their_order() -> None:
    frame = kwsniff.calls(PATH, columns=["latency_us", "api"])
    assert list(frame.columns) == ["latency_us", "api"]
    assert frame["api"].notna().all()
    assert next(iter(kwsniff.events(PATH, columns=["event", "code"]))).schema.names == [
        "event",
        "code",
    ]
    with pytest.raises(ValueError, match=r"'latency' \(did you mean latency_us\?\)"):
        kwsniff.calls(PATH, columns=["latency"])
    with pytest.raises(TypeError, match="a list of names"):
        kwsniff.calls(PATH, columns="api")


def test_where_since_and_until_choose_rows() -> None:
    every = kwsniff.calls(PATH)
    assert len(kwsniff.calls(PATH, where='api == "JoinGroup"')) == (every["api"] == "JoinGroup").sum() > 0
    middle = every["time"].sort_values().iloc[len(every) // 2]
    before, after = (
        kwsniff.calls(PATH, until=middle.isoformat()),
        kwsniff.calls(PATH, since=middle.isoformat()),
    )
    assert len(before) + len(after) == len(every)
    assert before["time"].max() < middle <= after["time"].min()
    with pytest.raises(WhereError, match="unknown column"):
        kwsniff.calls(PATH, where="nosuch == 1")


def test_where_may_look_into_bodies() -> None:
    found = kwsniff.calls(PATH, columns=["api"], where="request.session_timeout_ms > 0")
    assert set(found["api"]) == {"JoinGroup"}


def test_stored_events_are_a_source(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = tmp_path / "events.parquet"
    pq.write_table(pa.Table.from_batches(list(kwsniff.events(PATH))), path)
    assert rows(kwsniff.calls(path)) == rows(kwsniff.calls(PATH))
    assert len(kwsniff.slow(path)) == len(kwsniff.slow(PATH))


@pytest.mark.parametrize(
    ("name", "table"),
    [
        ("clients", "uses"), ("clients", "clients"), ("slow", "clients"), ("groups", "members"),
        ("errors", "codes"), ("groups", "rebalances"),
    ],
)  # fmt: skip
def test_answers_are_those_of_the_commands(name: str, table: str, tmp_path: Path) -> None:
    found = getattr(kwsniff, name)(PATH, table=table)
    command = [
        sys.executable,
        "-m",
        "kwsniff",
        name,
        str(PATH),
        "--table",
        table,
        "-f",
        "csv",
        "--top",
        "0",
        "-q",
    ]
    printed = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout
    shown = pd.read_csv(io.StringIO(printed))
    assert len(found) == len(shown) > 0
    texts = [
        name for name in shown.columns if name in ("client", "topic", "group", "error", "api", "trigger")
    ]
    assert texts
    for text in texts:
        assert found[text].fillna("").tolist() == shown[text].fillna("").tolist()


def test_a_table_that_there_is_not_says_which_there_are() -> None:
    with pytest.raises(ValueError, match="there is no table 'user'; there are uses, clients, settings"):
        kwsniff.clients(PATH, table="user")


def test_findings_are_those_of_the_report(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "kwsniff", "report", str(PATH), "--csv", str(tmp_path), "-q"]
    subprocess.run(command, capture_output=True, check=True, cwd=ROOT)
    printed = pd.read_csv(tmp_path / "findings.csv")
    assert kwsniff.findings(PATH)["finding"].tolist() == printed["finding"].tolist()


def test_a_summary_is_the_report(tmp_path: Path) -> None:
    summary = kwsniff.summary(str(CAPTURES / "throttled.pcapng"))
    command = [sys.executable, "-m", "kwsniff", "report", str(CAPTURES / "throttled.pcapng")]
    # Without COLUMNS, which readline sets behind Python's back where a test imports it.
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT, env=environment)
    assert str(summary) == done.stdout
    shown = summary._repr_html_()
    assert "is throttled" in shown
    assert shown.count("<table") == 2
    summary.write_html(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert '"what":"request"' in page
    summary.write_html(tmp_path / "short.html", fields=False)


def test_names_from_the_wire_are_escaped_in_a_notebook() -> None:
    from kwsniff.analysis.report import Report
    from tests.page.hostile import hostile

    shown = Report.from_events([hostile()])._repr_html_()
    assert "<script" not in shown
    assert "<img" not in shown
    assert "\u202e" not in shown
    assert "&lt;script&gt;" in shown


@pytest.mark.parametrize("name", ["calls", "events", "clients", "decode_body", "summary"])
def test_help_and_completion_show_the_real_function(name: str) -> None:
    function = getattr(kwsniff, name)
    assert inspect.isfunction(function)
    assert name in dir(kwsniff)
    text = pydoc.plain(pydoc.render_doc(function))
    for part in (f"{name}(", "Args:", ">>> "):
        assert part in text
    assert "*args" not in text


def test_a_body_goes_by_the_name_of_its_api() -> None:
    body = bytes.fromhex("001b")  # error_code 27 (protocol guide, Heartbeat Response v0)
    assert kwsniff.decode_body("heartbeat", 0, "response", body) == {"error_code": 27}
    assert kwsniff.decode_body(12, 0, "response", body) == kwsniff.decode_body("12", 0, "response", body)
    with pytest.raises(kwsniff.DecodeError, match=r"unknown_api at Heartbeet \(did you mean Heartbeat or "):
        kwsniff.decode_body("Heartbeet", 0, "response", body)


OWN = """\
api 12 Heartbeat   versions 0-9   flexible 4+   # with a field of our own
request
  group_id    string
response
  error_code  int16   @error
  tired       bool    9
"""


@pytest.fixture
def own(tmp_path: Path) -> Path:
    (tmp_path / "012_heartbeat.kdef").write_text(OWN)
    return tmp_path


def test_a_folder_of_own_dissectors_for_one_body(own: Path) -> None:
    body = bytes.fromhex("001b0100")
    assert kwsniff.decode_body("Heartbeat", 9, "response", body, dissectors=own) == {
        "error_code": 27, "tired": True,
    }  # fmt: skip
    assert kwsniff.decode_body("Fetch", 0, "request", bytes(16), dissectors=own)["topics"] == []
    with pytest.raises(kwsniff.DecodeError, match="unknown_version"):
        kwsniff.decode_body("Heartbeat", 9, "response", body)


def python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT), **environment},
    )  # fmt: skip


def test_a_folder_of_own_dissectors_for_everything(own: Path) -> None:
    show = "print(kwsniff.decode_body('Heartbeat', 9, 'response', bytes.fromhex('001b0100')))"
    chosen = python(f"import kwsniff; kwsniff.use_dissectors({str(own)!r}); {show}")
    assert chosen.stdout == "{'error_code': 27, 'tired': True}\n"
    assert python(f"import kwsniff; {show}", KWSNIFF_DISSECTORS=str(own)).stdout == chosen.stdout
    late = python(
        f"import kwsniff; len(kwsniff.calls({str(SECOND)!r})); kwsniff.use_dissectors({str(own)!r})"
    )
    assert "RuntimeError: dissectors were read before" in late.stderr


def test_a_wrong_dissector_names_file_and_line(own: Path) -> None:
    (own / "012_heartbeat.kdef").write_text(OWN.replace("int16", "int17"))
    wrong = python(f"import kwsniff; kwsniff.use_dissectors({str(own)!r})")
    assert "012_heartbeat.kdef:5" in wrong.stderr.splitlines()[-1]
    (own / "012_heartbeat.kdef").unlink()
    assert "holds no dissectors" in python(f"import kwsniff; kwsniff.use_dissectors({str(own)!r})").stderr
