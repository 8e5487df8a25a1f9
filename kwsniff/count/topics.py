"""Names of topics that a message gives only by uuid (Fetch 13+, Produce 13+, KIP-516).

The name stands in other messages, maybe later and on another connection: Metadata, CreateTopics and
DescribeTopicPartitions responses. So names are learnt during the pass and filled in after it. A uuid is
never given to a second topic, hence the first name seen for it is kept.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kwsniff.count.codes import distinct
from kwsniff.rows import lists
from kwsniff.rows.columns import Ints
from kwsniff.rows.events import MAX_TOPIC

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
            if ids.null_count < len(ids):
                self.learn(Pairs.of(topics, ids))

    def merge(self, other: TopicNames) -> None:
        """Learn what another one learnt."""
        for uuid, name in other.names.items():
            if len(self.names) >= MAX_LEARNT:
                return
            self.names.setdefault(uuid, name)

    def learn(self, pairs: Pairs) -> None:
        """Learn from names and uuids that stand side by side."""
        self.know(Named.of(pairs))

    def know(self, named: Named) -> None:
        """Learn from topics of which both are there."""
        if not named.uuids:
            return
        new = np.array([uuid not in self.names for uuid in named.uuids])[named.code]
        if not new.any():
            return
        names, which = distinct(named.names.take(pa.array(named.name[new])))
        # In the order in which they come; a name that is too long is not one, and leaves room for another.
        for uuid, name in dict.fromkeys(zip(named.code[new].tolist(), which.tolist(), strict=True)):
            if len(self.names) >= MAX_LEARNT:
                return
            if len(names[name]) <= MAX_TOPIC:
                self.names.setdefault(named.uuids[uuid], names[name])


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
    return Unnamed(batch).filled(names) if names else batch


def lookup(ids: pa.Array, names: Mapping[str, str]) -> pa.Array:
    """The name of each uuid, null where it is unknown."""
    known = pa.array(list(names), pa.string())
    values = pa.array(list(names.values()), pa.string())
    return values.take(pc.index_in(ids, value_set=known))


def elements(topics: pa.ListArray, ids: pa.ListArray) -> tuple[Ints, pa.Array, pa.Array]:
    """How many topics each row names, and name and uuid of each, flattened. Where the list of names is null
    the list of uuids says how many there are."""
    counts = lists.lengths(topics)
    missing = lists.is_null(topics)
    if missing.any():
        counts[missing] = lists.lengths(ids)[missing]
    return counts, lists.aligned(topics, counts), lists.aligned(ids, counts)


class Pairs(NamedTuple):
    """Names and uuids that stand at the same position of the two lists of a row."""

    names: pa.Array
    """The elements of the lists of names."""
    name: Ints
    """Where among them that of each pair is."""
    ids: pa.Array
    id: Ints
    """The same of uuids."""

    @classmethod
    def of(cls, topics: pa.ListArray, ids: pa.ListArray) -> Pairs:
        # Most rows have no list of uuids: those that have one are few, and only they are looked at.
        rows = np.flatnonzero(~lists.is_null(ids))
        names, uuids = lists.spread(topics), lists.spread(ids)
        size = np.minimum(names.size[rows], uuids.size[rows])
        return cls(names.values, names.places(rows, size), uuids.values, uuids.places(rows, size))


class Named(NamedTuple):
    """Topics of which both the name and the uuid are there."""

    names: pa.Array
    """As in `Pairs`."""
    name: Ints
    uuids: list[str]
    code: Ints
    """Which of the uuids each has."""

    @classmethod
    def of(cls, pairs: Pairs) -> Named:
        """Those among pairs."""
        both = ~(lists.is_null(pairs.names)[pairs.name] | lists.is_null(pairs.ids)[pairs.id])
        if not both.any():
            return cls(pairs.names, pairs.name[both], [], pairs.id[both])
        uuids, code = distinct(pairs.ids.take(pa.array(pairs.id[both])))
        return cls(pairs.names, pairs.name[both], uuids, code)


class _Missing(NamedTuple):
    """Names that are null beside a uuid."""

    place: Ints
    """Where among the elements of the column."""
    uuids: list[str]
    code: Ints
    """Which of the uuids stands beside each."""

    @classmethod
    def of(cls, place: Ints, ids: pa.Array) -> _Missing:
        uuids, code = distinct(ids)
        if ids.null_count:
            there = code != uuids.index(None)
            place, code = place[there], code[there]
        return cls(place, uuids, code)

    def put(self, values: pa.Array, names: Mapping[str, str]) -> pa.Array | None:
        """`values` with the names that are known; None if none is."""
        found = [names.get(uuid) for uuid in self.uuids]
        known = np.array([name is not None for name in found], np.bool_)[self.code]
        if not known.any():
            return None
        return lists.with_values(values, self.place[known], pa.array(found, pa.string()), self.code[known])


class Unnamed:
    """What a batch (EVENTS) names by uuid alone."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        topics, ids = batch["topics"], batch["topic_ids"]
        self._batch = batch
        self.pairs = Pairs.of(topics, ids) if ids.null_count < len(ids) else None
        """Its names and uuids; None if it has no uuids."""
        self._bare = _has_bare(topics, ids)
        self._topics = _unnamed_topics(self.pairs) if self.pairs and not self._bare else None
        self._partitions = _unnamed_partitions(batch["partitions"])

    def uuids(self) -> set[str]:
        """Those that stand somewhere without a name."""
        found = {uuid for each in (self._topics, self._partitions) if each for uuid in each.uuids}
        if self._bare:
            _, names, ids = elements(self._batch["topics"], self._batch["topic_ids"])
            found |= set(pc.unique(ids.filter(names.is_null())).to_pylist())
        return found - {None}

    def filled(self, names: Mapping[str, str]) -> pa.RecordBatch:
        """The batch with the names that are known."""
        batch = self._batch
        topics = self._filled_topics(batch["topics"], batch["topic_ids"], names)
        return lists.with_column(
            lists.with_column(batch, "topics", topics), "partitions", self._filled_partitions(names)
        )

    def _filled_topics(
        self, topics: pa.ListArray, ids: pa.ListArray, names: Mapping[str, str]
    ) -> pa.ListArray | None:
        if self._bare:
            return _made_topics(topics, ids, names)
        if self._topics is None:
            return None
        values = self._topics.put(lists.spread(topics).values, names)
        return None if values is None else lists.with_elements(topics, values)

    def _filled_partitions(self, names: Mapping[str, str]) -> pa.ListArray | None:
        if self._partitions is None:
            return None
        partitions = self._batch["partitions"]
        structs = lists.spread(partitions).values
        values = self._partitions.put(structs.field("topic"), names)
        return (
            None
            if values is None
            else lists.with_elements(partitions, lists.with_field(structs, "topic", values))
        )


