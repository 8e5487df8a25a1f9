"""What a request keeps until its response comes.

Theory of operation. `keep` puts what a body says into the request's row, and its lists, packed, into a block
of the heap; `unpack` writes them behind those of the response, for `calls.join`.

A packed list: a word for each topic, name + 1 above uuid + 1; then for each partition such a word, one with
the partition and above it the codecs, and one for each column that the layout's rows can have; then for each
resource name + 1 above detail + 1, type and error code.
"""

from __future__ import annotations

from typing import Any

from kwsniff.engine.arena import WANT_WORDS, lacks
from kwsniff.engine.facts import clear
from kwsniff.engine.row_tables import KEPT
from kwsniff.engine.tables import CONNS, REQUESTS, SPEC_OF
from kwsniff.engine.texts import compact, mark, moved, unmark
from kwsniff.native.mode import inlined, int64, kernel, made, uintp
from kwsniff.native.rowcopies import NONE
from kwsniff.native.rowcopies import TEXT as FIELD_TEXT
from kwsniff.spec import instructions as i

_WORD = 0xFFFFFFFF
_HAS_ERROR, _HAS_RECORDS = 1 << i.ERROR_AT, 1 << i.RECORDS_AT
_NUMBERS = i.NUMBERS_AT
_TEXTS = [name for name in SPEC_OF["requests"].of(FIELD_TEXT) if not name.startswith("software")]
"""Of a request while it is kept: what its client is, is filled in later."""
_keep_said = made("keep_said", "row, fact", [f"row.{name} = fact.{name}" for name in KEPT])
_pack_numbers = made(
    "pack_numbers",
    "words, at, row, columns",
    [
        line
        for bit, name in enumerate(i.ROW_NUMBERS, _NUMBERS)
        for line in (f"if columns >> {bit} & 1:", f"    words[uintp(at)] = row.{name}", "    at += 1")
    ]
    + ["return at"],
    uintp=uintp,
)
_unpack_numbers = made(
    "unpack_numbers",
    "words, at, row, columns",
    [
        line
        for bit, name in enumerate(i.ROW_NUMBERS, _NUMBERS)
        for line in (
            f"row.{name} = {NONE}",
            f"if columns >> {bit} & 1:",
            f"    row.{name} = words[uintp(at)]",
            "    at += 1",
        )
    ]
    + ["return at"],
    uintp=uintp,
)
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
def keep(t: Any, row: int) -> None:
    """Keep what `facts[0]` and its lists say with a row of `requests`."""
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
        at = take_words(t, names + rows * width_of(fact.columns) + OF_RESOURCE * resources)
        request.words = at
        _pack(t, at, names, rows, resources, fact.columns)
    request.names, request.rows, request.resources = names, rows, resources
    request.flags, request.columns = fact.flags, fact.columns
    _keep_said(request, fact)
    if not fact.clean:
        request.acks = NONE
    request.records, request.record_bytes = fact.records, fact.record_bytes
    request.named = _named(t, request, names, rows, resources)
    t.store[0].named += request.named


@kernel
def _named(t: Any, request: Any, names: int, rows: int, resources: int) -> int:
    """Quarter kilobytes of the texts that a request refers to. Texts of ordinary length count nothing."""
    found = _weight(t, request)
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


_weight = made(
    "weight",
    "t, row",
    ["return " + " + ".join(f"quarters(t, row.{name})" for name in _TEXTS)],
    quarters=_quarters,
)


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
        at = _pack_numbers(words, at, row, columns)
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
        at = _unpack_numbers(words, at, row, columns)
    for index in range(request.resources):
        resource, word = t.resources[uintp(resource_at + index)], int64(words[uintp(at)])
        resource.name, resource.detail = (word >> 32) - 1, (word & _WORD) - 1
        resource.type, resource.error = words[uintp(at + 1)], words[uintp(at + 2)]
        at += OF_RESOURCE


