"""What a body says: runs a program of `kwsniff.spec.instructions` over one message.

Theory of operation. One loop over instructions, with the position in the message and the registers. All that
is read is first compared with the message's end, or with that of the tagged field it stands in. Topics,
partitions, advertised brokers and resources go to the lists `names`, `rows`, `brokers` and `resources`, the
rest to the row of `facts`.

What is wrong ends the reading; only a string that is not text does not, since an acks behind it decides
whether a response is due. `code` and `offset` say what was found first; where it stands in the message, the
interpreter of `kwsniff.spec.interpret` finds out from the same bytes.

Invariants: for any bytes, what is accepted and what is refused, and for which reason, is what the decoder of
`kwsniff.spec.instructions` says. Where a table is full nothing is left behind but texts, and the body is read
again.
"""

from __future__ import annotations

from typing import Any, NoReturn

from kwsniff.engine.arena import lacks
from kwsniff.engine.facts import (
    ACKS,
    TRAILING,
    TRUNCATED,
    after_tags,
    clear,
    fill_facts,
    marker,
    signed,
    skip_array,
    skip_sized,
    skip_tags,
    span,
    tag,
)
from kwsniff.engine.headers import is_known
from kwsniff.engine.steps import (
    add_broker,
    add_partitions,
    add_resource,
    add_row,
    add_topic,
    copy_register,
    open_loop,
    open_tags,
    read_error,
    read_text,
    read_uuid,
)
from kwsniff.engine.tables import PROGRAM, WANTS, stop
from kwsniff.native.mode import int16, int64, kernel, uintp, uvarint
from kwsniff.native.rowcopies import NONE
from kwsniff.spec import instructions as i

UNSUPPORTED_VERSION = 35
"""Error code of a broker that does not know the version it was asked for."""

_REGISTERS = WANTS.index("registers")


@kernel
def read(t: Any, data: Any, pos: int, end: int, entry: int, is_request: bool) -> bool:
    """Read the body `data[pos:end]` by row `entry` of `programs`.

    Fills row 0 of `facts` for a request, row 1 for a response, and `names`, `rows`, `brokers`, `resources`
    from their starts. Whether it could be read: else `facts` has the reason, and of the rest only `acks`.
    """
    return run(t, data, pos, end, entry, 0 if is_request else 1, True)


@kernel
def skim(t: Any, data: Any, pos: int, end: int, entry: int, is_request: bool) -> bool:
    """Whether `read` would take the body, with nothing kept. The row of `facts` is that of a body without
    texts and lists."""
    return run(t, data, pos, end, entry, 0 if is_request else 1, False)


@kernel
def downgraded(t: Any, data: Any, pos: int, end: int, layout: int) -> int:
    """The row of `layouts` that a response to a request of `layout` follows. A broker that does not know the
    version it was asked for cannot know its layout either: ApiVersions is then answered with v0 and error 35
    (KIP-511)."""
    other = t.layouts[layout].downgraded
    if other < 0 or end - pos < 2 or int16(data, pos) != UNSUPPORTED_VERSION:
        return layout
    return other


@kernel
def unsupported(t: Any) -> None:
    """After `read` refused a downgraded response, of which the error code is all that counts: take it all
    the same; `code` and `offset` say what is wrong. librdkafka's mock cluster writes a short array here."""
    fact = t.facts[1]
    code, offset = fact.code, fact.offset
    clear(t, 1)
    fact.code, fact.offset, fact.clean, fact.flags = code, offset, 1, i.HAS_ERROR
    fact.error, fact.errors = UNSUPPORTED_VERSION, 1


@kernel
def peek_acks(t: Any, data: Any, pos: int, end: int, version: int) -> int:
    """The acks of a Produce request of which only the beginning may be at hand, NONE if they are not: they
    decide about pairing, which has to work on a broken body too."""
    if version >= 9:
        size, after = uvarint(data, pos, end)
        if after < 0:
            return int64(NONE)
        pos = after + (size - 1 if size > 0 else 0)
    elif version >= 3 and end - pos >= 2:
        size = int16(data, pos)
        pos += 2 + (size if size > 0 else 0)
    return int16(data, pos) if end - pos >= 2 else int64(NONE)