def _has_bare(topics: pa.ListArray, ids: pa.ListArray) -> bool:
    """Whether some row has a list of uuids and none of names."""
    if not topics.null_count or ids.null_count == len(ids):
        return False
    return bool((lists.is_null(topics) & ~lists.is_null(ids)).any())


def _unnamed_topics(pairs: Pairs) -> _Missing | None:
    if not pairs.names.null_count:
        return None
    missing = lists.is_null(pairs.names)[pairs.name]
    return _Missing.of(pairs.name[missing], pairs.ids.take(pa.array(pairs.id[missing])))


def _unnamed_partitions(partitions: pa.ListArray) -> _Missing | None:
    if partitions.null_count == len(partitions):
        return None
    structs = lists.spread(partitions).values
    names = structs.field("topic")
    if not names.null_count:
        return None
    place = np.flatnonzero(lists.is_null(names))
    return _Missing.of(place, structs.field("topic_id").take(pa.array(place)))


def _made_topics(topics: pa.ListArray, ids: pa.ListArray, names: Mapping[str, str]) -> pa.ListArray | None:
    """Where some lists of names are null and have to be made as long as those of uuids."""
    counts, given, uuids = elements(topics, ids)
    if not given.null_count:
        return None
    absent = lists.is_null(topics) & lists.is_null(ids)
    return lists.rebuilt(pc.coalesce(given, lookup(uuids, names)), counts, absent)