@kernel
def forget(t: Any, row: int) -> None:
    """Give back what a row of `requests` keeps in the heap."""
    request = t.requests[row]
    if request.words >= 0:
        rows = request.rows * width_of(request.columns)
        give_words(t, request.words, request.names + rows + OF_RESOURCE * request.resources)
    request.words, request.names, request.rows, request.resources = -1, 0, 0, 0
    t.store[0].named -= request.named
    request.named = 0


def _marking(table: str) -> Any:
    """A kernel that marks the texts that a row refers to, before texts are compacted."""
    lines = [f"mark(t, row.{name})" for name in SPEC_OF[table].of(FIELD_TEXT)]
    return made(f"mark_{table}", "t, row", lines, mark=mark)


def _moving(table: str) -> Any:
    """A kernel that replaces the texts that a row refers to, after they got other numbers."""
    lines = [f"row.{name} = moved(t, row.{name})" for name in SPEC_OF[table].of(FIELD_TEXT)]
    return made(f"move_{table}", "t, row", lines, moved=moved)


_mark_connection, move_connection = _marking("conns"), _moving("conns")
_mark_request, _move_request = _marking("requests"), _moving("requests")


@kernel
def mark_request(t: Any, row: int) -> None:
    """Before texts are compacted: mark those that a row of `requests` refers to."""
    request = t.requests[row]
    _mark_request(t, request)
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
    _move_request(t, request)
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
            _mark_connection(t, t.conns[c])
    for row in range(t.pools[REQUESTS].used):
        if t.requests[row].conn >= 0:
            mark_request(t, row)
    compact(t)
    for c in range(t.pools[CONNS].used):
        if t.conns[c].number:
            move_connection(t, t.conns[c])
    for row in range(t.pools[REQUESTS].used):
        if t.requests[row].conn >= 0:
            move_request(t, row)


# A heap of 64-bit words for what waiting requests remember: blocks of a few sizes, free ones in lists.
#
# Theory of operation. A block has a power of two of words, or three quarters of one. A freed block goes to
# the list of its size; its first word then holds where the next free one is. New blocks come from the end
# of the used part. Blocks are neither split nor joined: what waits at one time has about the sizes of what
# waits at another, so the heap stays within a small multiple of its largest use, and the driver may shrink
# it when nothing waits.
#
# Invariant: `words_live` counts the words of all blocks that were taken and not freed.

WORD_BINS = 64
"""Rows of `word_bins`."""


@kernel
def bin_of_words(size: int) -> int:
    """The list of blocks that hold `size` words: 2, 3, 4, 6, 8, 12, … by number."""
    number, room = int64(0), int64(2)
    while room < size:
        if room + (room >> 1) >= size:
            return number + 1
        room <<= 1
        number += 2
    return number


@kernel
def words_of_bin(number: int) -> int:
    """Words of the blocks of a list."""
    room = int64(2) << (number >> 1)
    return room + (room >> 1) if number & 1 else room


@kernel
def take_words(t: Any, size: int) -> int:
    """Where a block of at least `size` words begins."""
    store = t.store[0]
    number = bin_of_words(size)
    free = t.word_bins[number]
    room = words_of_bin(number)
    at = free.first
    if at >= 0:
        free.first = t.words[uintp(at)]
    else:
        at = store.words
        if at + room > len(t.words):
            lacks(t, WANT_WORDS, at + room)
        store.words = at + room
    store.words_live += room
    return at


@kernel
def give_words(t: Any, at: int, size: int) -> None:
    """Give back a block that was taken for `size` words."""
    number = bin_of_words(size)
    free = t.word_bins[number]
    t.words[uintp(at)] = free.first
    free.first = at
    t.store[0].words_live -= words_of_bin(number)


@kernel
def reset_words(t: Any) -> None:
    """Empty the heap."""
    t.store[0].words = t.store[0].words_live = 0
    for number in range(len(t.word_bins)):
        t.word_bins[number].first = -1
