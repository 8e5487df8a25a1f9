"""Writes rows as lines of CSV: commas, texts in double quotes, nothing for null.

A line is written whole or not at all: when there is no room for it, or a text in it is one that a spreadsheet
or a terminal would obey, the caller empties `out` or gives another column, and calls again.
"""

from __future__ import annotations

from typing import Any

from kwsniff.lines.tables import DURATION, FULL, LIST, NONE, NUMBER, ODD, OK, OWN, PLAIN, TIME
from kwsniff.native.mode import inlined, kernel, uintp
from kwsniff.native.numbers import byte

ROOM = 32
"""Bytes that are enough for a number, a time or a duration."""
DAY = 86_400_000_000
"""In microseconds."""
_COMMA, _QUOTE, _NEWLINE, _ZERO, _SEMICOLON, _SPACE, _MINUS, _POINT = (ord(each) for each in ',"\n0; -.')
_PLUS, _EQUALS, _AT, _TILDE, _COLON = (ord(each) for each in "+=@~:")


@kernel
def write(t: Any, what: int, count: int) -> int:
    """Write the rows from the one at hand to the last of `count`: OK, FULL or ODD. `what` is not used: all
    functions that are called from outside take two numbers."""
    lines = t.lines[0]
    while lines.row < count:
        at = _line(t, lines.row, lines.at)
        if at < 0:
            return at
        lines.at = at
        lines.row += 1
    return OK


@kernel
def _line(t: Any, row: int, at: int) -> int:
    """Write one row; where it ends, or FULL or ODD."""
    for number in range(len(t.columns)):
        column = t.columns[number]
        if at + column.commas + ROOM > len(t.out):
            return FULL
        at = _commas(t, column.commas, at)
        at = _cell(t, column, row, at)
        if at < 0:
            t.lines[0].odd = number
            return at
    if at + t.lines[0].commas + 1 > len(t.out):
        return FULL
    at = _commas(t, t.lines[0].commas, at)
    t.out[uintp(at)] = _NEWLINE
    return at + 1


@inlined
def _commas(t: Any, count: int, at: int) -> int:
    for index in range(count):
        t.out[uintp(at + index)] = _COMMA
    return at + count


@kernel
def _cell(t: Any, column: Any, row: int, at: int) -> int:
    """Write a value; where it ends, or FULL or ODD. There is room for a number."""
    value = row
    if column.values >= 0:
        value = t.numbers[uintp(column.values + row)]
        if value == NONE:
            return at
    kind = column.kind
    if kind == NUMBER:
        return _number(t, value, at)
    if kind == TIME:
        return _time(t, value, at)
    if kind == DURATION:
        return _duration(t, value, at)
    if kind == PLAIN:
        return _plain(t, column.texts + row, at)
    first, last = row, row + 1
    if kind == LIST:
        first, last = t.ends[uintp(column.lists + row)], t.ends[uintp(column.lists + row + 1)]
    t.out[uintp(at)] = _QUOTE
    at = _texts(t, column, first, last, at + 1)
    if at < 0:
        return at
    t.out[uintp(at)] = _QUOTE
    return at + 1


@kernel
def _texts(t: Any, column: Any, first: int, last: int, at: int) -> int:
    """Write texts with semicolons between them, and the numbers behind them."""
    for item in range(first, last):
        begin, end = t.ends[uintp(column.texts + item)], t.ends[uintp(column.texts + item + 1)]
        if at + 2 * (end - begin) + 2 * ROOM > len(t.out):
            return FULL
        if item > first:
            t.out[uintp(at)] = _SEMICOLON
            at += 1
        before = at
        at = _quoted(t, begin, end, at) if column.kind == OWN else _safe(t, begin, end, at)
        if at < 0:
            return at
        if column.kind == LIST and column.counts >= 0:
            if column.between == _MINUS and _blank(t, before, at):
                return ODD
            t.out[uintp(at)] = column.between
            at += 1
            number = t.numbers[uintp(column.counts + item)]
            if number != NONE:
                at = _number(t, number, at)
    return at if at + ROOM <= len(t.out) else FULL


