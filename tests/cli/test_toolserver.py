"""`kwsniff mcp`, asked by the client of the protocol's own SDK over standard input and output."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import ClientSession, MCPError, StdioServerParameters, stdio_client
from mcp.types import CallToolResult

from kwsniff.cli.running import run
from tests.cli.conftest import ROOT, Said
from tests.samples import CAPTURES

Call = tuple[str, dict[str, Any]]
SASL, GROUPS, OLD = "sasl.pcapng", "librdkafka-groups.pcapng", "kafka-0.10-clients.pcapng"
WHERE = 'status == "error"'
ONE, TWO = {"captures": [SASL]}, {"capture": SASL, "other": GROUPS}
ANSWERS: list[tuple[Call, list[str]]] = [
    (("report", ONE | {"threshold": ["slow_ms=1"]}), ["report", SASL, "--threshold", "slow_ms=1", "--json"]),
    (("findings", ONE), ["report", SASL, "--json"]),
    (("decode", ONE | {"where": WHERE, "full": True}),
     ["decode", SASL, "--where", WHERE, "--full", "-f", "jsonl", "-c", "21"]),
    (("slow", ONE | {"waiting": True, "sort": "client"}), ["slow", SASL, "--waiting", "--sort", "client"]),
    (("errors", ONE | {"table": "codes", "top": 2}), ["errors", SASL, "--table", "codes"]),
    (("clients", {"captures": [SASL, GROUPS]}), ["clients", SASL, GROUPS]),
    (("groups", {"captures": ["."], "top": 3}), ["groups", "."]),
    (("compare", TWO), ["compare", SASL, GROUPS]),
    (("audit", {"captures": ["java-admin.pcapng"]}), ["audit", "java-admin.pcapng"]),
    (("auth", ONE | {"until": "02:29"}), ["auth", SASL, "--until", "02:29"]),
    (("upgrade_check", {"captures": [OLD], "target": "4.0"}), ["upgrade-check", "--target", "4.0", OLD]),
    (("show", {"capture": SASL, "target": "20"}), ["show", SASL, "20"]),
    (("follow", {"capture": SASL, "what": "rdkafka-plain", "kind": "client"}),
     ["follow", SASL, "rdkafka-plain", "--as", "client"]),
    (("schema", {"topic": "where"}), ["schema", "where"]),
    (("protocol", {"api": "Fetch", "version": 12}), ["protocol", "Fetch", "12"]),
]  # fmt: skip
"""Calls of tools, and the command that says the same."""


def served(work: Callable[[ClientSession], Awaitable[Any]], *arguments: str, **environment: str) -> Any:
    """What `work` makes of a server that was started with `arguments`."""
    server = StdioServerParameters(
        command=sys.executable, args=["-m", "kwsniff", "mcp", *arguments], cwd=ROOT,
        env={"PYTHONPATH": str(ROOT)} | environment,
    )  # fmt: skip

    async def main() -> Any:
        async with stdio_client(server) as (receiving, sending), ClientSession(receiving, sending) as session:
            await session.initialize()
            return await work(session)

    return anyio.run(main)


def told(*calls: Call, folder: Path = CAPTURES, options: tuple[str, ...] = ()) -> list[CallToolResult]:
    async def work(session: ClientSession) -> list[CallToolResult]:
        return [await session.call_tool(*each) for each in calls]

    found: list[CallToolResult] = served(work, str(folder), *options)
    return found


def text(result: CallToolResult) -> str:
    [content] = result.content
    assert content.type == "text"
    return content.text


def refused(result: CallToolResult) -> str:
    assert result.is_error
    return text(result)


def without_nulls(value: Any) -> Any:
    if isinstance(value, list):
        return [without_nulls(each) for each in value]
    if isinstance(value, dict):
        return {name: without_nulls(each) for name, each in value.items() if each is not None}
    return value


def written(tool: str, command: list[str], said: Said) -> tuple[int, dict[str, list[Any]], str]:
    """Exit code, tables and notes of a command."""
    form = [] if command[0] in ("report", "decode", "protocol") else ["-f", "json"]
    ended = said(*command, *form)
    out = ended.stdout.decode()
    if command[0] == "protocol":
        tables = {"lines": out.splitlines()}
    elif command[0] == "decode":
        tables = {"rows": [json.loads(line) for line in out.splitlines()]}
    else:
        found = json.loads(out)
        found = {"calls": found} if tool == "show" else found
        found = {"findings": found["findings"]} if tool == "findings" else found
        tables = {name: rows if isinstance(rows, list) else [rows] for name, rows in found.items()}
    return ended.returncode, tables, ended.stderr.decode()


def test_tools_say_what_the_commands_say(said: Said, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(session: ClientSession) -> Any:
        return (await session.list_tools()).tools, [await session.call_tool(*each) for each, _ in ANSWERS]

    tools, results = served(work, str(CAPTURES))
    assert {each.name for each in tools} == {"captures", *(name for (name, _), _ in ANSWERS)}
    asked = {name for each in tools for name in each.input_schema["properties"]}
    assert asked.isdisjoint(("output", "csv", "html", "records", "write_secrets", "keylog", "topic_ids"))
    assert all(each.annotations.read_only_hint for each in tools)
    monkeypatch.chdir(CAPTURES)
    for ((name, given), command), result in zip(ANSWERS, results, strict=True):
        code, tables, notes = written(name, command, said)
        found = result.structured_content
        assert json.loads(text(result)) == found
        assert [line.replace(f"{CAPTURES}/", "") for line in found["said"]] == notes.splitlines()[-20:]
        assert (name, found["exit_code"], [*found["tables"]]) == (name, code, [*tables])
        reads = name not in ("schema", "protocol")
        assert bool(found["untrusted"]) == reads
        for table, rows in tables.items():
            shown = json.loads(json.dumps(found["tables"][table]).replace(f"{CAPTURES}/", ""))
            there = without_nulls(rows)
            # Of the last there may be no room for all.
            assert shown[:-1] == there[: len(shown)][:-1], (name, table)
            assert bool(shown) == bool(there)
            assert len(shown) + found["left_out"].get(table, 0) == len(there), (name, table)
            assert len(shown) <= given.get("top", 20 if reads else 1_000)


def test_what_goes_wrong_is_the_line_of_the_command(said: Said, tmp_path: Path) -> None:
    whole = (CAPTURES / SASL).read_bytes()
    for name, data in (("none.pcap", b"no capture"), ("cut.pcapng", whole[:68_000])):
        (tmp_path / name).write_bytes(data)
    none, cut = str(tmp_path / "none.pcap"), str(tmp_path / "cut.pcapng")
    wrong: list[tuple[Call, list[str]]] = [
        (("slow", {"captures": ["none.pcap"]}), ["slow", none]),
        (("slow", {"captures": ["missing.pcap"]}), ["slow", str(tmp_path / "missing.pcap")]),
        (("slow", {"captures": ["-"]}), ["slow", str(tmp_path / "-")]),
        (
            ("slow", {"captures": ["cut.pcapng"], "where": "clint == 1"}),
            ["slow", cut, "--where", "clint == 1"],
        ),
        (("slow", {"captures": ["cut.pcapng"], "table": "call"}), ["slow", cut, "--table", "call"]),
        (("show", {"capture": "cut.pcapng", "target": "-1"}), ["show", "--", cut, "-1"]),
        (("protocol", {"api": "Fetsch"}), ["protocol", "Fetsch"]),
        (("slow", {"captures": ["cut.pcapng"]}), ["slow", cut, "-f", "json"]),
    ]
    results = told(*(each for each, _ in wrong), ("slow", {"captures": [none], "top": 0}),
                   ("slow", {"capture": none}), ("slo", {}), folder=tmp_path)  # fmt: skip
    *errors, damaged, small, unknown, tool = results
    for result, (_, command) in zip(errors, wrong, strict=False):
        ended = said(*command)
        assert (ended.returncode, refused(result)) == (2, ended.stderr.decode().splitlines()[-1])
    ended = said(*wrong[-1][1])
    assert damaged.structured_content["exit_code"] == ended.returncode == 3
    assert damaged.structured_content["said"] == ended.stderr.decode().splitlines()
    assert refused(small) == "kwsniff: slow: 0 is less than the minimum of 1"
    assert refused(unknown) == "kwsniff: slow: 'captures' is a required property"
    assert refused(tool) == "kwsniff: there is no tool 'slo' (did you mean slow?)"


def test_nothing_is_read_that_is_not_below_the_directories(tmp_path: Path) -> None:
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    for folder in (inside / "links", inside / "deep" / "deeper", inside / "stored", outside):
        folder.mkdir(parents=True)
    shutil.copy(CAPTURES / SASL, outside / SASL)
    shutil.copy(CAPTURES / SASL, inside / SASL)
    assert run(["decode", "-q", str(inside / SASL), "-o", str(outside / "calls.parquet")]) == 0
    for link, to in (("link.pcapng", outside / SASL), ("links/a", outside / SASL), ("folder", outside),
                     ("deep/deeper/a", outside / SASL), ("own.pcapng", inside / SASL)):  # fmt: skip
        (inside / link).symlink_to(to)
    tables = {"calls": [{"hour": 0, "path": "../../outside/calls.parquet"}]}
    (inside / "stored" / "manifest.json").write_text(json.dumps({"tables": tables}))
    os.mkfifo(inside / "pipe.pcap")
    escapes = {
        str(outside / SASL): "not below", "../outside/" + SASL: "not below", "/etc/passwd": "not below",
        "link.pcapng": "not below", f"folder/{SASL}": "not below", "/etc/no-such-file": "not below",
        "links": "leads out of", "stored": "names a file that is not in the folder",
        "pipe.pcap": "neither a file nor a directory", "a\0b": "null byte",
        f"file://{outside / SASL}": "No such file", "s3://bucket/a.pcap": "No such file",
    }  # fmt: skip
    one, other = [("clients", {"captures": [path]}) for path in (SASL, "own.pcapng")]
    results = told(
        ("captures", {}), one, other, ("clients", {"captures": ["deep"]}),
        ("clients", {"captures": ["deep"], "recursive": True}),
        ("compare", {"capture": SASL, "other": "link.pcapng"}),
        *(("clients", {"captures": [path]}) for path in escapes), folder=inside,
    )  # fmt: skip
    listed, plain, linked, shallow, deep, compared, *errors = results
    rows = listed.structured_content["tables"]["captures"]
    assert [row["capture"] for row in rows] == [
        str(inside / "own.pcapng"),
        str(inside / SASL),
        str(inside / "stored"),
    ]
    assert rows[1]["bytes"] == (inside / SASL).stat().st_size
    assert plain.structured_content == linked.structured_content
    assert "not below" not in refused(shallow)
    assert "leads out of" in refused(deep)
    assert "link.pcapng: not below" in refused(compared)
    for (path, why), result in zip(escapes.items(), errors, strict=True):
        assert why in refused(result), path


def test_results_are_bounded_and_marked(tmp_path: Path) -> None:
    hostile = "\u202eld-java-\x1bst"
    data = (CAPTURES / "kafka-0.10.pcap").read_bytes()
    (tmp_path / "a.pcap").write_bytes(data.replace(b"old-java-first", hostile.encode()))
    assert len(hostile.encode()) == len("old-java-first")
    clients, whole, one = told(
        ("clients", {"captures": ["a.pcap"]}), ("report", {"captures": ["a.pcap"], "top": 1_000}),
        ("decode", {"captures": ["a.pcap"], "top": 1, "columns": "time,latency_us,client_id"}),
        folder=tmp_path,
    )  # fmt: skip
    names = {row["client"] for row in clients.structured_content["tables"]["clients"]}
    assert "\\u202eld-java-\\x1bst" in names
    assert not any(hostile in text(each) for each in (clients, whole, one))
    assert {"clients.client", "clients.consumes", "said"} <= {*clients.structured_content["untrusted"]}
    assert one.structured_content["untrusted"] == ["rows.client_id", "said"]
    assert one.structured_content["left_out"] == {"rows": 1}
    assert len(text(whole)) < 40_000
    assert all(whole.structured_content["tables"].values())
    assert {"api", "client"} <= {*whole.structured_content["left_out"]}
    for name in map(str, range(10_001)):
        (tmp_path / name).touch()
    assert "more than 10,000 files" in refused(*told(("captures", {}), folder=tmp_path))
    [late] = told(("slow", ONE), options=("--timeout", "0.1"))
    assert refused(late).startswith("kwsniff: slow: ended after 0.1 s; ")


def test_credentials_are_not_told() -> None:
    where = {"where": "api == 'SaslAuthenticate'", "full": True, "top": 1_000}
    [found] = told(("decode", {"captures": [SASL]} | where))
    assert b"throw-away-1" in (CAPTURES / SASL).read_bytes()
    rows = found.structured_content["tables"]["rows"]
    assert all(row["request"] for row in rows)
    packets = [str(row["request_packet"]) for row in rows]
    results = told(*(("show", {"capture": SASL, "target": packet}) for packet in packets[:6]))
    for result in (found, *results):
        assert "throw-away" not in text(result)
        assert b"throw-away".hex() not in text(result)


def processes(*words: str) -> list[int]:
    """Processes whose command line has all of these words."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            line = (folder / "cmdline").read_bytes().decode().split("\0")
        except OSError:  # it has ended
            continue
        if all(word in line for word in words):
            found.append(int(folder.name))
    return found


