"""What the `facts` projection of a message keeps: the fields whose roles feed an event.

A decoder of that projection returns one `Facts`; record data is not copied but given as a span of the
buffer it was decoded from.
"""

from __future__ import annotations

from typing import NamedTuple


class PartitionFacts(NamedTuple):
    """One element of a message that names a partition (role `partition`)."""

    topic: str | None
    topic_id: str | None
    partition: int
    error_code: int | None
    base_offset: int | None
    records_start: int
    """First byte of the record data in the buffer; -1 if the field is null or the message has none."""
    records_end: int


class Facts(NamedTuple):
    """Everything an event takes from one body. None: the message has no such field, or it was null."""

    error_code: int | None
    """First non-zero error code, 0 if the message has error fields and all are zero."""
    error_count: int
    throttle_ms: int | None
    acks: int | None
    max_wait_ms: int | None
    min_bytes: int | None
    group_id: str | None
    member_id: str | None
    transactional_id: str | None
    topics: list[str | None] | None
    """Each topic once, in order; None inside where only its uuid is given."""
    topic_ids: list[str | None] | None
    """Parallel to `topics`; the whole list is None where the message gives no uuid."""
    partitions: list[PartitionFacts] | None
    extra: dict[str, object] | None
    """Rare roles by name: software_name, software_version, mechanism, auth_bytes, session_id, ..."""
