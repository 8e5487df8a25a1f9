"""Against an independent implementation of the protocol, the `kio` package, at every version it knows.

Random kio entities are written by kio and decoded here; what was decoded is encoded by the tests' own
encoder and read by kio again. Fields are matched by their order and tags, not by their names.
"""

from __future__ import annotations

import dataclasses
import datetime
import enum
import io
import os
import random
import types
import typing
import uuid
from typing import Any

import pytest
from spec_encoder import Encoder, present
from spec_tables import RENAMED, messages, versions_of

from kwsniff.spec.compile import decode_body, decode_data
from tests.strength import ALL

kio_index = pytest.importorskip("kio.index", reason="the kio package is not installed")
from kio.schema.errors import ErrorCode  # noqa: E402
from kio.serial import entity_reader, entity_writer  # noqa: E402
from kio.static.constants import EntityType  # noqa: E402

EXAMPLES = int(os.environ.get("KWSNIFF_EXAMPLES", "8" if ALL else "3"))
DIRECTIONS = {
    EntityType.request: "request",
    EntityType.response: "response",
    EntityType.data: "data",
    EntityType.header: "data",
}
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
INTEGERS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}


def squeezed(name: str) -> str:
    return name.replace("_", "").lower()


def kio_names() -> dict[tuple[str, str, int], tuple[str, Any]]:
    """(message name squeezed, direction, version) to what kio calls it."""
    found = {}
    for name, by_version in kio_index.schema_name_map.items():
        for version, by_type in by_version.items():
            for kind in by_type:
                found[squeezed(name), DIRECTIONS[kind], version] = (name, kind)
    return found


KIO = kio_names()
PAIRS = [
    (message, version, *KIO[squeezed(message["name"]), message["dir"], version])
    for message in messages()
    for version in versions_of(message)
    if message["name"] not in RENAMED and (squeezed(message["name"]), message["dir"], version) in KIO
]


class Entities:
    """Random instances of kio's dataclasses."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    def entity(self, cls: type) -> Any:
        hints = typing.get_type_hints(cls)
        made = {}
        for field in dataclasses.fields(cls):
            optional = "tag" in field.metadata and field.default is not dataclasses.MISSING
            if optional and self.rng.random() < 0.4:
                continue
            made[field.name] = self.value(hints[field.name], field.metadata.get("kafka_type"))
        return cls(**made)

    def value(self, hint: Any, kind: str | None) -> Any:
        if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
            if self.rng.random() < 0.25:
                return None
            hint = next(one for one in typing.get_args(hint) if one is not type(None))
        if typing.get_origin(hint) is tuple:
            inner = typing.get_args(hint)[0]
            return tuple(self.value(inner, kind) for _ in range(self.rng.choice((0, 1, 1, 2))))
        if dataclasses.is_dataclass(hint):
            return self.entity(typing.cast(type, hint))
        return self.leaf(hint, kind or "")

    def leaf(self, hint: Any, kind: str) -> Any:
        rng = self.rng
        if kind in INTEGERS:
            bits = rng.choice((4, INTEGERS[kind]))
            return hint(rng.getrandbits(bits) - (1 << bits - 1))
        simple: dict[str, Any] = {
            "uint16": lambda: hint(rng.getrandbits(16)),
            "bool": lambda: rng.random() < 0.5,
            "float64": lambda: hint(rng.uniform(-1e9, 1e9)),
            "uuid": lambda: uuid.UUID(int=rng.getrandbits(128)),
            "string": lambda: hint("".join(rng.choice("abcxyzäß-._") for _ in range(rng.choice((0, 3, 90))))),
            "bytes": lambda: rng.randbytes(rng.choice((0, 5, 200))),
            "records": lambda: hint(rng.randbytes(rng.choice((0, 5, 200)))),
            "error_code": lambda: rng.choice(list(ErrorCode)),
            "timedelta_i32": lambda: datetime.timedelta(milliseconds=rng.randrange(1 << 31)),
            "timedelta_i64": lambda: datetime.timedelta(milliseconds=rng.randrange(1 << 40)),
            "datetime_i64": lambda: EPOCH + datetime.timedelta(milliseconds=rng.randrange(1 << 42)),
        }
        return simple[kind]()


def plain(value: Any) -> Any:
    """A kio value as the wire has it."""
    if isinstance(value, datetime.datetime):
        return (value - EPOCH) // datetime.timedelta(milliseconds=1)
    if isinstance(value, datetime.timedelta):
        return value // datetime.timedelta(milliseconds=1)
    if isinstance(value, enum.Enum):
        return value.value
    return str(value) if isinstance(value, uuid.UUID) else value


def compare(fields: list[dict[str, Any]], version: int, entity: Any, body: dict[str, Any]) -> None:
    """Field by field: those without tag in order, the others by tag. kio leaves out tagged defaults."""
    theirs = dataclasses.fields(entity)
    ours = present(fields, version)
    ordered = [field for field in theirs if "tag" not in field.metadata]
    untagged = [field for field in ours if "tag" not in field]
    pairs = list(zip(ordered, untagged, strict=True))
    by_tag = {field.metadata["tag"]: field for field in theirs if "tag" in field.metadata}
    assert set(by_tag) == {field["tag"] for field in ours if "tag" in field}
    pairs += [(by_tag[field["tag"]], field) for field in ours if "tag" in field]
    for their, our in pairs:
        value = getattr(entity, their.name)
        if our["n"] not in body:
            assert value == their.default, f"{our['n']} was lost"
        else:
            compare_value(our, version, value, body[our["n"]])


def compare_value(field: dict[str, Any], version: int, theirs: Any, ours: Any) -> None:
    if isinstance(theirs, tuple):
        assert len(theirs) == len(ours)
        for one, other in zip(theirs, ours, strict=True):
            compare_value(field, version, one, other)
    elif dataclasses.is_dataclass(theirs):
        compare(field["f"], version, theirs, ours)
    elif theirs is None and field["t"].endswith("uuid"):
        assert ours == str(uuid.UUID(int=0)), "kio writes None as the zero uuid"
    elif theirs is None and field["t"] == "int64" and ours == -1:
        pass  # kio's way to say that there is no time
    else:
        assert plain(theirs) == ours


def written(entity: Any) -> bytes:
    buffer = io.BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return buffer.getvalue()


def check(message: dict[str, Any], version: int, name: str, kind: Any, count: int) -> None:
    cls = kio_index.load_entity_schema(name, version, kind)
    rng = random.Random(f"{name} {version} {kind}")
    for _ in range(count):
        entity = Entities(rng).entity(cls)
        data = written(entity)
        if message["dir"] == "data":
            body = decode_data(message["name"], version, data)
        else:
            body = decode_body(message["key"], version, message["dir"], data)
        compare(message["fields"], version, entity, body)
        back, read = entity_reader(cls)(Encoder(message, version).encode(body), 0)
        assert back == entity
        assert read == len(data)


def test_kio_knows_most_of_4x():
    assert len(PAIRS) >= 553


@pytest.mark.parametrize(
    ("message", "version", "name", "kind"), PAIRS, ids=[f"{n}-{k.name}-{v}" for _, v, n, k in PAIRS]
)
def test_what_kio_writes_is_read_here_and_the_other_way_round(message, version, name, kind):
    check(message, version, name, kind, EXAMPLES)