@pytest.mark.parametrize("ending", ["cancelled", "signal", "closed"])
def test_what_runs_ends_with_the_call_and_with_the_server(ending: str, tmp_path: Path) -> None:
    shutil.copytree(CAPTURES, folder := tmp_path / "captures")

    def working() -> list[int]:
        return processes("errors", str(folder))

    async def until(ready: Callable[[], bool]) -> None:
        with anyio.fail_after(30):
            while not ready():
                await anyio.sleep(0.02)

    async def work(session: ClientSession) -> None:
        async with anyio.create_task_group() as group:

            async def call() -> None:
                with pytest.raises(MCPError, match="closed"):
                    await session.call_tool("errors", {"captures": ["."], "full": True})

            group.start_soon(call)
            await until(lambda: bool(working()))
            if ending == "signal":
                [server] = processes("mcp", str(folder))
                os.kill(server, signal.SIGTERM)
                return
            group.cancel_scope.cancel()
        if ending == "cancelled":
            await until(lambda: not working())
            assert not (await session.call_tool("protocol", {})).is_error

    served(work, str(folder), KWSNIFF_KERNELS="interpreted")  # which takes its time
    deadline = time.monotonic() + 10
    while working() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not working()


def test_what_cannot_be_served_is_said_in_one_line(said: Said, monkeypatch: pytest.MonkeyPatch) -> None:
    assert said("mcp", "no-such-directory").stderr == b"kwsniff: no-such-directory: not a directory\n"
    monkeypatch.setitem(sys.modules, "mcp_types", None)
    monkeypatch.delitem(sys.modules, "kwsniff.cli.toolserver")
    ended = said("mcp")
    assert (ended.returncode, ended.stderr) == (
        2, b"kwsniff: kwsniff mcp needs the MCP SDK: pip install 'kwsniff[mcp]'\n",
    )  # fmt: skip


def test_the_program_in_the_documentation_prints_what_stands_below_it() -> None:
    [(program, printed)] = re.findall(
        r"```python\n(.*?)```\n```\n(.*?)```", (ROOT / "docs/mcp.md").read_text(), re.DOTALL
    )
    started = f'command={sys.executable!r}, env={{"PYTHONPATH": {str(ROOT)!r}}}, args=["-m", "kwsniff", "mcp"'
    assert 'command="kwsniff", args=["mcp"' in program
    program = program.replace('command="kwsniff", args=["mcp"', started)
    ended = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert ended.stdout == printed