def _chunks(column: pa.Array | pa.ChunkedArray) -> list[pa.Array]:
    return list(column.chunks) if isinstance(column, pa.ChunkedArray) else [column]


# Names of topics by uuid that no packet tells: from a file of the user's, and from what earlier live
# sessions saw.
#
# A file has lines `uuid,name`, or is what `kafka-topics.sh --describe` prints (`Topic: orders  TopicId: …`).
# Uuids are as Kafka writes them, 22 letters of base64 (RFC 4648, 5), or hexadecimal, with hyphens or without.

MAX_BYTES = 64 << 20
MAX_NAMES = 100_000
DESCRIBED = re.compile(r"\bTopic:\s*(\S+)\s+TopicId:\s*(\S+)")
HEXADECIMAL = re.compile(r"[0-9a-fA-F]{32}")
HEADING = ("uuid", "topic_id", "id", "topicid")


class TopicFileError(ValueError):
    """A file that gives no names; the text is one line."""


def read_names(path: str) -> dict[str, str]:
    """Names by uuid (hyphenated hexadecimal).

    Raises:
        TopicFileError: it cannot be read, or a line of it is neither.
    """
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_BYTES + 1)
        text = data.decode("utf-8-sig")
    except OSError as error:
        raise TopicFileError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise TopicFileError(f"{path}: no text in UTF-8") from None
    if len(data) > MAX_BYTES:
        raise TopicFileError(f"{path}: larger than {MAX_BYTES >> 20} MiB")
    names: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        pair = _pair(line.strip())
        if pair is None and not _is_no_entry(line, bool(names)):
            raise TopicFileError(f"{path}, line {number}: neither uuid,name nor a line of kafka-topics.sh")
        if pair is not None and len(names) < MAX_NAMES:
            names.setdefault(*pair)
    if not names:
        raise TopicFileError(f"{path}: names no topic")
    return names


def _pair(line: str) -> tuple[str, str] | None:
    """Uuid and name that a line gives."""
    found = DESCRIBED.search(line)
    name, said = (found[1], found[2]) if found else (line.partition(",")[2], line.partition(",")[0])
    name = name.strip().strip('"')
    said = said.strip().strip('"')
    known = _uuid(said)
    return (known, name) if known and 0 < len(name) <= MAX_TOPIC else None


def _is_no_entry(line: str, begun: bool) -> bool:
    """Whether a line may stand there without naming a topic: empty, a comment, a heading, or a partition in
    the output of kafka-topics.sh."""
    text = line.strip()
    heading = not begun and text.partition(",")[0].strip().lower() in HEADING
    return not text or text.startswith("#") or heading or "Partition:" in text


def _uuid(text: str) -> str | None:
    plain = text.replace("-", "") if len(text) == 36 else text
    if HEXADECIMAL.fullmatch(plain):
        return str(UUID(plain))
    if len(text) != 22:
        return None
    try:
        return str(UUID(bytes=base64.b64decode(text + "==", altchars=b"-_", validate=True)))
    except (binascii.Error, ValueError):
        return None


def cache_place() -> Path:
    """Where live sessions keep the names they saw (XDG Base Directory)."""
    root = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(root) / "kwsniff" / "topic-ids.csv"


def cached_names() -> dict[str, str]:
    """What earlier sessions saw; nothing if that cannot be read."""
    try:
        return read_names(str(cache_place()))
    except TopicFileError:
        return {}


def keep_names(names: Mapping[str, str]) -> None:
    """Add names to those of earlier sessions, the newest first if there are too many. A session that may not
    write goes without."""
    place = cache_place()
    every = dict(names) | {key: name for key, name in cached_names().items() if key not in names}
    lines = [f"{key},{name}\n" for key, name in list(every.items())[:MAX_NAMES] if name.isprintable()]
    part = place.with_name(f"{place.name}.{os.getpid()}")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        part.write_text("".join(lines), encoding="utf-8")
        part.replace(place)
    except OSError:
        with suppress(OSError):  # not even that, for whoever gave up the rights to the place
            part.unlink(missing_ok=True)
