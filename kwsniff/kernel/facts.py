"""Rows that a body fills: facts, partitions, topics, brokers and resources."""

from __future__ import annotations

from typing import Any

from kwsniff.kernel.mode import inlined, int64, kernel, uintp
from kwsniff.kernel.numbers import NONE, int32
from kwsniff.kernel.pairs import add_name
from kwsniff.kernel.records import sum_up
from kwsniff.spec import instructions as i

# Constants of another module, as numbers that the compiler takes in.
_GROUP, _MEMBER, _TRANSACTIONAL = (i.REGISTER[role] for role in ("group", "member", "transactional_id"))
_SOFTWARE, _SOFTWARE_VERSION = i.REGISTER["software_name"], i.REGISTER["software_version"]
_MECHANISM, _PROTOCOL_TYPE = i.REGISTER["mechanism"], i.REGISTER["protocol_type"]
_COORDINATOR, _COORDINATOR_TYPE = i.REGISTER["coordinator_key"], i.REGISTER["coordinator_type"]
_GROUP_PROTOCOL, _REASON, _RACK = (i.REGISTER[role] for role in ("group_protocol", "reason", "rack"))
_THROTTLE, ACKS, _MAX_WAIT = (i.REGISTER[role] for role in ("throttle", "acks", "max_wait"))
_SESSION, _EPOCH = i.REGISTER["session_id"], i.REGISTER["session_epoch"]
_GENERATION, _VALIDATE_ONLY = i.REGISTER["generation"], i.REGISTER["validate_only"]


@kernel
def clear(t: Any, side: int) -> None:
    """Let row `side` of `facts` say nothing."""
    fact = t.facts[side]
    fact.clean = fact.code = fact.offset = fact.trailing = fact.flags = fact.columns = fact.errors = 0
    fact.group = fact.member = fact.transactional_id = fact.software_name = fact.software_version = -1
    fact.mechanism = fact.protocol_type = fact.coordinator_key = fact.group_protocol = fact.reason = -1
    fact.rack = -1
    fact.error = fact.throttle = fact.acks = fact.max_wait = fact.session_id = fact.session_epoch = NONE
    fact.coordinator_type = fact.generation = fact.validate_only = fact.token = fact.token_end = NONE
    fact.records = fact.record_bytes = NONE
    fact.name_first = fact.names = fact.row_first = fact.rows = fact.brokers = fact.resources = 0
    fact.damaged = fact.tail = 0


@inlined
def reaches_end(row: Any) -> bool:
    """Whether what a partition brought is one batch and the last that could be read: a request that waits for
    data is answered with the first that comes."""
    if row.records == NONE or row.base_offset == NONE or row.high_watermark == NONE or row.batches != 1:
        return False
    return row.base_offset + row.records >= row.high_watermark


@kernel
def fill_facts(r: Any, fact: Any) -> None:
    """Write what the fixed registers hold into a row of `facts`."""
    fact.group, fact.member, fact.transactional_id = r[_GROUP], r[_MEMBER], r[_TRANSACTIONAL]
    fact.software_name, fact.software_version = r[_SOFTWARE], r[_SOFTWARE_VERSION]
    fact.mechanism, fact.protocol_type = r[_MECHANISM], r[_PROTOCOL_TYPE]
    fact.coordinator_key, fact.coordinator_type = r[_COORDINATOR], r[_COORDINATOR_TYPE]
    fact.group_protocol, fact.reason, fact.rack = r[_GROUP_PROTOCOL], r[_REASON], r[_RACK]
    fact.throttle, fact.acks, fact.max_wait = r[_THROTTLE], r[ACKS], r[_MAX_WAIT]
    fact.session_id, fact.session_epoch = r[_SESSION], r[_EPOCH]
    fact.generation, fact.validate_only = r[_GENERATION], r[_VALIDATE_ONLY]
    fact.token, fact.token_end = r[i.TOKEN], r[i.TOKEN + 1]


@inlined
def fill_row(row: Any, r: Any, step: Any) -> None:
    """A row of a partition from its block of registers, without record data."""
    block = step.c
    row.name, row.uuid = r[step.a], r[step.b]
    row.partition, row.error = r[block + i.PARTITION_AT], r[block + i.ERROR_AT]
    row.base_offset, row.high_watermark = r[block + i.NUMBERS_AT], r[block + i.NUMBERS_AT + 1]
    row.log_start_offset = r[block + i.NUMBERS_AT + 2]
    row.last_stable_offset = r[block + i.NUMBERS_AT + 3]
    row.fetch_offset = r[block + i.NUMBERS_AT + 4]
    row.committed_offset = r[block + i.NUMBERS_AT + 5]
    row.leader_epoch = r[block + i.NUMBERS_AT + 6]
    row.records = row.bytes = NONE
    row.codecs = row.batches = row.mismatches = row.damage = row.taken = 0


@kernel
def fill_records(row: Any, data: Any, r: Any, step: Any, side: int, verify: bool) -> None:
    """Add to a row what its record data says."""
    start, stop = r[step.c + i.RECORDS_AT], r[step.c + i.RECORDS_AT + 1]
    base = sum_up(data, start, stop, side == 0, verify, row)
    # A producer's batches count from 0, not from an offset.
    if side == 1 and row.base_offset == NONE and stop > start:
        row.base_offset = base


@inlined
def total(first: int, second: int) -> int:
    """Two numbers together, NONE if one of them is not known."""
    return int64(NONE) if first == NONE or second == NONE else first + second


@inlined
def with_name(t: Any, names: int, name: int, uuid: int) -> int:
    """How many topics there are with this one; FULL if there is no room."""
    if names == 0 and len(t.names) > 0:
        topic = t.names[0]
        topic.name, topic.uuid = name, uuid
        return int64(1)
    return add_name(t, names, name, uuid)


@inlined
def fill_broker(broker: Any, r: Any, step: Any) -> None:
    broker.node, broker.host, broker.port = r[step.a], r[step.b], r[step.c]


@inlined
def fill_resource(resource: Any, r: Any, step: Any) -> None:
    resource.type, resource.name = r[step.a], r[step.b]
    resource.error, resource.detail = r[step.c], r[step.d]


@kernel
def bare_rows(t: Any, data: Any, pos: int, first: int, count: int, name: int, uuid: int) -> None:
    """Rows of the partitions whose numbers stand in a row."""
    for at in range(count):
        _bare_row(t.rows[uintp(first + at)], name, uuid, int32(data, pos + 4 * at))


@kernel
def _bare_row(row: Any, name: int, uuid: int, partition: int) -> None:
    """A row of a partition of which only the number is said."""
    row.name, row.uuid, row.partition = name, uuid, partition
    row.error = row.base_offset = row.records = row.bytes = row.high_watermark = NONE
    row.log_start_offset = row.last_stable_offset = row.fetch_offset = row.committed_offset = NONE
    row.leader_epoch = NONE
    row.codecs = row.batches = row.mismatches = row.damage = row.taken = 0
