"""What the rows of each grouping are: which keys a batch of calls has, and which call belongs to which.

Texts come from the wire and may be long; keys longer than `MAX_TEXT` characters are cut, so two that begin
alike are one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kwsniff.count.topics import elements
from kwsniff.rows import lists

MAX_TEXT = 250
"""Characters; Kafka allows 249 in the name of a topic."""

Ints = npt.NDArray[np.int64]
Key = tuple[str | None, str]
"""A name, and what tells it from others of the same name: a client's address, a broker's port. Else empty."""


@dataclass(frozen=True, slots=True)
class Keyed:
    """Entries of a batch: one for each call, or for each topic of each call."""

    keys: list[Key]
    """Distinct, in no particular order."""
    codes: Ints
    """Which key each entry has, -1 for none."""
    calls: Ints
    """Row of the batch that each entry is about."""


def by_api(calls: pa.RecordBatch) -> Keyed:
    """APIs; one that is unknown goes by its number."""
    codes, rows = distinct([calls["api_key"]])
    names = _texts(calls["api"].take(pa.array(rows)))
    numbers = calls["api_key"].take(pa.array(rows)).to_pylist()
    keys = [
        (name if name is not None or number is None else f"API {number}", "")
        for name, number in zip(names, numbers, strict=True)
    ]
    return Keyed(*_without_doubles(keys, codes), _all(calls))


def by_client(calls: pa.RecordBatch) -> Keyed:
    """Clients, by client id and address."""
    codes, rows = distinct([calls["client_id"], calls["client_ip"]])
    names = _texts(calls["client_id"].take(pa.array(rows)))
    addresses = calls["client_ip"].take(pa.array(rows)).to_pylist()
    keys = [(name, address or "") for name, address in zip(names, addresses, strict=True)]
    return Keyed(*_without_doubles(keys, codes), _all(calls))


def by_broker(calls: pa.RecordBatch) -> Keyed:
    """Brokers, by address and port."""
    codes, rows = distinct([calls["broker_ip"], calls["broker_port"]])
    addresses = calls["broker_ip"].take(pa.array(rows)).to_pylist()
    ports = calls["broker_port"].take(pa.array(rows)).to_pylist()
    keys = [
        (address, "" if port is None else str(port)) for address, port in zip(addresses, ports, strict=True)
    ]
    return Keyed(keys, codes, _all(calls))


def by_group(calls: pa.RecordBatch) -> Keyed:
    """Consumer groups; of calls that name one."""
    mask: npt.NDArray[np.bool_] = calls["group_id"].is_valid().to_numpy(zero_copy_only=False)
    rows = np.flatnonzero(mask).astype(np.int64)
    named = calls["group_id"].take(pa.array(rows))
    codes, first = distinct([named])
    keys: list[Key] = [(name, "") for name in _texts(named.take(pa.array(first)))]
    return Keyed(*_without_doubles(keys, codes), rows)


def by_topic(calls: pa.RecordBatch, names: Mapping[str, str]) -> Keyed:
    """Topics: an entry for each that a call names. `names` gives those of uuids."""
    counts, given, ids = elements(calls["topics"], calls["topic_ids"])
    return _topics(lists.parents(counts), given, ids, names)


def by_partition(calls: pa.RecordBatch, names: Mapping[str, str]) -> Keyed:
    """Topics: an entry for each partition of data calls, in their order."""
    flat = calls["partitions"].flatten()
    rows = lists.parents(lists.lengths(calls["partitions"]))
    return _topics(rows, pc.struct_field(flat, "topic"), pc.struct_field(flat, "topic_id"), names)


def _topics(rows: Ints, given: pa.Array, ids: pa.Array, names: Mapping[str, str]) -> Keyed:
    """One key a topic, also where one message names it and another gives its uuid; -1 for neither."""
    codes, first = distinct([given, ids]) if given.null_count else distinct([given])
    uuids = ids.take(pa.array(first)).to_pylist()
    texts = _texts(given.take(pa.array(first)))
    keys: list[Key] = [
        (text if text is not None or uuid is None else names.get(uuid, uuid), "")
        for text, uuid in zip(texts, uuids, strict=True)
    ]
    keys, codes = _without_doubles(keys, codes)
    if (None, "") in keys:
        codes = np.where(codes == keys.index((None, "")), -1, codes)
    return Keyed(keys, codes, rows)


def first_topics(calls: pa.RecordBatch, names: Mapping[str, str]) -> tuple[pa.Array, Ints]:
    """The first topic that each call names, null if none, and how many it names."""
    counts, given, ids = elements(calls["topics"], calls["topic_ids"])
    first = pa.array(lists.starts(counts), mask=counts == 0)
    texts = zip(_texts(given.take(first)), ids.take(first).to_pylist(), strict=True)
    return pa.array(
        [names.get(uuid, uuid) if text is None else text for text, uuid in texts], pa.string()
    ), counts


BY: dict[str, Callable[[pa.RecordBatch], Keyed]] = {
    "api": by_api,
    "client": by_client,
    "broker": by_broker,
    "group": by_group,
}
"""All but topics, which take the names of uuids too."""

GROUPINGS = ("api", "client", "topic", "broker", "group")


def distinct(columns: Sequence[pa.Array]) -> tuple[Ints, Ints]:
    """Numbers the combinations of values in parallel columns, null being one: the number of each row's, and
    for each number a row that has it."""
    codes = np.zeros(len(columns[0]), np.int64)
    size = 1
    for column in columns:
        encoded = column.dictionary_encode(null_encoding="encode")
        size *= max(len(encoded.dictionary), 1)
        codes = codes * max(len(encoded.dictionary), 1) + encoded.indices.to_numpy(zero_copy_only=False)
        codes, size = _dense(codes, size)
    rows = np.zeros(size if len(codes) else 0, np.int64)
    rows[codes[::-1]] = np.arange(len(codes))[::-1]
    return codes, rows


def _dense(codes: Ints, size: int) -> tuple[Ints, int]:
    """The same codes without the numbers that don't occur."""
    if size > 8 * len(codes) + 1000:
        kinds, dense = np.unique(codes, return_inverse=True)
        return dense.astype(np.int64), len(kinds)
    present = np.bincount(codes, minlength=size) > 0
    numbers = np.cumsum(present) - 1
    return numbers[codes], int(present.sum())


def _without_doubles(keys: list[Key], codes: Ints) -> tuple[list[Key], Ints]:
    """`keys` once each (cutting or naming may have made some equal), with the codes that go with them."""
    places: dict[Key, int] = {}
    numbers = [places.setdefault(key, len(places)) for key in keys]
    if len(places) == len(keys):
        return keys, codes
    return list(places), np.array(numbers, np.int64)[codes]


def _texts(column: pa.Array) -> list[str | None]:
    texts: list[str | None] = pc.utf8_slice_codeunits(column, 0, MAX_TEXT).to_pylist()
    return texts


def _all(calls: pa.RecordBatch) -> Ints:
    return np.arange(calls.num_rows, dtype=np.int64)
