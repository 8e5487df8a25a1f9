"""The dissectors in words: the list of APIs, one layout as text, and all of them as data."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from kwsniff.spec.load import catalog
from kwsniff.spec.model import Item, Layout, Message, Versions

INDENT = "  "


class ListedMessage(NamedTuple):
    """One line of the list of APIs."""

    api_key: int
    api: str
    versions: str
    flexible: str
    """First flexible version with a `+`, or `none` (KIP-482)."""
    kafka4: str
    """Versions that 4.x still speaks, or `none`."""
    doc: str


def listing() -> list[ListedMessage]:
    """All APIs in the order of their keys."""
    return [
        ListedMessage(
            api.key, api.name, str(api.versions), _from(api.head.flexible), str(api.head.kafka4), api.doc
        )
        for api in catalog().apis.values()
    ]


def _from(flexible: Versions) -> str:
    return f"{flexible.first}+" if flexible else "none"


def dump() -> Iterator[dict[str, Any]]:
    """Every message version, one dict each, as `kwsniff protocol dump` prints them.

    Requests and responses in the order of keys, then data messages (`direction` "data", `api_key` None).
    """
    for api in catalog().apis.values():
        for direction in ("request", "response"):
            for version in api.versions:
                yield _dumped(api.message(direction).at(version))
    for message in catalog().data_messages():
        for version in message.versions:
            yield _dumped(message.at(version))


def _dumped(layout: Layout) -> dict[str, Any]:
    return {
        "api_key": layout.api_key,
        "api": layout.name,
        "direction": layout.direction,
        "version": layout.version,
        "flexible": layout.flexible,
        "fields": _dumped_items(layout.items),
    }


def _dumped_items(items: tuple[Item, ...]) -> list[dict[str, Any]]:
    return [
        {
            "name": item.name,
            "type": item.kind,
            "nullable": item.nullable,
            "tag": item.tag,
            "fields": _dumped_items(item.items) if item.type == "struct" else None,
        }
        for item in items
    ]


def layout(api: str | int, version: int | None = None) -> str:
    """Both layouts of an API at one version (by default its last), or that of a data message, as text.

    Raises:
        KeyError: no API or data message of that name or key.
        ValueError: no such version; the message says which there are.
    """
    first, *others = _messages(str(api))
    chosen = first.versions.last if version is None else version
    if chosen not in first.versions:
        raise ValueError(f"{first.name} has versions {first.versions}, not {chosen}")
    key = "" if first.api_key is None else f" (key {first.api_key})"
    doc = first.doc if first.api_key is None else catalog().api(first.api_key).doc
    head = [f"{first.name}{key} version {chosen}", *([doc] if doc else [])]
    layouts = (_layout_text(message.at(chosen)) for message in (first, *others))
    return "\n\n".join(["\n".join(head), *layouts]) + "\n"


def _messages(name: str) -> list[Message]:
    """Request and response of an API, or a data message."""
    try:
        api = catalog().named(name)
    except KeyError:
        found = [each for each in catalog().data_messages() if each.name.lower() == name.lower()]
        if not found:
            raise
        return found[:1]
    return [api.request, api.response]


def _layout_text(layout: Layout) -> str:
    title = f"{layout.direction}{' (flexible)' if layout.flexible else ''}"
    rows = list(_rows(layout.items, 1))
    if not rows:
        return f"{title}\n{INDENT}no fields"
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    body = [
        "  ".join([*(cell.ljust(w) for cell, w in zip(row, widths, strict=False)), row[3]]) for row in rows
    ]
    return "\n".join([title, *(line.rstrip() for line in body)])


def _rows(items: tuple[Item, ...], depth: int) -> Iterator[tuple[str, str, str, str]]:
    """Name, type, tag and comment of each field, those of structs below them."""
    for item in items:
        kind = _wire_type(item)
        tag = "" if item.tag is None else f"tag {item.tag}"
        yield INDENT * depth + item.name, kind, tag, f"# {item.doc}" if item.doc else ""
        yield from _rows(item.items, depth + 1)


def _wire_type(item: Item) -> str:
    """The type as it is on the wire, with `compact` and `nullable` where they apply."""
    compact = item.compact and (item.array or item.type in ("string", "bytes", "records"))
    words = ["compact"] * compact + ["nullable"] * item.nullable + [item.kind]
    return " ".join(words)
