"""What request and response of one call say together.

Theory of operation. What the request said was kept until the response came (`packing`). `join` unpacks it
behind the response's lists, in `names` and `rows`, so that both lie in one table and can be found by one hash
table, and appends what the call says to `call_names` and `call_rows`.

Invariant: `join` sees that there is room for everything before it appends anything.
"""

from __future__ import annotations

from typing import Any

from kwsniff.engine.arena import lacks
from kwsniff.engine.facts import clear
from kwsniff.engine.packing import unpack
from kwsniff.engine.tables import SPEC_OF, WANTS
from kwsniff.engine.texts import name_place, open_places, row_place
from kwsniff.native.mode import inlined, int64, kernel, made, uintp
from kwsniff.native.rowcopies import NONE
from kwsniff.rows.schema import COLUMNS, OF_REQUEST, OF_RESPONSE, REQUEST_FIRST, RESPONSE_FIRST
from kwsniff.spec import instructions as i

_NAMES, _ROWS = WANTS.index("names"), WANTS.index("rows")
_CALL_NAMES, _CALL_ROWS = WANTS.index("call_names"), WANTS.index("call_rows")
_RESOURCES, _CALL_RESOURCES = WANTS.index("resources"), WANTS.index("call_resources")
_CALL_BROKERS = WANTS.index("call_brokers")
_FETCH_OFFSET = 1 << (i.NUMBERS_AT + i.ROW_NUMBERS.index("fetch_offset"))
_ANY_NUMBER = ((1 << len(i.ROW_NUMBERS)) - 1) << i.NUMBERS_AT


@kernel
def _either(t: Any, first: int, second: int) -> int:
    """A text, or if it is null or empty another."""
    return first if first >= 0 and t.texts[uintp(first)].size > 0 else second


@inlined
def _known(first: int, second: int) -> int:
    """A number, or if it is null another."""
    return first if first != NONE else second


_WHOSE = {
    OF_REQUEST: "query.{0}", OF_RESPONSE: "reply.{0}",
    REQUEST_FIRST: "{1}query.{0}, reply.{0})", RESPONSE_FIRST: "{1}reply.{0}, query.{0})",
}  # fmt: skip
_join_said = made(
    "join_said",
    "t, out, query, reply",
    [
        f"out.{column.role} = "
        + _WHOSE[column.whose].format(column.role, "either(t, " if column.role in i.TEXTS else "known(")
        for column in COLUMNS
        if column.role
    ],
    either=_either, known=_known,
)  # fmt: skip
"""Fills the fields of roles, from whom their columns say."""


@kernel
def join(t: Any, row: int, call: int) -> None:
    """Fill row `call` of `calls` with what a row of `requests` and the response in `facts[1]` say, which is
    not clean if there is none or it was not decoded."""
    query, reply = t.requests[row], t.facts[1]
    if not reply.clean:
        clear(t, 1)
    out = t.calls[call]
    out.names = out.uuids = out.rows = out.asked = out.resources = out.brokers = 0
    if t.limits[0].lists:
        room_for_lists(t, query, reply)
        if query.words >= 0:
            unpack(t, query, reply.names, reply.rows, reply.resources)
        _join_names(t, query, reply, out)
        _join_rows(t, query, reply, out)
        _join_resources(t, query, reply, out)
        _emit_brokers(t, reply, out)
    out.error, out.errors = reply.error, reply.errors if reply.error != NONE else NONE
    _join_said(t, out, query, reply)
    if query.coordinator_key >= 0:
        # Versions without the type ask for groups (KIP-98).
        if query.coordinator_type == 0 or query.coordinator_type == NONE:
            out.group = query.coordinator_key
        elif query.coordinator_type == 1:
            out.transactional_id = query.coordinator_key
    out.tail = reply.tail
    if query.record_bytes != NONE:
        out.records, out.record_bytes = query.records, query.record_bytes
    else:
        out.records, out.record_bytes = reply.records, reply.record_bytes


@kernel
def room_for_lists(t: Any, query: Any, reply: Any) -> None:
    """See that all tables have room for the lists of both."""
    store, names, rows = t.store[0], query.names + reply.names, query.rows + reply.rows
    if names > len(t.names):
        lacks(t, _NAMES, names)
    if rows > len(t.rows):
        lacks(t, _ROWS, rows)
    if store.call_names + names > len(t.call_names):
        lacks(t, _CALL_NAMES, names)
    if store.call_rows + rows > len(t.call_rows):
        lacks(t, _CALL_ROWS, rows)
    resources = query.resources + reply.resources
    if resources > len(t.resources):
        lacks(t, _RESOURCES, resources)
    if store.call_resources + resources > len(t.call_resources):
        lacks(t, _CALL_RESOURCES, resources)
    if store.call_brokers + reply.brokers > len(t.call_brokers):
        lacks(t, _CALL_BROKERS, reply.brokers)
    if query.names and reply.names:
        open_places(t, names)
    if query.rows > 1:
        open_places(t, query.rows)


@kernel
def _emit_name(t: Any, name: int, uuid: int) -> None:
    store = t.store[0]
    topic = t.call_names[uintp(store.call_names)]
    topic.name, topic.uuid = name, uuid
    store.call_names += 1


