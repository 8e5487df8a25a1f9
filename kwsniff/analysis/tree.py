"""The fields of one message, each with its place in the frame.

What a field means is shown as `kwsniff decode --full` shows it, so that credentials stay hidden; error
codes, APIs and times are given in words beside. Where the bytes stop making sense the tree ends, and says
why.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson

from kwsniff.config import Config
from kwsniff.spec.binary import Buffer, DecodeError
from kwsniff.spec.interpret import BodyReader
from kwsniff.spec.load import catalog, is_downgraded
from kwsniff.spec.model import Field, Item, Layout, Message, Versions
from kwsniff.spec.render import HIDDEN, render

LENGTH = 4
"""Bytes before a frame that say how long it is."""
OPAQUE = ("bytes", "records")
HEX_BYTES = 8
"""Bytes shown beside a field."""
UNKNOWN = "an API or version that is not known: its fields are not"
"""In place of a tree."""


@dataclass(slots=True)
class Node:
    """One field, struct, or element of a list; `start` and `end` are its bytes in the frame."""

    name: str
    type: str
    versions: str
    start: int
    end: int = 0
    value: Any = None
    """Of a field without children."""
    meaning: str = ""
    hidden: bool = False
    """Its bytes are not to be shown."""
    children: list[Node] = field(default_factory=list)

    @property
    def kind(self) -> str:
        """Its type, and the versions that have it."""
        return " ".join(filter(None, (self.type, self.versions)))

    def hex(self, frame: bytes) -> str:
        """Its first bytes in the frame, unless its children have them."""
        if self.hidden or self.children:
            return "" if self.children else "··"
        found = frame[self.start : self.end]
        return found[:HEX_BYTES].hex(" ", 2) + ("…" if len(found) > HEX_BYTES else "")

    def walk(self, depth: int = 0, path: str = "") -> Iterator[tuple[Node, int, str]]:
        """This node and all below it, each with its depth and path."""
        path = f"{path}{self.name}" if self.name.startswith("[") or not path else f"{path}.{self.name}"
        yield self, depth, path
        for child in self.children:
            yield from child.walk(depth + 1, path)


@dataclass(slots=True)
class Tree:
    """A frame taken apart: its length, header and body."""

    title: str
    nodes: list[Node]
    problem: str = ""
    """Why the fields end early, if they do."""
    body: str | None = None
    """The body as `kwsniff decode --full` shows it, if it could be read."""

    def walk(self) -> Iterator[tuple[Node, int, str]]:
        """All nodes with depth and path."""
        for node in self.nodes:
            yield from node.walk()


def tree_of(frame: bytes, api_key: int, version: int, direction: str, *, records: bool = False) -> Tree:
    """The tree of a request or response frame. KeyError if the API or version is unknown."""
    api = catalog().api(api_key)
    if version not in api.versions:
        raise KeyError(f"{api.name} v{version}")
    header_version = api.request_header_version(version)
    if direction == "response":
        header_version = api.response_header_version(version)
    header = catalog().data("RequestHeader" if direction == "request" else "ResponseHeader")
    nodes = [Node("length", "int32", "", 0, LENGTH, int.from_bytes(frame[:LENGTH], "big"))]
    reader = _Recorder(frame, LENGTH, len(frame), header)
    tree = Tree(f"{api.name} v{version} {direction}", nodes)
    try:
        _describe(reader.top.children, reader.body(header.at(header_version)))
    except DecodeError as error:
        tree.problem = _told(error, LENGTH)
    nodes += reader.top.children
    if tree.problem:
        return tree
    answers = direction == "response" and api.may_be_downgraded(version)
    if answers and is_downgraded(frame, reader.pos, len(frame)):
        version = 0
        tree.title += ", answered in version 0"
    _body(tree, frame, reader.pos, api.message(direction), version, records)
    return tree


def _body(tree: Tree, frame: bytes, start: int, message: Message, version: int, records: bool) -> None:
    reader, layout = _Recorder(frame, start, len(frame), message), message.at(version)
    try:
        body = reader.body(layout)
    except DecodeError as error:
        _hide_what_may_be_secret(reader.top.children)
        _describe(reader.top.children, None)
        tree.nodes += reader.top.children
        tree.problem = _told(error, start)
        return
    assert layout.api_key is not None
    tree.body = render(layout.api_key, layout.version, layout.direction, body, Config(records=records))
    _describe(reader.top.children, orjson.loads(tree.body))
    tree.nodes += reader.top.children
    if reader.pos < len(frame):
        tree.problem = f"{len(frame) - reader.pos} bytes are left over after the last field"


def _told(error: DecodeError, start: int) -> str:
    place = "" if error.offset is None else f" at offset {start + error.offset}"
    return f"{error.code} in {error.path or 'the header'}{place}: the fields end here"


class _Recorder(BodyReader):
    """Reads a body and notes where each field lies."""

    def __init__(self, frame: Buffer, start: int, end: int, message: Message) -> None:
        super().__init__(frame, start, end, False)
        self.top = Node("", "", "", start)
        self._open = [self.top]
        self._fields: list[dict[str, Field]] = [{each.name: each for each in message.fields}]
        self._message = message.versions

    def body(self, layout: Layout) -> dict[str, Any]:
        """All fields of the layout."""
        return self.struct(layout.items, layout.flexible, "", self.limit)

    def field(self, item: Item, path: str, end: int) -> Any:
        """One field, with the node that it gets."""
        known = self._fields[-1].get(item.name)
        tag = f" tag {item.tag}" if item.tag is not None else ""
        versions = _written(known, self._message) if known else ""
        node = Node(item.name, f"{item.kind}{'?' if item.nullable else ''}{tag}", versions, self.pos)
        node.hidden = "secret" in item.roles or "auth_bytes" in item.roles
        self._fields.append({each.name: each for each in known.fields} if known else {})
        try:
            return self._inside(node, lambda: super(_Recorder, self).field(item, path, end))
        finally:
            self._fields.pop()

    def element(self, item: Item, path: str, end: int) -> Any:
        """One element of a list."""
        node = Node(path[path.rindex("[") :], item.type, "", self.pos)
        return self._inside(node, lambda: super(_Recorder, self).element(item, path, end))

    def _inside(self, node: Node, read: Any) -> Any:
        self._open[-1].children.append(node)
        self._open.append(node)
        try:
            node.value = read()
        finally:
            node.end = self.pos
            self._open.pop()
        return node.value


def _written(known: Field, message: Versions) -> str:
    """The versions a field is in, as dissectors write them; nothing for all of the message's."""
    if known.versions.ranges == message.ranges:
        return ""
    if len(known.versions.ranges) == 1 and known.versions.last == message.last:
        return f"{known.versions.first}+"
    return str(known.versions)


