"""What request and response of one call say together, and what a request keeps until then.

Theory of operation. `keep` puts what a body says into the request's row, and its lists, packed, into a block
of the heap. `join` unpacks them behind the response's lists, in `names` and `rows`, so that both lie in one
table and can be found by one hash table, and appends what the call says to `call_names` and `call_rows`.

A packed list: a word for each topic, name + 1 above uuid + 1; then for each partition such a word, one
with the partition and above it the codecs, and one for each column that the layout's rows can have; then for
each resource name + 1 above detail + 1, type and error code.

Invariant: `join` sees that there is room for everything before it appends anything.
"""

from __future__ import annotations

from typing import Any

from kwsniff.kernel.bodies import clear
from kwsniff.kernel.heap import give, take
from kwsniff.kernel.mode import inlined, int64, kernel, uintp
from kwsniff.kernel.numbers import FULL, NONE, OK
from kwsniff.kernel.pairs import name_place, open_places, row_place
from kwsniff.kernel.room import want
from kwsniff.kernel.tables import WANTS
from kwsniff.kernel.texts import mark, moved
from kwsniff.spec import instructions as i

_NAMES, _ROWS = WANTS.index("names"), WANTS.index("rows")
_CALL_NAMES, _CALL_ROWS = WANTS.index("call_names"), WANTS.index("call_rows")
_RESOURCES, _CALL_RESOURCES = WANTS.index("resources"), WANTS.index("call_resources")
_CALL_BROKERS = WANTS.index("call_brokers")
_FETCH_OFFSET = 1 << (i.NUMBERS_AT + i.ROW_NUMBERS.index("fetch_offset"))
_WORD = 0xFFFFFFFF
_HAS_ERROR, _HAS_RECORDS = 1 << i.ERROR_AT, 1 << i.RECORDS_AT
_NUMBERS = i.NUMBERS_AT
_OF_RESOURCE = 3
"""Words of a packed resource."""
_ANY_NUMBER = ((1 << len(i.ROW_NUMBERS)) - 1) << i.NUMBERS_AT

# What a request keeps


@inlined
def _packed(name: int, uuid: int) -> int:
    return (name + 1) << 32 | (uuid + 1)


@kernel
def _width(columns: int) -> int:
    """Words of a packed partition."""
    width = int64(2)
    if columns & _HAS_ERROR:
        width += 1
    if columns & _HAS_RECORDS:
        width += 2
    rest = columns >> _NUMBERS
    while rest:
        width += rest & 1
        rest >>= 1
    return width


@kernel
def keep(t: Any, row: int) -> int:
    """Keep what `facts[0]` and its lists say with a row of `requests`; OK or FULL."""
    fact, request = t.facts[0], t.requests[row]
    if not fact.clean:
        acks = fact.acks
        code, offset = fact.code, fact.offset
        clear(t, 0)
        fact.acks, fact.code, fact.offset = acks, code, offset
    lists = fact.clean != 0 and t.limits[0].lists != 0
    names = fact.names if lists else int64(0)
    rows = fact.rows if lists else int64(0)
    resources = fact.resources if lists else int64(0)
    request.words = -1
    if names + rows + resources > 0:
        at = take(t, names + rows * _width(fact.columns) + _OF_RESOURCE * resources)
        if at == FULL:
            return FULL
        request.words = at
        _pack(t, at, names, rows, resources, fact.columns)
    request.names, request.rows, request.resources = names, rows, resources
    request.flags, request.columns = fact.flags, fact.columns
    request.acks = fact.acks if fact.clean else NONE
    request.max_wait, request.group, request.member = fact.max_wait, fact.group, fact.member
    request.transactional_id, request.coordinator_key = fact.transactional_id, fact.coordinator_key
    request.coordinator_type = fact.coordinator_type
    request.session_id, request.session_epoch = fact.session_id, fact.session_epoch
    request.generation, request.group_protocol = fact.generation, fact.group_protocol
    request.protocol_type, request.reason, request.rack = fact.protocol_type, fact.reason, fact.rack
    request.validate_only = fact.validate_only
    request.records, request.record_bytes = fact.records, fact.record_bytes
    request.named = _named(t, request, names, resources)
    t.store[0].named += request.named
    return OK