@kernel
def run(t: Any, data: Any, pos: int, end: int, entry: int, side: int, keep: bool) -> bool:
    """Run row `entry` of `programs` over a body; `side` is the row of `facts`. See `read` and `skim`."""
    program, fact, r = t.programs[entry], t.facts[side], t.registers
    if program.registers > len(r):
        lacks(t, _REGISTERS, program.registers)
    begin(t, program, pos, side, keep)
    first, outer = pos, end
    steps, ip = t.code, program.start
    while True:
        step = steps[uintp(ip)]
        op, a, b = step.op, step.a, step.b
        ip += 1
        wrong = int64(0)
        if op == i.SKIP:
            if a > end - pos:
                wrong = int64(TRUNCATED)
            else:
                pos += a
        elif op == i.NEXT:
            r[a] -= 1
            if r[a] > 0:
                ip = b
        elif op == i.TEXT:
            pos, wrong = read_text(t, data, pos, end, step, side)
        elif op == i.SKIP_TEXT or op == i.SKIP_BYTES:
            pos, wrong = skip_sized(data, pos, end, a, 2 if op == i.SKIP_TEXT else 4)
        elif op == i.SKIP_ARRAY:
            pos, wrong = skip_array(data, pos, end, step)
        elif op == i.LOOP:
            pos, wrong = open_loop(t, data, pos, end, step)
            if r[a] <= 0:
                ip = step.d
        elif op == i.TAGS:
            if pos < end and data[uintp(pos)] == 0:
                pos += 1
            else:
                pos, wrong = skip_tags(data, pos, end)
        elif op == i.ERROR:
            pos, wrong = read_error(t, data, pos, end, step, side)
        elif op == i.NUMBER:
            if end - pos < b:
                wrong = int64(TRUNCATED)
            else:
                if step.c != i.FIRST or r[a] == NONE:
                    r[a] = signed(data, pos, b)
                pos += b
        elif op == i.SPAN:
            pos, wrong = span(data, pos, end, r, step)
        elif op == i.UUID:
            pos, wrong = read_uuid(t, data, pos, end, step)
        elif op == i.ROW:
            add_row(t, data, step, side)
        elif op == i.NAME:
            add_topic(t, step, side)
        elif op == i.PARTITIONS:
            pos, wrong = add_partitions(t, data, pos, end, step, side)
        elif op == i.MARKER:
            present, wrong = marker(data, pos, end)
            if wrong == 0:
                pos += 1
                if not present:
                    ip = a
        elif op == i.TAGS_OPEN:
            pos, wrong = open_tags(data, pos, end, r, a)
            if r[a] == 0:
                ip = b
        elif op == i.TAG:
            pos, wrong = tag(data, pos, end, r, a)
        elif op == i.TAG_CASE:
            if r[a + 1] != b:
                ip = step.c
            else:
                end = r[a + 2]
        elif op == i.TAG_CLOSE:
            end = r[a + 3]
            if pos != r[a + 2]:
                wrong = int64(TRAILING)
            ip = b
        elif op == i.TAG_NEXT:
            pos = r[a + 2]
            r[a] -= 1
            if r[a] > 0:
                ip = b
        elif op == i.COPY:
            copy_register(r, step)
        elif op == i.BROKER:
            add_broker(t, step, side)
        elif op == i.RESOURCE:
            add_resource(t, step, side)
        else:
            break
        if wrong:
            if fact.code == 0:
                fact.code, fact.offset = wrong, pos - first
            break
    if fact.code:
        refuse(t, side)
        return False
    accept(t, program, outer - pos, side)
    return True


@kernel
def begin(t: Any, program: Any, pos: int, side: int, keep: bool) -> None:
    """Prepare registers, the row of `facts` and what is wanted of the body."""
    reading, fact, r = t.reading[0], t.facts[side], t.registers
    for at in range(i.NO_NUMBER):
        r[at] = -1
    for at in range(i.NO_NUMBER, program.registers):
        r[at] = NONE
    lists = keep and t.limits[0].lists != 0
    reading.keep, reading.lists = 1 if keep else 0, 1 if lists else 0
    # An anomaly of record data names the partition it is about.
    reading.named = 1 if lists or (keep and program.flags & i.HAS_RECORDS != 0) else 0
    reading.left, reading.verify, reading.begin = t.limits[0].max_elements, t.limits[0].verify_crc, pos
    fact.code = fact.offset = fact.error = fact.errors = fact.records = fact.record_bytes = 0
    fact.names = fact.rows = fact.brokers = fact.resources = fact.damaged = fact.tail = 0