def _describe(nodes: Sequence[Node], shown: Any) -> None:
    """Give every node the value that may be shown, and what it means."""
    for at, node in enumerate(nodes):
        inner = _inner(shown, node, at)
        if isinstance(inner, str) and inner == HIDDEN:
            node.hidden = True
        if node.type.removeprefix("[]").rstrip("?").split()[0] in OPAQUE and not node.children:
            node.hidden = node.hidden or not _opened(inner)
            node.value = inner if shown is not None else {"bytes": node.end - node.start}
        elif node.children:
            _describe(node.children, inner)
            node.value = None
        else:
            node.value = HIDDEN if node.hidden else (node.value if inner is None else inner)
            node.meaning = _meaning(node)


def _hide_what_may_be_secret(nodes: Sequence[Node]) -> None:
    """Of a body that could not be read to its end it is not known which values are credentials."""
    for node in nodes:
        node.hidden = node.hidden or node.name == "value" or node.type.startswith("bytes")
        _hide_what_may_be_secret(node.children)


def _opened(inner: Any) -> bool:
    """Whether what lies in the bytes may be seen: it was asked for, or holds no payload."""
    return isinstance(inner, dict) and "message" in inner


def _inner(shown: Any, node: Node, at: int) -> Any:
    if isinstance(shown, list):
        return shown[at] if at < len(shown) else None
    return shown.get(node.name) if isinstance(shown, dict) else None


def _meaning(node: Node) -> str:
    name, value = node.name, node.value
    if isinstance(value, bool) or not isinstance(value, int):
        return ""
    if name.endswith("error_code"):
        return catalog().error(value).name
    if name in ("request_api_key", "api_key"):
        api = catalog().apis.get(value)
        return api.name if api else ""
    if node.type.startswith("int64") and ("timestamp" in name or name.endswith("_time_ms")) and value > 0:
        return _moment(value)
    return ""


def _moment(milliseconds: int) -> str:
    try:
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return ""
    return f"{moment:%Y-%m-%dT%H:%M:%S.%fZ}"
