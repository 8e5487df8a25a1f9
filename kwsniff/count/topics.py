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
from typing import Any, NamedTuple
from uuid import UUID

import numpy as np
import pyarrow as pa

from kwsniff.count.codes import combined, distinct
from kwsniff.rows import lists
from kwsniff.rows.columns import Ints, integers
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
        names, which = named.texts(new)
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
    named = Named.of(Pairs.of(batch["topics"], batch["topic_ids"]))
    position = integers(positions)[named.row]
    names, name = named.texts(slice(None))
    order = np.argsort(position, kind="stable")
    firsts = order[combined([named.code[order], name[order]], [len(named.uuids), len(names)])[1]]
    found: dict[str, tuple[int, str]] = {}
    for at in firsts.tolist():
        uuid, first = named.uuids[named.code[at]], (int(position[at]), names[name[at]])
        if len(first[1]) <= MAX_TOPIC:
            found[uuid] = min(found.get(uuid, first), first)
    return {uuid: first for uuid, first in found.items() if first < known.get(uuid, (NEVER, ""))}


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

    row: Ints
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
        row = np.repeat(rows, size)
        return cls(row, names.values, names.places(rows, size), uuids.values, uuids.places(rows, size))


class Named(NamedTuple):
    """Topics of which both the name and the uuid are there."""

    row: Ints
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
        id_ = pairs.id[both]
        uuids, code = distinct(pairs.ids.take(pa.array(id_))) if len(id_) else ([], id_)
        return cls(pairs.row[both], pairs.names, pairs.name[both], uuids, code)

    def texts(self, some: Any) -> tuple[list[str], Ints]:
        """The distinct names of some of them, and which one each has."""
        return distinct(self.names.take(pa.array(self.name[some])))


class _Missing(NamedTuple):
    """Names that are null beside a uuid."""

    place: Ints
    """Where among the elements of the column."""
    uuids: list[str | None]
    code: Ints
    """Which of the uuids stands beside each."""

    @classmethod
    def of(cls, names: pa.Array, name: Ints, ids: pa.Array, id_: Ints) -> _Missing | None:
        """Those among the names in some places, beside the uuids in others; None if there can't be any."""
        if not names.null_count:
            return None
        missing = lists.is_null(names)[name]
        place, (uuids, code) = name[missing], distinct(ids.take(pa.array(id_[missing])))
        there = np.array([uuid is not None for uuid in uuids], np.bool_)[code]
        return cls(place[there], uuids, code[there])

    def put(self, values: pa.Array, names: Mapping[str, str]) -> pa.Array | None:
        """`values` with the names that are known; None if none is."""
        found = [names.get(uuid or "") for uuid in self.uuids]
        known = np.array([name is not None for name in found], np.bool_)[self.code]
        if not known.any():
            return None
        return lists.with_values(values, self.place[known], pa.array(found, pa.string()), self.code[known])


class Unnamed:
    """What a batch (EVENTS) names by uuid alone."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        ids = batch["topic_ids"]
        self._batch = lists.with_column(batch, "topics", _made_long(batch["topics"], ids))
        self.pairs = Pairs.of(self._batch["topics"], ids) if ids.null_count < len(ids) else None
        """Its names and uuids; None if it has no uuids."""
        self._topics = self.pairs and _Missing.of(*self.pairs[1:])
        structs = lists.spread(batch["partitions"]).values
        names, every = structs.field("topic"), np.arange(len(structs))
        self._partitions = _Missing.of(names, every, structs.field("topic_id"), every)

    def uuids(self) -> set[str]:
        """Those that stand somewhere without a name."""
        found = (each.uuids for each in (self._topics, self._partitions) if each)
        return {uuid for uuids in found for uuid in uuids if uuid is not None}

    def filled(self, names: Mapping[str, str]) -> pa.RecordBatch:
        """The batch with the names that are known."""
        batch = self._batch
        if self._topics:
            topics = batch["topics"]
            values = self._topics.put(lists.spread(topics).values, names)
            if values is not None:
                batch = lists.with_column(batch, "topics", lists.with_elements(topics, values))
        if self._partitions:
            partitions = batch["partitions"]
            structs = lists.spread(partitions).values
            values = self._partitions.put(structs.field("topic"), names)
            if values is not None:
                structs = lists.with_field(structs, "topic", values)
                batch = lists.with_column(batch, "partitions", lists.with_elements(partitions, structs))
        return batch


def _made_long(topics: pa.ListArray, ids: pa.ListArray) -> pa.ListArray | None:
    """Lists of names where null ones are as long as those of uuids; None if there are none of these."""
    bare = lists.is_null(topics) & ~lists.is_null(ids)
    if not bare.any():
        return None
    counts, names, _ = elements(topics, ids)
    return lists.rebuilt(names, counts, lists.is_null(topics) & ~bare)


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
