"""Single calls. The job of `kwsniff show`: one call whole, each field of request and response with place and
bytes; and that of `kwsniff extract`."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.compute as pc

from kwsniff.analysis.bytestream import (
    REQUEST,
    RESPONSE,
    FramedMessage,
    Row,
    Target,
    ends_of_packet,
    found_calls,
    messages_of,
    next_call,
)
from kwsniff.analysis.extract import MAX_CALLS, NEEDS, Chosen, choose, copy
from kwsniff.analysis.stored import is_stored
from kwsniff.analysis.tree import UNKNOWN, Node, Tree, tree_of
from kwsniff.capture.error import CaptureError
from kwsniff.cli import problem
from kwsniff.cli.answering import BOLD, DIM, Look, check, json_text, look, painted, taken
from kwsniff.cli.destination import Output
from kwsniff.cli.problem import CommandError
from kwsniff.cli.request import Request, refuse_overwriting
from kwsniff.cli.telling import Reading
from kwsniff.output.text import cut, printable, spreadsheet_safe
from kwsniff.output.units import bytes_text, endpoint, many, short_duration
from kwsniff.rows.events import CALL

# Record batches as lines: a line for each batch, and with their records one for each of these.

USUAL = {"producer_id": -1, "producer_epoch": -1, "base_sequence": -1, "leader_epoch": -1}
"""Values that say nothing."""
TOLD = frozenset(
    ("base_offset", "last_offset", "size", "codec", "count", "magic", "base_timestamp", "records")
)


def is_batches(value: Any) -> bool:
    """Whether a value is record data as `decode --full` renders it."""
    return isinstance(value, list) and all(isinstance(each, dict) and "magic" in each for each in value)


def batch_lines(batches: list[Row]) -> Iterator[str]:
    """Each batch, and its records below."""
    for batch in batches:
        yield "batch  " + "  ".join(_batch(batch))
        for record in batch.get("records") or ():
            yield "  record  " + "  ".join(_record(record))


def _batch(batch: Row) -> Iterator[str]:
    first, last = batch.get("base_offset"), batch.get("last_offset")
    yield f"offsets {first}-{last}" if last is not None else f"offset {first}"
    if batch.get("count") is not None:
        yield "1 record" if batch["count"] == 1 else f"{batch['count']} records"
    yield f"{bytes_text(batch.get('size') or 0)}  {batch.get('codec')}  magic {batch['magic']}"
    if batch.get("base_timestamp") is not None:
        yield _moment(batch["base_timestamp"])
    for name, value in batch.items():
        if name not in TOLD and value not in (None, False) and USUAL.get(name) != value:
            yield f"{name} {printable(str(value))}"


def _record(record: Row) -> Iterator[str]:
    yield f"offset {record.get('offset')}"
    if record.get("timestamp") is not None:
        yield _moment(record["timestamp"])
    yield f"{_payload(record.get('key'))}: {_payload(record.get('value'))}"
    if record.get("headers"):
        yield f"headers {_payload(record['headers'])}"


def _payload(value: Any) -> str:
    return printable(json.dumps(value, ensure_ascii=False))


def _moment(milliseconds: int) -> str:
    if milliseconds < 0:
        return "no time"
    try:
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return f"time {milliseconds}"
    return f"{moment:%Y-%m-%dT%H:%M:%S.}{moment.microsecond // 1000:03}Z"


CALLS_SHOWN = 20
HEAD = ("call", "message", "path", "type", "versions", "offset", "size", "value", "meaning", "hex")


@dataclass(frozen=True, slots=True)
class ShownCall:
    """A message with its tree; without one if its API or version is not known."""

    direction: str
    message: FramedMessage
    tree: Tree | None


def show(request: Request, target: str, records: bool) -> int:
    """Print the calls that `target` names; return the exit code. Raises CommandError."""
    check(request)
    path = _capture(request)
    calls = _calls(path, target, request)
    whole = [(call, _shown(path, call, request, records)) for call in calls[:CALLS_SHOWN]]
    if request.form == "json":
        print(json_text([_json(call, parts) for call, parts in whole]))
    elif request.form == "csv":
        _csv(whole)
    else:
        for at, (call, parts) in enumerate(whole):
            print(("\n" if at else "") + "\n".join(_text(call, parts, look(request))))
    sys.stdout.flush()
    if len(calls) > CALLS_SHOWN:
        print(f"note: {len(calls) - CALLS_SHOWN} more calls are named by {target}", file=sys.stderr)
    return problem.DONE


def _capture(request: Request) -> str:
    [path] = request.paths
    if is_stored(path):
        raise CommandError(f"{path}: stored events hold no packets; name the capture")
    return path


def _calls(path: str, text: str, request: Request) -> list[Row]:
    try:
        target = Target.of(text)
        calls = found_calls(path, target, request.config)
        if not calls and target.packet is not None:
            calls = _around(path, target.packet, request)
    except (ValueError, CaptureError) as error:
        raise CommandError(str(error)) from None
    if not calls:
        raise CommandError(f"{path}: no call is named by {text}")
    return calls


def _around(path: str, packet: int, request: Request) -> list[Row]:
    """The call that a packet brings a part of."""
    ends = ends_of_packet(path, packet, request.config)
    if ends is None:
        raise CommandError(f"{path}: packet {packet} holds no TCP segment")
    call = next_call(path, ends, packet, request.config)
    if call is None:
        raise CommandError(f"{path}: packet {packet} belongs to no call")
    print(f"note: packet {packet} completes no message; the next one of its connection", file=sys.stderr)
    return [call]


def _shown(path: str, call: Row, request: Request, records: bool) -> list[ShownCall]:
    found = messages_of(path, call, request.config)
    return [
        ShownCall(direction, found[direction], _tree(call, direction, found[direction], records))
        for direction in (REQUEST, RESPONSE)
        if direction in found
    ]


def _tree(call: Row, direction: str, message: FramedMessage, records: bool) -> Tree | None:
    try:
        tree = tree_of(message.data, call["api_key"], call["api_version"], direction, records=records)
    except KeyError:
        return None
    if message.missing:
        spans = ", ".join(f"{first}-{last}" for first, last in message.missing[:3])
        tree.problem = f"bytes {spans} are missing from the capture; what is read from there on is not so"
    return tree


# Text


def _text(call: Row, parts: list[ShownCall], look: Look) -> Iterator[str]:
    yield painted(_title(call), BOLD, look)
    yield from _outcome(call)
    for part in parts:
        yield ""
        packets = _packets(part.message.packets)
        size = bytes_text(len(part.message.data))
        when = call[f"{part.direction}_time"]
        yield painted(f"{part.direction}  {size}  {packets}  {_time(when, look.zone)}", BOLD, look)
        if part.tree is None:
            yield f"  {UNKNOWN}"
            continue
        yield from _fields(part, look)
        if part.tree.problem:
            yield f"  {part.tree.problem}"


def _title(call: Row) -> str:
    name = call["api"] or f"API {call['api_key']}"
    client = "" if call["client_id"] is None else f"  {printable(call['client_id'])}"
    return f"{name} v{call['api_version']} #{call['correlation_id']}{client}  connection {call['connection']}"


def _outcome(call: Row) -> Iterator[str]:
    ends = [endpoint(call[f"{side}_ip"], call[f"{side}_port"]) for side in ("client", "broker")]
    parts = [" -> ".join(ends), str(call["status"])]
    if call["error_code"]:
        parts.append(str(call["error"]))
    if call["unanswered_because"]:
        parts.append(str(call["unanswered_because"]))
    if call["latency_us"] is not None:
        parts.append(f"latency {short_duration(call['latency_us'])}")
    yield "  ".join(parts)


def _packets(packets: list[int]) -> str:
    if len(packets) == 1:
        return f"packet {packets[0]}"
    shown = ", ".join(map(str, packets[:6]))
    return f"packets {shown}" + (f" ... {packets[-1]} ({len(packets)})" if len(packets) > 6 else "")


def _time(when: Any, zone: ZoneInfo) -> str:
    return "" if when is None else f"{when.astimezone(zone):%Y-%m-%d %H:%M:%S.%f}"


def _fields(part: ShownCall, look: Look) -> Iterator[str]:
    assert part.tree is not None
    rows = list(part.tree.walk())
    names = [f"{'  ' * depth}{node.name}" for node, depth, _ in rows]
    wide, kind = max(map(len, names)), max(len(node.kind) for node, _, _ in rows)
    for (node, depth, _), name in zip(rows, names, strict=True):
        shown = node.hex(part.message.data)
        before = f"  {node.start:>5}  {shown:<24}{name:<{wide}}  {node.kind:<{kind}}  "
        first, *more = _value(node)
        yield _line(before, first, look)
        for line in more:
            yield _line(" " * (9 + 2 * depth), line, look)


def _line(before: str, value: str, look: Look) -> str:
    text = (before + value).rstrip()
    text = cut(text, look.width) if look.width else text
    return painted(text[:33], DIM, look) + text[33:]


def _value(node: Node) -> list[str]:
    if node.children:
        return [""]
    if isinstance(node.value, dict | list) and node.value:
        if is_batches(node.value):
            return ["", *batch_lines(list(node.value))]
        return ["", *json_lines(node.value)]
    value = json.dumps(node.value, ensure_ascii=False) if not isinstance(node.value, str) else node.value
    value = '""' if value == "" else printable(value)
    return [f"{value}  {node.meaning}" if node.meaning else value]


def json_lines(value: Any) -> list[str]:
    """What was read out of bytes, as indented lines."""
    return [printable(line) for line in json.dumps(value, ensure_ascii=False, indent=2).splitlines()]


# For programs


def _json(call: Row, parts: list[ShownCall]) -> dict[str, Any]:
    kept = {name: value for name, value in call.items() if value is not None and name != "partitions"}
    found: dict[str, Any] = {
        "call": {
            name: value.isoformat() if hasattr(value, "isoformat") else value for name, value in kept.items()
        }
    }
    for part in parts:
        message = {"bytes": len(part.message.data), "packets": part.message.packets}
        nodes = [] if part.tree is None else [_node(node, part.message.data) for node in part.tree.nodes]
        problem = {"problem": part.tree.problem} if part.tree and part.tree.problem else {}
        found[part.direction] = message | {"fields": nodes} | problem
    return found


def _node(node: Node, data: bytes) -> dict[str, Any]:
    found = {"name": node.name, "type": node.type, "offset": node.start, "size": node.end - node.start}
    if node.versions:
        found["versions"] = node.versions
    if node.children:
        return found | {"fields": [_node(child, data) for child in node.children]}
    if not node.hidden:
        found["hex"] = data[node.start : node.end].hex()
    if node.meaning:
        found["meaning"] = node.meaning
    return found | {"value": node.value}


def _csv(whole: list[tuple[Row, list[ShownCall]]]) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(HEAD)
    for call, parts in whole:
        for part in parts:
            for node, _, path in part.tree.walk() if part.tree else ():
                if not node.children:
                    writer.writerow(_csv_row(call, part, node, path))


def _csv_row(call: Row, part: ShownCall, node: Node, path: str) -> tuple[Any, ...]:
    value = node.value if isinstance(node.value, str) else json.dumps(node.value, ensure_ascii=False)
    safe = spreadsheet_safe(pa.array([value]))[0].as_py()
    hexed = "" if node.hidden else part.message.data[node.start : node.end].hex()
    return (
        f"{call['connection']}#{call['correlation_id']}", part.direction, path, node.type, node.versions,
        node.start, node.end - node.start, safe, node.meaning, hexed,
    )  # fmt: skip


# The job of `kwsniff extract`: packets of chosen calls into a capture of their own.


def extract(request: Request, output: str, write_secrets: bool) -> int:
    """Write the packets, and what reads them if they are encrypted; return the exit code. Raises
    CommandError."""
    check(request)
    _readable(request)
    refuse_overwriting(output, request.paths)
    reading = Reading(request)
    calls = _chosen_calls(reading)
    if not calls:
        problem.said("no call was found, and nothing written")
        return problem.DONE
    try:
        chosen = choose(request.paths, calls, request.config, readable=write_secrets)
        written = _written(request, chosen, output)
    except CaptureError as error:
        raise CommandError(str(error)) from None
    if not request.quiet:
        more = f", with secrets of {many(chosen.readable, 'connection')}" if write_secrets else ""
        print(f"{written:,} packets of {len(calls):,} calls written to {output}{more}", file=sys.stderr)
    return reading.code()


def _readable(request: Request) -> None:
    """Inputs are read three times, and must hold packets."""
    for path in request.paths:
        if path == "-":
            raise CommandError("extract reads its input several times: standard input can be read only once")
        if is_stored(path):
            raise CommandError(f"{path}: stored events hold no packets; name the captures")


def _chosen_calls(reading: Reading) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    request = reading.request
    for batch in taken(reading, NEEDS):
        own = batch.filter(pc.equal(batch["event"], CALL))
        found += own.select(sorted(NEEDS)).to_pylist()
        if request.top and len(found) >= request.top:
            return found[: request.top]
        if len(found) > MAX_CALLS:
            raise CommandError(f"more than {MAX_CALLS:,} calls: narrow --where, or give --top")
    return found


def _written(request: Request, chosen: Chosen, output: str) -> int:
    out = Output(output)
    try:
        if out.terminal:
            raise CommandError("pcapng is not for a terminal: give -o FILE or a pipe")
        written = copy(request.paths, chosen, out.stream, request.config)
        out.commit()
        return written
    finally:
        out.discard()
