"""Finds what the dissectors lack or say otherwise than the definitions of a release, and why they stay so."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import NamedTuple

from kwsniff.spec.load import Api, Catalog
from kwsniff.spec.model import Field, Message, Versions
from tests.conformance.definitions import Definition, Shape

ANY_VERSION = -1


class Finding(NamedTuple):
    """What a release says and the dissectors don't, or say otherwise."""

    where: str
    """Message with its direction, such as `Fetch request`, or `error 51`."""
    what: str
    """Path of the field, or the property of the message that differs."""
    release_says: str
    kwsniff_says: str
    version: int = ANY_VERSION
    """Version of the message, if the difference is one of a version."""


UNSTABLE = "the release calls this version unstable"

KNOWN = {
    ("ApiVersions response", "zk_migration_ready"): "3.4 added it, tagged: no new version",
    ("UpdateMetadata request", "type"): "3.5 added it, tagged: no new version",
    ("LeaderChangeMessage data", "version"): "2.8, where KRaft was a preview, wrote the record without it",
    ("ReadShareGroupStateSummary response", "results.partitions.leader_epoch"): "4.1 added it",
    ("error 51", "retriable"): "it is since 3.3",
}
"""By message or error, and field or property."""


def reason(finding: Finding) -> str | None:
    """Why a difference is none to mend, or None."""
    return KNOWN.get((finding.where, finding.what))


_VARIABLE = ("string", "bytes", "records")
NOTHING = "nothing"


@dataclass
class Comparison:
    """What came of it: findings, and how many message versions were looked at."""

    findings: list[Finding] = field(default_factory=list)
    unstable: list[Finding] = field(default_factory=list)
    """Of versions that the release itself calls unstable, and may have changed until they were not."""
    compared: int = 0


def compare(definitions: list[Definition], catalog: Catalog) -> Comparison:
    """Every version of every message that a release defines, field by field."""
    result = Comparison()
    data = {message.name: message for message in catalog.data_messages()}
    for definition in definitions:
        where = f"{definition.name} {definition.direction}"
        message = _message(definition, catalog, data)
        if message is None:
            versions = _span(definition.versions)
            result.findings.append(Finding(where, "message", f"versions {versions}", NOTHING))
            continue
        result.findings += _heads(definition, message, catalog.apis.get(_key(definition)), where)
        for version in definition.versions:
            result.compared += 1
            into = result.findings if version in definition.stable else result.unstable
            into += _version(definition, message, version, where)
    return result


def _key(definition: Definition) -> int:
    return -1 if definition.api_key is None else definition.api_key


def _message(definition: Definition, catalog: Catalog, data: dict[str, Message]) -> Message | None:
    if definition.direction == "data":
        return data.get(definition.name)
    api = catalog.apis.get(_key(definition))
    return api and api.message(definition.direction)


def _heads(definition: Definition, message: Message, api: Api | None, where: str) -> Iterator[Finding]:
    names = (message.name, *(api.head.aliases if api else ()))
    if definition.name not in names:
        yield Finding(where, "name", definition.name, message.name)


def _version(definition: Definition, message: Message, version: int, where: str) -> Iterator[Finding]:
    if version not in message.versions:
        yield Finding(where, "version", "there", f"versions {message.versions}", version)
        return
    flexible = definition.flexible(version)
    if flexible != (version in message.flexible):
        yield Finding(where, "flexible", str(flexible), str(not flexible), version)
    for path, theirs, ours in _fields(definition.fields(version), message.fields, version, flexible, ""):
        yield Finding(where, path, theirs, ours, version)


def _fields(
    shapes: tuple[Shape, ...], fields: tuple[Field, ...], version: int, flexible: bool, path: str
) -> Iterator[tuple[str, str, str]]:
    """Path, what the release says, what the dissector says. Fields are matched by their place on the wire,
    tagged ones by their tag."""
    own = [each for each in fields if version in each.versions]
    theirs = [shape for shape in shapes if shape.tag is None]
    ours = [each for each in own if not _tagged(each, flexible)]
    by_tag = {each.tag: each for each in own if _tagged(each, flexible)}
    pairs: list[tuple[Shape | None, Field | None]] = list(zip_longest(theirs, ours))
    if len(theirs) != len(ours):
        pairs = _by_name(theirs, ours)
    pairs += [(shape, by_tag.pop(shape.tag, None)) for shape in shapes if shape.tag is not None]
    pairs += [(None, each) for each in by_tag.values()]
    for shape, each in pairs:
        yield from _pair(shape, each, version, flexible, path)


def _by_name(theirs: list[Shape], ours: list[Field]) -> list[tuple[Shape | None, Field | None]]:
    """Where there is one more or less, places say nothing: which it is, names do."""
    named = {name: each for each in ours for name in (*each.aliases, each.name)}
    pairs: list[tuple[Shape | None, Field | None]] = [(shape, named.get(shape.name)) for shape in theirs]
    matched = {id(each) for _, each in pairs}
    return [*pairs, *((None, each) for each in ours if id(each) not in matched)]


def _pair(
    shape: Shape | None, each: Field | None, version: int, flexible: bool, path: str
) -> Iterator[tuple[str, str, str]]:
    if shape is None:
        assert each is not None
        yield path + each.name, NOTHING, _spelled(_shape(each, version, flexible))
        return
    if each is None:
        yield path + shape.name, _spelled(shape), NOTHING
        return
    own = _shape(each, version, flexible)
    if shape.name not in (each.name, *each.aliases):
        yield path + each.name, f"name {shape.name}", f"name {each.name}"
    if _spelled(shape) != _spelled(own):
        yield path + each.name, _spelled(shape), _spelled(own)
    yield from _fields(shape.fields, each.fields, version, flexible, f"{path}{each.name}.")


def _tagged(each: Field, flexible: bool) -> bool:
    return flexible and each.tag is not None


def _shape(each: Field, version: int, flexible: bool) -> Shape:
    return Shape(
        name=each.name,
        type=("[]" if each.array else "") + each.type,
        nullable=version in each.nullable,
        tag=each.tag if flexible else None,
        compact=flexible and each.compact and (each.array or each.type in _VARIABLE),
        fields=(),
    )


def _spelled(shape: Shape) -> str:
    """Type, nullability, length and tag in words."""
    words = ["compact"] * shape.compact + ["nullable"] * shape.nullable + [shape.type]
    return " ".join(words + ([] if shape.tag is None else [f"tag {shape.tag}"]))


def _span(versions: range) -> str:
    return str(Versions(((versions[0], versions[-1]),)))
