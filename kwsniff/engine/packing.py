"""What a request keeps until its response comes.

Theory of operation. `keep` puts what a body says into the request's row, and its lists, packed, into a block
of the heap; `unpack` writes them behind those of the response, for `calls.join`.

A packed list: a word for each topic, name + 1 above uuid + 1; then for each partition such a word, one with
the partition and above it the codecs, and one for each column that the layout's rows can have; then for each
resource name + 1 above detail + 1, type and error code.
"""

from __future__ import annotations

from typing import Any

from kwsniff.engine.facts import clear
from kwsniff.engine.heap import give, take
from kwsniff.engine.numbers import FULL, NONE, OK
from kwsniff.engine.tables import CONNS, REQUESTS
from kwsniff.engine.texts import compact, mark, moved, unmark
from kwsniff.native.mode import inlined, int64, kernel, uintp
from kwsniff.spec import instructions as i

_WORD = 0xFFFFFFFF
_HAS_ERROR, _HAS_RECORDS = 1 << i.ERROR_AT, 1 << i.RECORDS_AT
_NUMBERS = i.NUMBERS_AT
OF_RESOURCE = 3
"""Words of a packed resource."""


@inlined
def _packed(name: int, uuid: int) -> int:
    return (name + 1) << 32 | (uuid + 1)


@kernel
def width_of(columns: int) -> int:
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
        at = take(t, names + rows * width_of(fact.columns) + OF_RESOURCE * resources)
        if at == FULL:
            return FULL
        request.words = at
        _pack(t, at, names, rows, resources, fact.columns)
    request.names, request.rows, request.resources = names, rows, resources
    request.flags, request.columns = fact.flags, fact.columns
    request.acks = fact.acks if fact.clean else NONE
    request.max_wait, request.min_bytes = fact.max_wait, fact.min_bytes
    request.group, request.member = fact.group, fact.member
    request.transactional_id, request.coordinator_key = fact.transactional_id, fact.coordinator_key
    request.coordinator_type = fact.coordinator_type
    request.session_id, request.session_epoch = fact.session_id, fact.session_epoch
    request.generation, request.group_protocol = fact.generation, fact.group_protocol
    request.protocol_type, request.reason, request.rack = fact.protocol_type, fact.reason, fact.rack
    request.validate_only = fact.validate_only
    request.software = request.software_version = -1
    request.records, request.record_bytes = fact.records, fact.record_bytes
    request.named = _named(t, request, names, rows, resources)
    t.store[0].named += request.named
    return OK


@kernel
def _named(t: Any, request: Any, names: int, rows: int, resources: int) -> int:
    """Quarter kilobytes of the texts that a request refers to. Texts of ordinary length count nothing."""
    found = _quarters(t, request.client_id) + _quarters(t, request.group) + _quarters(t, request.member)
    found += _quarters(t, request.transactional_id) + _quarters(t, request.coordinator_key)
    found += _quarters(t, request.group_protocol) + _quarters(t, request.protocol_type)
    found += _quarters(t, request.reason) + _quarters(t, request.rack)
    for index in range(names):
        found += _quarters(t, t.names[uintp(index)].name)
    before = int64(-1)
    for index in range(rows):
        name = t.rows[uintp(index)].name
        if name != before:
            found += _quarters(t, name)
        before = name
    for index in range(resources):
        found += _quarters(t, t.resources[uintp(index)].name) + _quarters(t, t.resources[uintp(index)].detail)
    return found


@kernel
def _quarters(t: Any, number: int) -> int:
    """Quarter kilobytes of a text, 0 for -1 and less."""
    return t.texts[uintp(number)].size >> 8 if number >= 0 else int64(0)


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
        at += OF_RESOURCE


@kernel
def unpack(t: Any, request: Any, name_at: int, row_at: int, resource_at: int) -> None:
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
        at += OF_RESOURCE


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
        rows = request.rows * width_of(request.columns)
        give(t, request.words, request.names + rows + OF_RESOURCE * request.resources)
    request.words, request.names, request.rows, request.resources = -1, 0, 0, 0
    t.store[0].named -= request.named
    request.named = 0


@kernel
def mark_request(t: Any, row: int) -> None:
    """Before texts are compacted: mark those that a row of `requests` refers to."""
    request = t.requests[row]
    mark(t, request.client_id)
    mark(t, request.group)
    mark(t, request.member)
    mark(t, request.transactional_id)
    mark(t, request.coordinator_key)
    mark(t, request.group_protocol)
    mark(t, request.protocol_type)
    mark(t, request.reason)
    mark(t, request.rack)
    mark(t, request.software)
    mark(t, request.software_version)
    at, width = request.words, width_of(request.columns)
    for index in range(request.names + request.rows + request.resources):
        word = int64(t.words[uintp(at)])
        mark(t, (word >> 32) - 1)
        mark(t, (word & _WORD) - 1)
        at += _stride(request, index, width)


@kernel
def move_request(t: Any, row: int) -> None:
    """After texts got other numbers: replace those that a row of `requests` has."""
    request = t.requests[row]
    request.client_id = moved(t, request.client_id)
    request.group, request.member = moved(t, request.group), moved(t, request.member)
    request.transactional_id = moved(t, request.transactional_id)
    request.coordinator_key = moved(t, request.coordinator_key)
    request.group_protocol = moved(t, request.group_protocol)
    request.protocol_type = moved(t, request.protocol_type)
    request.reason, request.rack = moved(t, request.reason), moved(t, request.rack)
    request.software = moved(t, request.software)
    request.software_version = moved(t, request.software_version)
    at, width = request.words, width_of(request.columns)
    for index in range(request.names + request.rows + request.resources):
        word = int64(t.words[uintp(at)])
        t.words[uintp(at)] = _packed(moved(t, (word >> 32) - 1), moved(t, (word & _WORD) - 1))
        at += _stride(request, index, width)


@inlined
def _stride(request: Any, index: int, width: int) -> int:
    """Words of one packed topic, partition or resource."""
    if index < request.names:
        return 1
    return width if index < request.names + request.rows else OF_RESOURCE


# Which rows refer to texts: dropping the texts that none of them does.


@kernel
def compact_texts(t: Any) -> None:
    """Drop the texts that neither connections nor requests refer to; nothing else may do so now."""
    unmark(t)
    for c in range(t.pools[CONNS].used):
        if t.conns[c].number:
            mark_connection(t, c)
    for row in range(t.pools[REQUESTS].used):
        if t.requests[row].conn >= 0:
            mark_request(t, row)
    compact(t)
    for c in range(t.pools[CONNS].used):
        if t.conns[c].number:
            move_connection(t, c)
    for row in range(t.pools[REQUESTS].used):
        if t.requests[row].conn >= 0:
            move_request(t, row)


@kernel
def mark_connection(t: Any, c: int) -> None:
    """Before texts are compacted: mark those that a connection refers to."""
    conn = t.conns[c]
    mark(t, conn.mechanism)
    mark(t, conn.user)
    mark(t, conn.software)
    mark(t, conn.software_version)
    mark(t, conn.client_id)


@kernel
def move_connection(t: Any, c: int) -> None:
    """After texts got other numbers: replace those that a connection has."""
    conn = t.conns[c]
    conn.mechanism, conn.user = moved(t, conn.mechanism), moved(t, conn.user)
    conn.software, conn.software_version = moved(t, conn.software), moved(t, conn.software_version)
    conn.client_id = moved(t, conn.client_id)
