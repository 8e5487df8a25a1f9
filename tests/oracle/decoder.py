"""Decoders of the `facts` projection: fields with roles, as `Facts`."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any

from kwsniff.spec import compile as product
from kwsniff.spec.codegen import MalformedError, tail, uuid_text
from kwsniff.spec.model import Layout
from tests.oracle.facts import Facts, PartitionFacts
from tests.oracle.source import FactsWriter

FactsDecoder = Callable[..., tuple[Facts, int]]


@lru_cache(maxsize=8192)
def topic_id(raw: bytes) -> str | None:
    """A uuid as text; the zero uuid stands for none (KIP-516)."""
    return uuid_text(raw) if raw.strip(b"\0") else None


def unique(names: list[str | None]) -> list[str | None]:
    """Each once, in order."""
    return list(dict.fromkeys(names))


def unique_pairs(names: list[str | None], ids: list[str | None]) -> tuple[list[str | None], list[str | None]]:
    """Each pair once, in order."""
    pairs = dict.fromkeys(zip(names, ids, strict=True))
    return [name for name, _ in pairs], [uuid for _, uuid in pairs]


def skip_long(buf: bytes, pos: int, first: int, end: int, width: int) -> int:
    """Position behind a compact string, bytes or array whose length takes several bytes."""
    length, pos = tail(buf, pos, first, end)
    return pos + (length - 1) * width if length else _null()


def skip_long_nullable(buf: bytes, pos: int, first: int, end: int, width: int) -> int:
    """As `skip_long`, where null is allowed."""
    length, pos = tail(buf, pos, first, end)
    return pos + (length - 1) * width if length else pos


def _null() -> int:
    raise MalformedError


NAMES: dict[str, Any] = {
    "Facts": Facts, "PartitionFacts": PartitionFacts, "new": tuple.__new__, "topic_id": topic_id,
    "skip_long": skip_long, "skip_long_nullable": skip_long_nullable,
    "unique": unique, "unique_pairs": unique_pairs,
}  # fmt: skip


def compile_facts(layout: Layout) -> FactsDecoder:
    """The decoder of one layout."""
    return product.compile_writer(FactsWriter(layout), "facts", NAMES)


@cache
def facts_decoder(api_key: int, version: int, direction: str) -> FactsDecoder:
    """As `kwsniff.spec.compile.decoder`, for the fields with roles. Raises DecodeError as that does."""
    return compile_facts(product.layout(api_key, version, direction))


def decoder(api_key: int, version: int, direction: str, projection: str) -> Callable[..., tuple[Any, int]]:
    """Of either projection, `full` or `facts`."""
    made = {"full": product.decoder, "facts": facts_decoder}[projection]
    return made(api_key, version, direction)
