"""Message definitions as a kafka-clients jar carries them: `common/message/*.json`, since Kafka 2.4.

They are JSON with comments behind `//`. A struct is defined where it is used, or among `commonStructs`.
"""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

FOLDER = "common/message/"
_KINDS = ("request", "response", "header", "data", "metadata", "coordinator-key", "coordinator-value")
_COMMENT = re.compile(r'("(?:\\.|[^"\\])*")|//[^\n]*')
_WORD = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_VARIABLE = ("string", "bytes", "records")


class DefinitionError(ValueError):
    """A jar without definitions, or with some that cannot be read."""


@dataclass(frozen=True)
class Shape:
    """One field at one version, as the definition says."""

    name: str
    type: str
    nullable: bool
    tag: int | None
    compact: bool
    fields: tuple[Shape, ...]


@dataclass(frozen=True)
class Definition:
    """One message of a release."""

    name: str
    """Without `Request` and `Response`."""
    direction: str
    """`request`, `response` or `data`."""
    api_key: int | None
    versions: range
    stable: range
    """`versions` without the last if the release calls it unstable."""
    listeners: tuple[str, ...]
    """Where a broker of the release serves a request."""
    _json: dict[str, Any]

    def flexible(self, version: int) -> bool:
        """Whether the version has compact lengths and tagged fields (KIP-482)."""
        return _covers(self._json.get("flexibleVersions", "none"), version)

    def fields(self, version: int) -> tuple[Shape, ...]:
        """The fields of one version, in the order of the definition."""
        structs = {struct["name"]: struct["fields"] for struct in self._json.get("commonStructs", [])}
        return tuple(_shapes(self._json["fields"], version, self.flexible(version), structs))


def read(jar: Path) -> list[Definition]:
    """All messages that a jar defines, but those whose versions are `none`: the release has them no more."""
    with zipfile.ZipFile(jar) as archive:
        paths = [name for name in archive.namelist() if name.startswith(FOLDER) and name.endswith(".json")]
        found = [_definition(parse(archive.read(path).decode()), path) for path in sorted(paths)]
    if not found:
        raise DefinitionError(f"{jar.name} has no message definitions; releases before 2.4 have none")
    stable = {each.api_key: each.stable for each in found if each.direction == "request"}
    return [_like_its_request(each, stable) for each in found if each.versions]


def _like_its_request(definition: Definition, stable: dict[int | None, range]) -> Definition:
    """Only a request says that its last version is unstable; the response is so as well."""
    if definition.direction != "response":
        return definition
    return replace(definition, stable=stable.get(definition.api_key, definition.stable))


def parse(text: str) -> dict[str, Any]:
    """One definition without its comments. As Kafka's own reader does, what follows it is left alone: the
    DescribeProducersRequest of 2.8 has a brace too many.
    """
    parsed: dict[str, Any]
    parsed, _end = json.JSONDecoder().raw_decode(_COMMENT.sub(lambda found: found[1] or "", text).lstrip())
    return parsed


def snake(name: str) -> str:
    """`ThrottleTimeMs` as the guides write it: `throttle_time_ms`."""
    return _WORD.sub("_", name).lower()


def _definition(parsed: dict[str, Any], path: str) -> Definition:
    kind = parsed["type"]
    if kind not in _KINDS:
        raise DefinitionError(f"{path}: unknown type of message {kind!r}")
    direction = kind if kind in ("request", "response") else "data"
    versions = _range(parsed["validVersions"])
    unstable = bool(parsed.get("latestVersionUnstable")) and bool(versions)
    return Definition(
        name=parsed["name"] if direction == "data" else parsed["name"].removesuffix(direction.title()),
        direction=direction,
        api_key=parsed.get("apiKey") if direction != "data" else None,
        versions=versions,
        stable=versions[:-1] if unstable else versions,
        listeners=tuple(parsed.get("listeners", ())),
        _json=parsed,
    )


def _range(text: str) -> range:
    if text == "none":
        return range(0)
    low, _, high = text.partition("-")
    return range(int(low), int(high or low) + 1)


def _covers(text: str, version: int) -> bool:
    if text == "none":
        return False
    low, _, high = text.rstrip("+").partition("-")
    return int(low) <= version and (text.endswith("+") or version <= int(high or low))


def _shapes(
    fields: list[dict[str, Any]], version: int, flexible: bool, structs: dict[str, Any]
) -> Iterator[Shape]:
    for field in fields:
        tags = field.get("taggedVersions", "none")
        if not _covers(field.get("versions", tags), version):
            continue
        array = field["type"].startswith("[]")
        element = field["type"].removeprefix("[]")
        inner = field.get("fields") or structs.get(element)
        yield Shape(
            name=snake(field["name"]),
            type=("[]" if array else "") + ("struct" if inner else element),
            nullable=_covers(field.get("nullableVersions", "none"), version),
            tag=int(field["tag"]) if _covers(tags, version) else None,
            compact=flexible and field.get("flexibleVersions") != "none" and (array or element in _VARIABLE),
            fields=tuple(_shapes(inner, version, flexible, structs)) if inner else (),
        )
