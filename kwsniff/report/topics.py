"""Names of topics that a message gives only by uuid (Fetch 13+, Produce 13+, KIP-516).

The name stands in other messages, maybe later and on another connection: Metadata, CreateTopics and
DescribeTopicPartitions responses. So names are learnt during the pass and filled in after it. A uuid is
never given to a second topic, hence the first name seen for it is kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from kwsniff.events import MAX_TOPIC
from kwsniff.report import lists

MAX_LEARNT = 100_000
"""Uuids whose names are kept; of those that come later only the uuid is shown."""


FIXED = {"00000000-0000-0000-0000-000000000001": "__cluster_metadata"}
"""Uuids that mean the same topic in every cluster: in text AAAAAAAAAAAAAAAAAAAAAQ (KIP-595, KIP-516)."""

NEVER = 1 << 63


class TopicNames:
    """Learns which uuid is which topic, from rows whose lists `topics` and `topic_ids` name both."""

    def __init__(self, known: Mapping[str, str] | None = None) -> None:
        self.names: dict[str, str] = FIXED | dict(known or {})

    def add(self, batch: pa.RecordBatch | pa.Table) -> None:
        """Learn from all rows of `batch`, which has at least the columns `topics` and `topic_ids`."""
        for topics, ids in zip(_chunks(batch["topics"]), _chunks(batch["topic_ids"]), strict=True):
            self._learn(topics, ids)

    def merge(self, other: TopicNames) -> None:
        """Learn what another one learnt."""
        for uuid, name in other.names.items():
            if len(self.names) >= MAX_LEARNT:
                return
            self.names.setdefault(uuid, name)

    def _learn(self, topics: pa.ListArray, ids: pa.ListArray) -> None:
        if ids.null_count == len(ids):
            return
        both = (lists.lengths(topics) > 0) & (lists.lengths(ids) > 0)
        if not both.any():
            return
        topics, ids = (column.filter(pa.array(both)) for column in (topics, ids))
        names = topics.flatten()
        if names.null_count == len(names):
            return
        pairs = pa.table({"id": lists.aligned(ids, lists.lengths(topics)), "name": names}).drop_null()
        for row in pairs.group_by(["id", "name"]).aggregate([]).to_pylist():
            if len(self.names) >= MAX_LEARNT:
                return
            if len(row["name"]) <= MAX_TOPIC:
                self.names.setdefault(row["id"], row["name"])


def first_named(
    batch: pa.RecordBatch, positions: pa.Array, known: Mapping[str, tuple[int, str]]
) -> dict[str, tuple[int, str]]:
    """For each uuid that `batch` (`topics`, `topic_ids`) names before it is known to be, or at all: the least
    of the `positions` (one a row) at which that is, and the name."""
    ids = batch["topic_ids"]
    if ids.null_count == len(ids):
        return {}
    counts = lists.lengths(batch["topics"])
    columns = {"id": lists.aligned(ids, counts), "name": batch["topics"].flatten()}
    pairs = pa.table({**columns, "position": positions.take(pa.array(lists.parents(counts)))}).drop_null()
    found: dict[str, tuple[int, str]] = {}
    for row in pairs.group_by(["id", "name"]).aggregate([("position", "min")]).to_pylist():
        first = row["position_min"], row["name"]
        if len(row["name"]) > MAX_TOPIC:
            continue
        if first < known.get(row["id"], found.get(row["id"], (NEVER, ""))):
            found[row["id"]] = first
    return found


def topic_names(batches: Iterable[pa.RecordBatch | pa.Table]) -> dict[str, str]:
    """Names by uuid, from all EVENTS rows that name a topic and give its uuid at the same list position."""
    learner = TopicNames()
    for batch in batches:
        learner.add(batch)
    return learner.names


def fill(batch: pa.RecordBatch, names: Mapping[str, str]) -> pa.RecordBatch:
    """`batch` (EVENTS) with null names in `topics` and `partitions[].topic` filled where `names` knows the
    uuid. The schema and everything else stay as they are."""
    if not names:
        return batch
    columns = {name: batch.column(name) for name in batch.schema.names}
    ids = columns["topic_ids"]
    if ids.null_count < len(ids):
        columns["topics"] = _filled_topics(columns["topics"], ids, names)
    if columns["partitions"].null_count < len(ids):
        columns["partitions"] = _filled_partitions(columns["partitions"], names)
    return pa.RecordBatch.from_arrays(list(columns.values()), schema=batch.schema)


def lookup(ids: pa.Array, names: Mapping[str, str]) -> pa.Array:
    """The name of each uuid, null where it is unknown."""
    known = pa.array(list(names), pa.string())
    values = pa.array(list(names.values()), pa.string())
    return values.take(pc.index_in(ids, value_set=known))


def elements(topics: pa.ListArray, ids: pa.ListArray) -> tuple[lists.Ints, pa.Array, pa.Array]:
    """How many topics each row names, and name and uuid of each, flattened. Where the list of names is null
    the list of uuids says how many there are."""
    counts = lists.lengths(topics)
    missing = lists.is_null(topics)
    if missing.any():
        counts[missing] = lists.lengths(ids)[missing]
    return counts, lists.aligned(topics, counts), lists.aligned(ids, counts)


def _filled_topics(topics: pa.ListArray, ids: pa.ListArray, names: Mapping[str, str]) -> pa.ListArray:
    counts, given, uuids = elements(topics, ids)
    if not given.null_count:
        return topics
    absent = lists.is_null(topics) & lists.is_null(ids)
    return lists.rebuilt(pc.coalesce(given, lookup(uuids, names)), counts, absent)


def _filled_partitions(partitions: pa.ListArray, names: Mapping[str, str]) -> pa.ListArray:
    flat = partitions.flatten()
    kind = flat.type
    fields = {kind.field(i).name: pc.struct_field(flat, [i]) for i in range(kind.num_fields)}
    if not fields["topic"].null_count:
        return partitions
    fields["topic"] = pc.coalesce(fields["topic"], lookup(fields["topic_id"], names))
    mask = flat.is_null() if flat.null_count else None
    structs = pa.StructArray.from_arrays(list(fields.values()), fields=list(kind), mask=mask)
    return lists.rebuilt(structs, lists.lengths(partitions), lists.is_null(partitions)).cast(partitions.type)


def _chunks(column: pa.Array | pa.ChunkedArray) -> list[pa.Array]:
    return list(column.chunks) if isinstance(column, pa.ChunkedArray) else [column]