@kernel
def _plain(t: Any, text: int, at: int) -> int:
    """Copy a text."""
    begin, end = t.ends[uintp(text)], t.ends[uintp(text + 1)]
    if at + (end - begin) + ROOM > len(t.out):
        return FULL
    for index in range(begin, end):
        t.out[uintp(at)] = t.text[uintp(index)]
        at += 1
    return at


@kernel
def _quoted(t: Any, begin: int, end: int, at: int) -> int:
    """Copy a text, each quote twice; there is room for it."""
    for index in range(begin, end):
        at = _char(t, byte(t.text, index), at)
    return at


@inlined
def _char(t: Any, char: int, at: int) -> int:
    """Write a byte of a quoted text."""
    t.out[uintp(at)] = char
    if char != _QUOTE:
        return at + 1
    t.out[uintp(at + 1)] = _QUOTE
    return at + 2


@kernel
def _safe(t: Any, begin: int, end: int, at: int) -> int:
    """The same for a text of printable ASCII in which no formula begins, ODD for any other: see
    `kwsniff.report.text.FORMULA`."""
    fresh = True
    for index in range(begin, end):
        char = byte(t.text, index)
        if char < _SPACE or char > _TILDE:
            return ODD
        if fresh and char in (_EQUALS, _PLUS, _MINUS, _AT):
            return ODD
        fresh = char == _SEMICOLON or (fresh and char == _SPACE)
        at = _char(t, char, at)
    return at


@kernel
def _blank(t: Any, begin: int, end: int) -> bool:
    """Whether a formula could begin behind what was written: spaces, or a `;` and spaces."""
    while end > begin and t.out[uintp(end - 1)] == _SPACE:
        end -= 1
    return end == begin or t.out[uintp(end - 1)] == _SEMICOLON


@kernel
def _number(t: Any, value: int, at: int) -> int:
    if value < 0:
        t.out[uintp(at)] = _MINUS
        at += 1
        value = -value
    width = 1
    power = 10
    while width < 19 and value >= power:
        width += 1
        if width < 19:
            power *= 10
    return _digits(t, value, width, at)


@inlined
def _digits(t: Any, value: int, width: int, at: int) -> int:
    """So many digits of a number that is not negative."""
    place = at + width
    while place > at:
        place -= 1
        t.out[uintp(place)] = _ZERO + value % 10
        value //= 10
    return at + width


@kernel
def _duration(t: Any, thousandths: int, at: int) -> int:
    """As short as it can be: no zeros at the end of the decimals, and no point before none."""
    at = _number(t, thousandths // 1000, at)
    rest = thousandths % 1000
    if not rest:
        return at
    t.out[uintp(at)] = _POINT
    at = _digits(t, rest, 3, at + 1)
    while t.out[uintp(at - 1)] == _ZERO:
        at -= 1
    return at


@kernel
def _time(t: Any, micros: int, at: int) -> int:
    """ISO 8601 in UTC with six decimals, in quotes, of a time since 1970."""
    days, rest = micros // DAY, micros % DAY
    # From days to a date: years that begin in March, in eras of 400 of them, which are of one length.
    shifted = days + 719_468
    era, day = shifted // 146_097, shifted % 146_097
    year = (day - day // 1460 + day // 36_524 - day // 146_096) // 365
    day -= 365 * year + year // 4 - year // 100
    month = (5 * day + 2) // 153
    day -= (153 * month + 2) // 5 - 1
    year += era * 400
    month += 3
    if month > 12:
        month -= 12
        year += 1
    seconds, fraction = rest // 1_000_000, rest % 1_000_000
    t.out[uintp(at)] = _QUOTE
    at = _part(t, year, 4, at + 1, _MINUS)
    at = _part(t, month, 2, at, _MINUS)
    at = _part(t, day, 2, at, ord("T"))
    at = _part(t, seconds // 3600, 2, at, _COLON)
    at = _part(t, seconds // 60 % 60, 2, at, _COLON)
    at = _part(t, seconds % 60, 2, at, _POINT)
    at = _part(t, fraction, 6, at, ord("Z"))
    t.out[uintp(at)] = _QUOTE
    return at + 1


@inlined
def _part(t: Any, value: int, width: int, at: int, behind: int) -> int:
    at = _digits(t, value, width, at)
    t.out[uintp(at)] = behind
    return at + 1