@kernel
def _named(t: Any, request: Any, names: int, resources: int) -> int:
    """Bytes of the texts that a request refers to, its lists being those at hand."""
    size = (
        _size(t, request.client_id) + _size(t, request.group) + _size(t, request.member)
        + _size(t, request.transactional_id) + _size(t, request.coordinator_key)
        + _size(t, request.group_protocol) + _size(t, request.protocol_type)
        + _size(t, request.reason) + _size(t, request.rack)
    )  # fmt: skip
    for at in range(names):
        size += _size(t, t.names[at].name)
    for at in range(resources):
        size += _size(t, t.resources[at].name) + _size(t, t.resources[at].detail)
    return size


@inlined
def _size(t: Any, number: int) -> int:
    return int64(t.texts[uintp(number)].size) if number >= 0 else int64(0)


@kernel
def _pack(t: Any, at: int, names: int, rows: int, resources: int, columns: int) -> None:
    """Write the lists at hand into the heap."""
    words = t.words
    for index in range(names):
        topic = t.names[uintp(index)]
        words[uintp(at)] = _packed(topic.name, topic.uuid)
        at += 1
    for index in range(rows):
        row = t.rows[uintp(index)]
        words[uintp(at)] = _packed(row.name, row.uuid)
        words[uintp(at + 1)] = row.codecs << 32 | (row.partition & _WORD)
        at += 2
        if columns & _HAS_ERROR:
            words[uintp(at)] = row.error
            at += 1
        if columns & _HAS_RECORDS:
            words[uintp(at)] = row.records
            words[uintp(at + 1)] = row.bytes
            at += 2
        for number in range(len(i.ROW_NUMBERS)):
            if columns >> (_NUMBERS + number) & 1:
                words[uintp(at)] = _number_of(row, number)
                at += 1
    for index in range(resources):
        resource = t.resources[uintp(index)]
        words[uintp(at)] = _packed(resource.name, resource.detail)
        words[uintp(at + 1)], words[uintp(at + 2)] = resource.type, resource.error
        at += _OF_RESOURCE


@kernel
def _unpack(t: Any, request: Any, name_at: int, row_at: int, resource_at: int) -> None:
    """Write the lists of a request behind those of the response."""
    words, at, columns = t.words, request.words, request.columns
    for index in range(request.names):
        topic, word = t.names[uintp(name_at + index)], int64(words[uintp(at)])
        topic.name, topic.uuid = (word >> 32) - 1, (word & _WORD) - 1
        at += 1
    for index in range(request.rows):
        row, word = t.rows[uintp(row_at + index)], int64(words[uintp(at)])
        row.name, row.uuid = (word >> 32) - 1, (word & _WORD) - 1
        word = int64(words[uintp(at + 1)])
        partition = word & _WORD
        row.partition = partition - 0x100000000 if partition & 0x80000000 else partition
        row.codecs, row.taken = word >> 32, 0
        row.error = row.records = row.bytes = NONE
        at += 2
        if columns & _HAS_ERROR:
            row.error = words[uintp(at)]
            at += 1
        if columns & _HAS_RECORDS:
            row.records, row.bytes = words[uintp(at)], words[uintp(at + 1)]
            at += 2
        for number in range(len(i.ROW_NUMBERS)):
            value = int64(NONE)
            if columns >> (_NUMBERS + number) & 1:
                value = int64(words[uintp(at)])
                at += 1
            _set_number(row, number, value)
    for index in range(request.resources):
        resource, word = t.resources[uintp(resource_at + index)], int64(words[uintp(at)])
        resource.name, resource.detail = (word >> 32) - 1, (word & _WORD) - 1
        resource.type, resource.error = words[uintp(at + 1)], words[uintp(at + 2)]
        at += _OF_RESOURCE


@kernel
def _number_of(row: Any, number: int) -> int:
    """One of ROW_NUMBERS."""
    if number == 0:
        return row.base_offset
    if number == 1:
        return row.high_watermark
    if number == 2:
        return row.log_start_offset
    if number == 3:
        return row.last_stable_offset
    if number == 4:
        return row.fetch_offset
    return row.committed_offset if number == 5 else row.leader_epoch


@kernel
def _set_number(row: Any, number: int, value: int) -> None:
    if number == 0:
        row.base_offset = value
    elif number == 1:
        row.high_watermark = value
    elif number == 2:
        row.log_start_offset = value
    elif number == 3:
        row.last_stable_offset = value
    elif number == 4:
        row.fetch_offset = value
    elif number == 5:
        row.committed_offset = value
    else:
        row.leader_epoch = value


