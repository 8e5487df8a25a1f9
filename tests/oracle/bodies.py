"""From the bytes of a message to what an event says of it, for every API and version, with the load."""

from __future__ import annotations

from typing import NamedTuple

from kwsniff.config import Config
from kwsniff.spec import load
from kwsniff.spec.binary import DecodeError
from kwsniff.spec.compile import layout
from kwsniff.spec.model import Item
from tests.oracle.facts import NO_FACTS, Facts, read_facts
from tests.oracle.records import summarize

PartitionRow = tuple[str | None, str | None, int, int | None, int | None, int | None, int | None, str | None]
"""topic, topic_id, partition, error_code, base_offset, records, bytes, codec."""
NO_RECORDS = (None, None, None)


class Body(NamedTuple):
    """What one body says."""

    facts: Facts
    partitions: list[PartitionRow] | None
    record_count: int | None
    record_bytes: int | None
    trailing: int = 0
    """Bytes behind the body."""


def _has_records(items: tuple[Item, ...]) -> bool:
    return any("records" in item.roles or _has_records(item.items) for item in items)


def read(api_key: int, version: int, direction: str, data: bytes, pos: int, end: int, config: Config) -> Body:
    """Decode the body of a request or response that lies in `data` from `pos` to `end`.

    Raises:
        DecodeError: with path and offset, if the bytes are not what the layout says.
    """
    may_downgrade = direction == "response" and version > 0 and api_key == load.API_VERSIONS
    if may_downgrade and load.is_downgraded(data, pos, end):
        return _read_downgraded(data, pos, end, config)
    found = layout(api_key, version, direction)
    facts, after = read_facts(found, data, pos, end, config.max_elements)
    partitions, count, size = None, None, None
    if _has_records(found.items):
        partitions, count, size = _record_rows(facts, data, direction == "request", config)
    return Body(facts, partitions, count, size, end - after)


def _read_downgraded(data: bytes, pos: int, end: int, config: Config) -> Body:
    """An ApiVersions response that says the version is not supported; its error code is all that counts."""
    try:
        return read(load.API_VERSIONS, 0, "response", data, pos, end, config)
    except DecodeError:
        # librdkafka's mock cluster writes a short array here.
        facts = NO_FACTS._replace(error_code=load.UNSUPPORTED_VERSION, error_count=1)
        return Body(facts, None, None, None)


def rows(body: Body | None) -> list[PartitionRow] | None:
    """The partitions of a body; None if its message has none."""
    if body is None or body.partitions is not None or body.facts.partitions is None:
        return None if body is None else body.partitions
    return [each[:5] + NO_RECORDS for each in body.facts.partitions]


def _record_rows(
    facts: Facts, data: bytes, is_request: bool, config: Config
) -> tuple[list[PartitionRow], int | None, int]:
    """Rows of the partitions of a body with record data, and the sums of records (None if a compressed
    wrapper hides their number) and of record bytes."""
    rows: list[PartitionRow] = []
    count: int | None = 0
    size = 0
    for topic, topic_id, partition, error_code, base_offset, start, end in facts.partitions or ():
        head = (topic, topic_id, partition, error_code)
        if start == end or start < 0:
            rows.append((*head, base_offset, *((0, 0, None) if start >= 0 else NO_RECORDS)))
            continue
        summary = summarize(data, start, end, verify_crc=config.verify_crc)
        if not is_request and base_offset is None:  # a producer's batches count from 0, not from an offset
            base_offset = summary.base_offset
        rows.append((*head, base_offset, summary.records, summary.bytes, summary.codec))
        size += summary.bytes
        count = None if count is None or summary.records is None else count + summary.records
    return rows, count, size