@kernel
def refuse(t: Any, side: int) -> None:
    """Let the row of `facts` say what is wrong, and of the rest only the acks."""
    fact = t.facts[side]
    code, offset = fact.code, fact.offset
    clear(t, side)
    fact.code, fact.offset, fact.acks = code, offset, t.registers[ACKS]


@kernel
def accept(t: Any, program: Any, trailing: int, side: int) -> None:
    """Complete the row of `facts`."""
    fact = t.facts[side]
    fill_facts(t.registers, fact)
    fact.clean, fact.trailing, fact.name_first, fact.row_first = 1, trailing, 0, 0
    fact.flags, fact.columns = program.flags, program.columns
    if not program.flags & i.HAS_ERROR:
        fact.error = NONE
    if not program.flags & i.HAS_RECORDS:
        fact.records = fact.record_bytes = NONE


# Whether a whole message decodes, with nothing kept of it: what proves that bytes are Kafka.

EXTRA = 8
"""Bytes that may be left behind the last field of a body that proves something: some clients leave a few."""


@kernel
def layout_of(t: Any, key: int, version: int) -> int:
    """The row of layouts of a version, -1 if there is none."""
    if not is_known(t, key, version):
        return -1
    return t.apis[key].first + version - t.apis[key].low


@kernel
def newer(t: Any, row: int) -> int:
    """The newest layout of an API of which a version newer than known was asked for, -1 if it is not that: a
    broker that does not know the version either answers in one that is known."""
    request = t.requests[row]
    if request.key < 0 or request.key >= len(t.apis) or t.apis[request.key].first < 0:
        return -1
    api = t.apis[request.key]
    return api.first + api.high - api.low if request.version > api.high else -1


@kernel
def wants_program(t: Any, layout: int) -> NoReturn:
    """Stop: the program of a layout has to be loaded."""
    t.run[0].key, t.run[0].version = t.layouts[layout].key, t.layouts[layout].version
    stop(t, PROGRAM)


@kernel
def skim_request(t: Any, data: Any, pos: int, end: int) -> bool:
    """Whether the request from its length at `pos` to `end` decodes. Its header is known to be plausible up
    to the client id."""
    key, version, size = int16(data, pos + 4), int16(data, pos + 6), int16(data, pos + 12)
    at = layout_of(t, key, version)
    if at < 0:
        return False
    layout = t.layouts[at]
    pos += 14 + max(size, 0) if layout.client_id else 12
    if pos > end:
        return False
    if layout.flexible_request:
        pos = after_tags(data, pos, end)
        if pos < 0:
            return False
    if layout.request < 0:
        wants_program(t, at)
    return skim(t, data, pos, end, layout.request, True) and t.facts[0].trailing <= EXTRA


@kernel
def skim_response(t: Any, data: Any, pos: int, end: int, asked: int) -> bool:
    """Whether the response from `pos` to `end` decodes as that to the request whose length is at `asked`. One
    of a version to come shows nothing, unless the broker does not know it either."""
    key, version = int16(data, asked + 4), int16(data, asked + 6)
    pos += 8
    at = layout_of(t, key, version)
    if at < 0:
        if key < 0 or key >= len(t.apis) or t.apis[key].first < 0 or version <= t.apis[key].high:
            return False
        newest = t.apis[key].first + t.apis[key].high - t.apis[key].low
        at = downgraded(t, data, pos, end, newest)
        if at == newest:
            return False
        return skim_body(t, data, pos, end, at)
    return skim_answer(t, data, pos, end, at)


@kernel
def skim_answer(t: Any, data: Any, pos: int, end: int, at: int) -> bool:
    """Whether the response whose correlation id ends at `pos` decodes as one to a request of a layout."""
    if downgraded(t, data, pos, end, at) != at:
        return True  # error 35 is what proves something; librdkafka's mock cluster leaves out the rest
    return skim_body(t, data, pos, end, at)


@kernel
def skim_body(t: Any, data: Any, pos: int, end: int, at: int) -> bool:
    """The same, of the version that the layout is of."""
    layout = t.layouts[at]
    if layout.flexible_response:
        pos = after_tags(data, pos, end)
        if pos < 0:
            return False
    if layout.response < 0:
        wants_program(t, at)
    return skim(t, data, pos, end, layout.response, False) and t.facts[1].trailing <= EXTRA
