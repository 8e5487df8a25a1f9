"""The fields of messages as rows that a page can show: bounded, and with nothing that is to stay hidden."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import orjson

from kwsniff.analysis.bytestream import FramedMessage, messages_of_calls
from kwsniff.analysis.tree import Node, tree_of
from kwsniff.config import Config
from kwsniff.output.text import printable
from kwsniff.spec.binary import DecodeError
from kwsniff.spec.compile import decode_body
from kwsniff.spec.interpret import BodyReader
from kwsniff.spec.load import catalog
from kwsniff.spec.render import render

Row = dict[str, Any]
Tree = dict[str, Any]
FIELDS = 140
"""Fields shown of one message."""
LONGEST = 160
"""Characters shown of one value."""
HEX_BYTES = 8
PACKETS = 6


def read_again(
    paths: Sequence[str], slowest: Sequence[Row], groups: Sequence[Row], config: Config
) -> dict[int, list[Tree]]:
    """Read captures a second time for what stands in the messages of some calls: the trees of `slowest` by
    their place in the list; those of `groups` get their bodies. Raises CaptureError."""
    trees: dict[int, list[Tree]] = {}
    calls = [*slowest, *groups]
    for number, direction, message in messages_of_calls(paths, calls, config):
        call = calls[number]
        if number < len(slowest):
            trees.setdefault(number, []).append(of_message(call, direction, message))
        elif not message.missing:
            data = message.data
            call[direction] = _body_json(data, call["api_key"], call["api_version"], direction)
    return {number: sorted(found, key=lambda tree: tree["what"]) for number, found in trees.items()}


def of_message(call: Mapping[str, Any], direction: str, message: FramedMessage) -> Tree:
    """The tree of one message: `what` it is, its size, packets and `fields` (depth, offset, bytes, name,
    type, value), how many are left out (`more`), and what is wrong with it (`problem`)."""
    shown: Tree = {
        "what": direction, "bytes": len(message.data), "packets": message.packets[:PACKETS],
        "more_packets": max(len(message.packets) - PACKETS, 0), "fields": [], "more": 0, "problem": "",
    }  # fmt: skip
    try:
        tree = tree_of(message.data, call["api_key"], call["api_version"], direction)
    except KeyError:
        return shown | {"problem": "an API or version that is not known: its fields are not"}
    nodes = [(node, depth) for node, depth, _ in tree.walk()]
    shown["fields"] = [_field(node, depth, message.data) for node, depth in nodes[:FIELDS]]
    shown["more"] = max(len(nodes) - FIELDS, 0)
    missing = "bytes are missing from the capture, so what stands behind them is not so"
    shown["problem"] = missing if message.missing else printable(tree.problem)
    return shown


def _field(node: Node, depth: int, data: bytes) -> list[Any]:
    hexed = "" if node.children else "··" if node.hidden else _hex(data[node.start : node.end])
    kind = " ".join(filter(None, (node.type, node.versions)))
    return [depth, node.start, hexed, printable(node.name), kind, _value(node)]


def _hex(data: bytes) -> str:
    return data[:HEX_BYTES].hex(" ", 2) + ("…" if len(data) > HEX_BYTES else "")


def _value(node: Node) -> str:
    if node.children:
        return ""
    text = _text(node.value)
    return f"{text}  {node.meaning}" if node.meaning else text


def _text(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    text = printable(text)
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def of_bodies(call: Mapping[str, Any]) -> list[Tree]:
    """The trees of a call of EVENTS whose bodies were kept; they have no offsets."""
    found = []
    for direction in ("request", "response"):
        if call.get(direction):
            fields = list(_json_fields(orjson.loads(call[direction]), 0))
            found.append({
                "what": direction, "bytes": call[f"{direction}_bytes"], "packets": [], "more_packets": 0,
                "fields": fields[:FIELDS], "more": max(len(fields) - FIELDS, 0), "problem": "",
            })  # fmt: skip
    return found


def _json_fields(value: Any, depth: int) -> Iterator[list[Any]]:
    items = value.items() if isinstance(value, dict) else ((f"[{at}]", each) for at, each in enumerate(value))
    for name, inner in items:
        if isinstance(inner, dict | list) and inner:
            yield [depth, None, "", printable(name), "", ""]
            yield from _json_fields(inner, depth + 1)
        else:
            yield [depth, None, "", printable(name), "", _text(inner)]


LENGTH = 4
"""Bytes before a frame that say how long it is."""


def _body_json(frame: bytes, api_key: int, version: int, direction: str) -> str | None:
    """The JSON text of the body of a request or response frame, None if it cannot be decoded."""
    api = catalog().apis.get(api_key)
    if api is None or version not in api.versions:
        return None
    request = direction == "request"
    head = catalog().data("RequestHeader" if request else "ResponseHeader")
    header = api.request_header_version(version) if request else api.response_header_version(version)
    layout = head.at(header)
    reader = BodyReader(frame, LENGTH, len(frame), False)
    try:
        reader.struct(layout.items, layout.flexible, "", reader.limit)
        body = decode_body(api_key, version, direction, frame[reader.pos :])
    except DecodeError:
        return None
    return render(api_key, version, direction, body, Config())