@kernel
def _join_names(t: Any, query: Any, reply: Any, out: Any) -> None:
    """The topics of the request and those that only the response names; a bare name only if it did not come
    with a uuid too."""
    first, before = reply.names, t.store[0].call_names
    uuids = False
    if query.names == 0 or reply.names == 0 or _same_names(t, query, reply):
        at = first if query.names else int64(0)
        for index in range(at, at + (query.names if query.names else reply.names)):
            topic = t.names[uintp(index)]
            _emit_name(t, topic.name, topic.uuid)
        flags = query.flags if query.names else reply.flags
        uuids = flags & i.HAS_TOPIC_ID != 0
    else:
        open_places(t, query.names + reply.names)
        stamp = t.store[0].stamp
        for index in range(first + query.names):
            topic = t.names[uintp(index)]
            if topic.name >= 0 and topic.uuid >= 0:
                t.texts[uintp(topic.name)].stamp = stamp
        for turn in range(query.names + reply.names):
            index = first + turn if turn < query.names else turn - query.names
            topic = t.names[uintp(index)]
            if name_place(t, topic.name, topic.uuid, index) != index:
                continue
            bare = topic.uuid < 0 and topic.name >= 0
            if bare and t.texts[uintp(topic.name)].stamp == stamp:
                continue
            _emit_name(t, topic.name, topic.uuid)
            uuids = uuids or topic.uuid >= 0
    out.names = t.store[0].call_names - before
    out.uuids = 1 if uuids and out.names else 0


@kernel
def _same_names(t: Any, query: Any, reply: Any) -> bool:
    """Whether both name the same topics in the same way."""
    if query.names != reply.names or (query.flags ^ reply.flags) & i.HAS_TOPIC_ID:
        return False
    for index in range(reply.names):
        given, asked = t.names[uintp(index)], t.names[uintp(reply.names + index)]
        if given.name != asked.name or given.uuid != asked.uuid:
            return False
    return True


@kernel
def _join_rows(t: Any, query: Any, reply: Any, out: Any) -> None:
    """The response's partitions, with the record data that the request carried for them."""
    first, before = reply.rows, t.store[0].call_rows
    more = query.flags & i.HAS_RECORDS or query.columns & _ANY_NUMBER
    if more and query.rows > 0 and reply.flags & i.HAS_PARTITION:
        _match_rows(t, query, reply)
    for index in range(reply.rows):
        _emit_row(t, t.rows[uintp(index)])
    # Without record data, what the response leaves out is not told.
    if not reply.flags & i.HAS_PARTITION or query.flags & i.HAS_RECORDS:
        for index in range(first, first + query.rows):
            if not t.rows[uintp(index)].taken:
                _emit_row(t, t.rows[uintp(index)])
    out.rows = t.store[0].call_rows - before
    # What a fetch session follows has to be known whether or not there is news of it (KIP-227).
    if reply.flags & i.HAS_PARTITION and query.columns & _FETCH_OFFSET:
        for index in range(first, first + query.rows):
            if not t.rows[uintp(index)].taken:
                _emit_row(t, t.rows[uintp(index)])
        out.asked = t.store[0].call_rows - before - out.rows


@kernel
def _match_rows(t: Any, query: Any, reply: Any) -> None:
    """Give the response's rows what the request's of the same partition have, and mark those."""
    first, data = reply.rows, query.flags & i.HAS_RECORDS != 0
    if query.rows > 1:
        open_places(t, query.rows)
        for index in range(first, first + query.rows):
            mine = t.rows[uintp(index)]
            at = row_place(t, mine.name, mine.uuid, mine.partition, index)
            if at != index:  # the later one of two counts, in the place of the first
                earlier = t.rows[uintp(at)]
                earlier.records, earlier.bytes, earlier.codecs = mine.records, mine.bytes, mine.codecs
                _fill_numbers(mine, earlier)
                mine.taken = 1
    for index in range(first):
        given = t.rows[uintp(index)]
        if query.rows > 1:
            at = row_place(t, given.name, given.uuid, given.partition, int64(-1))
        else:
            mine = t.rows[uintp(first)]
            same = mine.partition == given.partition and mine.name == given.name and mine.uuid == given.uuid
            at = first if same else int64(-1)
        if at < 0 or t.rows[uintp(at)].taken:
            continue
        mine = t.rows[uintp(at)]
        mine.taken = 1
        if data:
            given.records, given.bytes, given.codecs = mine.records, mine.bytes, mine.codecs
        _fill_numbers(mine, given)


_fill_numbers = made(
    "fill_numbers",
    "source, row",
    [f"row.{name} = known(row.{name}, source.{name})" for name in i.ROW_NUMBERS if name != "base_offset"],
    known=_known,
)
"""Gives a row the numbers that it lacks, but for the base offset."""
_copy_row = made("copy_row", "out, row", [f"out.{name} = row.{name}" for name in SPEC_OF["call_rows"].names])


@kernel
def _emit_row(t: Any, row: Any) -> None:
    store = t.store[0]
    _copy_row(t.call_rows[uintp(store.call_rows)], row)
    store.call_rows += 1


@kernel
def _join_resources(t: Any, query: Any, reply: Any, out: Any) -> None:
    """The resources of the response with what came of them, or those of the request if it names none; and of
    the request in any case what it says in detail."""
    first = reply.resources
    emitted = int64(0)
    for index in range(first + query.resources):
        resource = t.resources[uintp(index)]
        if index < first or first == 0 or resource.detail >= 0:
            row = t.call_resources[uintp(t.store[0].call_resources)]
            row.type, row.name = resource.type, resource.name
            row.error, row.detail = resource.error, resource.detail
            t.store[0].call_resources += 1
            emitted += 1
    out.resources = emitted


@kernel
def _emit_brokers(t: Any, reply: Any, out: Any) -> None:
    """The brokers that the response names: where clients will connect to."""
    store = t.store[0]
    for index in range(reply.brokers):
        broker, row = t.brokers[uintp(index)], t.call_brokers[uintp(store.call_brokers)]
        row.node, row.host, row.port = broker.node, broker.host, broker.port
        store.call_brokers += 1
    out.brokers = reply.brokers