@kernel
def forget(t: Any, row: int) -> None:
    """Give back what a row of `requests` keeps in the heap."""
    request = t.requests[row]
    if request.words >= 0:
        rows = request.rows * _width(request.columns)
        give(t, request.words, request.names + rows + _OF_RESOURCE * request.resources)
    t.store[0].named -= request.named
    request.named = 0
    request.words, request.names, request.rows, request.resources = -1, 0, 0, 0


@kernel
def mark_request(t: Any, row: int) -> None:
    """Before texts are compacted: mark those that a row of `requests` refers to by fields of this module."""
    request = t.requests[row]
    mark(t, request.group)
    mark(t, request.member)
    mark(t, request.transactional_id)
    mark(t, request.coordinator_key)
    mark(t, request.group_protocol)
    mark(t, request.protocol_type)
    mark(t, request.reason)
    mark(t, request.rack)
    at, width = request.words, _width(request.columns)
    for index in range(request.names + request.rows + request.resources):
        word = int64(t.words[uintp(at)])
        mark(t, (word >> 32) - 1)
        mark(t, (word & _WORD) - 1)
        at += _stride(request, index, width)


@kernel
def move_request(t: Any, row: int) -> None:
    """After texts were compacted: replace their numbers."""
    request = t.requests[row]
    request.group, request.member = moved(t, request.group), moved(t, request.member)
    request.transactional_id = moved(t, request.transactional_id)
    request.coordinator_key = moved(t, request.coordinator_key)
    request.group_protocol = moved(t, request.group_protocol)
    request.protocol_type = moved(t, request.protocol_type)
    request.reason, request.rack = moved(t, request.reason), moved(t, request.rack)
    at, width = request.words, _width(request.columns)
    for index in range(request.names + request.rows + request.resources):
        word = int64(t.words[uintp(at)])
        t.words[uintp(at)] = _packed(moved(t, (word >> 32) - 1), moved(t, (word & _WORD) - 1))
        at += _stride(request, index, width)


@inlined
def _stride(request: Any, index: int, width: int) -> int:
    """Words of one packed topic, partition or resource."""
    if index < request.names:
        return 1
    return width if index < request.names + request.rows else _OF_RESOURCE


# What both say


@kernel
def _either(t: Any, first: int, second: int) -> int:
    """A text, or if it is null or empty another."""
    return first if first >= 0 and t.texts[uintp(first)].size > 0 else second


@inlined
def _known(first: int, second: int) -> int:
    """A number, or if it is null another."""
    return first if first != NONE else second


@kernel
def join(t: Any, row: int, call: int) -> int:
    """Fill row `call` of `calls` with what a row of `requests` and the response in `facts[1]` say, which is
    not clean if there is none or it was not decoded. OK or FULL."""
    query, reply = t.requests[row], t.facts[1]
    if not reply.clean:
        clear(t, 1)
    out = t.calls[call]
    out.names = out.uuids = out.rows = out.asked = out.resources = out.brokers = 0
    if t.limits[0].lists:
        if _room(t, query, reply) == FULL:
            return FULL
        if query.words >= 0:
            _unpack(t, query, reply.names, reply.rows, reply.resources)
        _join_names(t, query, reply, out)
        _join_rows(t, query, reply, out)
        _join_resources(t, query, reply, out)
        _tell_brokers(t, reply, out)
    out.error, out.errors = reply.error, reply.errors if reply.error != NONE else NONE
    out.throttle, out.acks, out.max_wait = reply.throttle, query.acks, query.max_wait
    out.group, out.member = _either(t, query.group, reply.group), _either(t, query.member, reply.member)
    out.transactional_id = _either(t, query.transactional_id, reply.transactional_id)
    if query.coordinator_key >= 0:
        # Versions without the type ask for groups (KIP-98).
        if query.coordinator_type == 0 or query.coordinator_type == NONE:
            out.group = query.coordinator_key
        elif query.coordinator_type == 1:
            out.transactional_id = query.coordinator_key
    out.group_protocol = _either(t, reply.group_protocol, query.group_protocol)
    out.protocol_type = _either(t, reply.protocol_type, query.protocol_type)
    out.reason, out.rack, out.validate_only = query.reason, query.rack, query.validate_only
    out.generation = _known(reply.generation, query.generation)
    out.session_id = _known(reply.session_id, query.session_id)
    out.session_epoch = _known(query.session_epoch, reply.session_epoch)
    out.tail = reply.tail
    if query.record_bytes != NONE:
        out.records, out.record_bytes = query.records, query.record_bytes
    else:
        out.records, out.record_bytes = reply.records, reply.record_bytes
    return OK


