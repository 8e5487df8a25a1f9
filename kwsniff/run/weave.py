"""Rows of a part as they are true, woven with those of joining it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from kwsniff.rows.arrays import filled_columns, record_batch
from kwsniff.rows.arrays import in_order as columns_in_order
from kwsniff.rows.events import CALL, EXCHANGE
from kwsniff.rows.schema import EVENTS
from kwsniff.run.part import Emitted

Ints = NDArray[np.int64]

OF_CALLS = pa.array([CALL, EXCHANGE], pa.string())
"""Kinds of rows that say what calls do."""


@dataclass(frozen=True, slots=True)
class Identity:
    """What a part could not know of a connection that began before it."""

    connection: str
    software_name: str | None
    software_version: str | None
    user: str | None
    rtt_us: float | None
    in_flight: tuple[Ints, Ints] | None = None
    """Of the requests that waited when it was known: which they are (see `asked`), and how many requests were
    in flight when they were sent."""
    more: int = 0
    """Requests that waited before the part and through it, of a quiet connection."""


@dataclass(slots=True)
class Joined:
    """What joining a part told."""

    rows: list[Emitted] = field(default_factory=list)
    """Rows that the part could not tell."""
    names: dict[int, Identity] = field(default_factory=dict)
    """By the part's number of the connection."""
    wrong: set[int] = field(default_factory=set)
    """Connections of the part whose rows are not to be believed."""
    again: int = 0
    """Pairs of endpoints decoded again."""


def settled(emitted: Emitted, joined: Joined) -> Emitted:
    """Rows of a part as they are true."""
    numbers, index = np.unique(emitted.numbers, return_inverse=True)
    known = [joined.names.get(number) for number in numbers.tolist()]
    wrong = np.isin(numbers, np.array(sorted(joined.wrong), np.int64)) & (numbers > 0)
    if any(known):
        emitted = replace(emitted, batch=_named(emitted.batch, known, index))
    return emitted.where(~wrong[index]) if wrong.any() else emitted


def asked(packets: Ints, correlation_ids: Ints) -> Ints:
    """Requests of a connection, each as a number."""
    return (packets << 32) + (correlation_ids & 0xFFFFFFFF)


def _flown(batch: pa.RecordBatch, known: list[Identity | None], index: Ints) -> pa.RecordBatch:
    """With the numbers of requests in flight as they are true."""
    place = batch.schema.get_field_index("in_flight")
    if place < 0 or not any(name.in_flight or name.more for name in known if name is not None):
        return batch
    kind = batch.schema.field(place)
    packets, ids, counts = (
        pc.fill_null(batch[name], -1).to_numpy(zero_copy_only=False).astype(np.int64)
        for name in ("request_packet", "correlation_id", "in_flight")
    )
    keys, made = asked(packets, ids), counts.copy()
    for number, name in enumerate(known):
        if name is None or not (name.in_flight or name.more):
            continue
        own = np.flatnonzero((index == number) & (counts >= 0))
        made[own] += name.more
        if name.in_flight is None:
            continue
        keys_of, counts_of = name.in_flight
        at = np.minimum(np.searchsorted(keys_of, keys[own]), len(keys_of) - 1)
        found = keys_of[at] == keys[own]
        made[own[found]] = counts_of[at[found]]
    return batch.set_column(place, kind, pa.array(made, pa.int64(), mask=counts < 0).cast(kind.type))


def _named(batch: pa.RecordBatch, known: list[Identity | None], index: Ints) -> pa.RecordBatch:
    place = pa.array(index)
    batch = _flown(batch, known, index)
    for name in ("connection", "software_name", "software_version", "user", "rtt_us"):
        at = batch.schema.get_field_index(name)
        if at < 0:  # not asked for
            continue
        kind = batch.schema.field(name)
        values = pa.array([getattr(each, name, None) for each in known], kind.type).take(place)
        if name == "connection":
            column = pc.coalesce(values, batch[name])
        else:
            own = batch[name], values
            # A part may have seen a handshake again, or less of what the client said of itself.
            first, second = own[::-1] if name in ("user", "rtt_us") else own
            column = pc.if_else(pc.is_in(batch["event"], OF_CALLS), pc.coalesce(first, second), batch[name])
        batch = batch.set_column(at, kind, column)
    return batch


def woven(rows: Iterable[Emitted], joined: Joined) -> Iterator[Emitted]:
    """The rows of a part and those of joining it, as one run has them. Takes the latter out of `joined`."""
    other, joined.rows = _Later(joined.rows), []
    for emitted in rows:
        own = settled(emitted, joined)
        before = other.until(int(own.keys[-1])) if len(own.keys) else None
        if before is not None:
            # What lies behind them stays as it is: moving rows costs as much as making them.
            touched, own = own.cut(int(np.searchsorted(own.keys, before.keys[-1], "right")))
            merged = in_order([touched, before])
            if merged is not None:
                yield merged
        if len(own.keys) or before is None:
            yield own
    rest = other.until(None)
    if rest is not None:
        yield rest


class _Later:
    """Rows of several parts in their order, made into one as far as they are wanted: so they are there twice
    only for a moment."""

    def __init__(self, parts: list[Emitted]) -> None:
        parts = [each for each in parts if len(each.keys)]
        self._parts: list[Emitted | None] = [*parts]
        self._starts = np.cumsum([0, *(len(each.keys) for each in parts)])
        keys, ranks, numbers = (
            np.concatenate([np.zeros(0, np.int64), *(getattr(each, name) for each in parts)])
            for name in ("keys", "ranks", "numbers")
        )
        self._places = np.lexsort((numbers, ranks, keys))
        self._keys = keys[self._places]
        last = np.zeros(len(parts), np.int64)
        np.maximum.at(last, self._whose(self._places), np.arange(len(keys)))
        self._last, self._at = last, 0

    def _whose(self, places: Ints) -> Ints:
        return np.searchsorted(self._starts, places, "right") - 1

    def until(self, key: int | None) -> Emitted | None:
        """The next ones, up to this key."""
        end = len(self._keys) if key is None else int(np.searchsorted(self._keys, key, "right"))
        if end <= self._at:
            return None
        places = self._places[self._at : end]
        whose = self._whose(places)
        used = np.unique(whose)
        parts = [part for each in used if (part := self._parts[each]) is not None]
        chosen = np.zeros(len(places), np.int64)
        first = 0
        for each, part in zip(used, parts, strict=True):
            own = whose == each
            chosen[own] = places[own] - self._starts[each] + first
            first += len(part.keys)
        self._at = end
        for each in np.flatnonzero(self._last < end):
            self._parts[each] = None
        return _picked(parts, chosen)


def in_order(parts: list[Emitted]) -> Emitted | None:
    """Rows of a part and of joining it, as one run has them."""
    parts = [each for each in parts if len(each.keys)]
    if len(parts) < 2:
        return parts[0] if parts else None
    keys, ranks, numbers = (
        np.concatenate([getattr(each, name) for each in parts]) for name in ("keys", "ranks", "numbers")
    )
    return _picked(parts, np.lexsort((numbers, ranks, keys)))


def _picked(parts: list[Emitted], places: Ints) -> Emitted:
    """The rows at these places of all parts one after the other."""
    keys, ranks, numbers = (
        np.concatenate([getattr(each, name) for each in parts])[places]
        for name in ("keys", "ranks", "numbers")
    )
    # Most columns of most rows are null, and moving those costs as much as others.
    columns = [(filled_columns(each.batch), len(each.batch)) for each in parts]
    batch = record_batch(columns_in_order(columns, places, EVENTS), len(places), EVENTS)
    return Emitted(batch, keys, ranks, numbers)