@kernel
def _room(t: Any, query: Any, reply: Any) -> int:
    """OK if all tables have room for the lists of both, else FULL."""
    store, names, rows = t.store[0], query.names + reply.names, query.rows + reply.rows
    if names > len(t.names):
        return want(t, _NAMES, names)
    if rows > len(t.rows):
        return want(t, _ROWS, rows)
    if store.call_names + names > len(t.call_names):
        return want(t, _CALL_NAMES, names)
    if store.call_rows + rows > len(t.call_rows):
        return want(t, _CALL_ROWS, rows)
    resources = query.resources + reply.resources
    if resources > len(t.resources):
        return want(t, _RESOURCES, resources)
    if store.call_resources + resources > len(t.call_resources):
        return want(t, _CALL_RESOURCES, resources)
    if store.call_brokers + reply.brokers > len(t.call_brokers):
        return want(t, _CALL_BROKERS, reply.brokers)
    if query.names and reply.names and open_places(t, names) == FULL:
        return FULL
    if query.rows > 1 and open_places(t, query.rows) == FULL:
        return FULL
    return OK


@kernel
def _tell_name(t: Any, name: int, uuid: int) -> None:
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
            _tell_name(t, topic.name, topic.uuid)
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
            _tell_name(t, topic.name, topic.uuid)
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
        _tell_row(t, t.rows[uintp(index)])
    # Without record data, what the response leaves out is not told.
    if not reply.flags & i.HAS_PARTITION or query.flags & i.HAS_RECORDS:
        for index in range(first, first + query.rows):
            if not t.rows[uintp(index)].taken:
                _tell_row(t, t.rows[uintp(index)])
    out.rows = t.store[0].call_rows - before
    # What a fetch session follows has to be known whether or not there is news of it (KIP-227).
    if reply.flags & i.HAS_PARTITION and query.columns & _FETCH_OFFSET:
        for index in range(first, first + query.rows):
            if not t.rows[uintp(index)].taken:
                _tell_row(t, t.rows[uintp(index)])
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


@kernel
def _fill_numbers(source: Any, row: Any) -> None:
    """Give a row the numbers that it lacks, but for the base offset."""
    row.high_watermark = _known(row.high_watermark, source.high_watermark)
    row.log_start_offset = _known(row.log_start_offset, source.log_start_offset)
    row.last_stable_offset = _known(row.last_stable_offset, source.last_stable_offset)
    row.fetch_offset = _known(row.fetch_offset, source.fetch_offset)
    row.committed_offset = _known(row.committed_offset, source.committed_offset)
    row.leader_epoch = _known(row.leader_epoch, source.leader_epoch)


@kernel
def _tell_row(t: Any, row: Any) -> None:
    store = t.store[0]
    out = t.call_rows[uintp(store.call_rows)]
    out.name, out.uuid, out.partition, out.error = row.name, row.uuid, row.partition, row.error
    out.base_offset, out.records, out.bytes = row.base_offset, row.records, row.bytes
    out.codecs, out.high_watermark = row.codecs, row.high_watermark
    out.log_start_offset, out.last_stable_offset = row.log_start_offset, row.last_stable_offset
    out.fetch_offset, out.committed_offset = row.fetch_offset, row.committed_offset
    out.leader_epoch = row.leader_epoch
    store.call_rows += 1


@kernel
def _join_resources(t: Any, query: Any, reply: Any, out: Any) -> None:
    """The resources of the response with what came of them, or those of the request if it names none; and of
    the request in any case what it says in detail."""
    first = reply.resources
    told = int64(0)
    for index in range(first + query.resources):
        resource = t.resources[uintp(index)]
        if index < first or first == 0 or resource.detail >= 0:
            row = t.call_resources[uintp(t.store[0].call_resources)]
            row.type, row.name = resource.type, resource.name
            row.error, row.detail = resource.error, resource.detail
            t.store[0].call_resources += 1
            told += 1
    out.resources = told


@kernel
def _tell_brokers(t: Any, reply: Any, out: Any) -> None:
    """The brokers that the response names: where clients will connect to."""
    store = t.store[0]
    for index in range(reply.brokers):
        broker, row = t.brokers[uintp(index)], t.call_brokers[uintp(store.call_brokers)]
        row.node, row.host, row.port = broker.node, broker.host, broker.port
        store.call_brokers += 1
    out.brokers = reply.brokers
