"""Whether a whole message decodes, with nothing kept of it: what proves that bytes are Kafka."""

from __future__ import annotations

from typing import Any

from kwsniff.kernel.bodies import downgraded, skim
from kwsniff.kernel.facts import after_tags
from kwsniff.kernel.headers import is_known
from kwsniff.kernel.numbers import OK, PROGRAM, REFUSED, int16
from kwsniff.native.mode import kernel

EXTRA = 8
"""Bytes that may be left behind the last field of a body that proves something: some clients leave a few."""


@kernel
def layout_of(t: Any, key: int, version: int) -> int:
    """The row of layouts of a version, -1 if there is none."""
    if not is_known(t, key, version):
        return -1
    return t.apis[key].first + version - t.apis[key].low


@kernel
def wants_program(t: Any, layout: int) -> int:
    """Ask for the program of a layout."""
    t.run[0].key, t.run[0].version = t.layouts[layout].key, t.layouts[layout].version
    return PROGRAM


@kernel
def skim_request(t: Any, data: Any, pos: int, end: int) -> int:
    """Whether the request from its length at `pos` to `end` decodes: OK, REFUSED, or another code. Its header
    is known to be plausible up to the client id."""
    key, version, size = int16(data, pos + 4), int16(data, pos + 6), int16(data, pos + 12)
    at = layout_of(t, key, version)
    if at < 0:
        return REFUSED
    layout = t.layouts[at]
    pos += 14 + max(size, 0) if layout.client_id else 12
    if pos > end:
        return REFUSED
    if layout.flexible_request:
        pos = after_tags(data, pos, end)
        if pos < 0:
            return REFUSED
    if layout.request < 0:
        return wants_program(t, at)
    code = skim(t, data, pos, end, layout.request, True)
    if code == OK and t.facts[0].trailing > EXTRA:
        return REFUSED
    return code


@kernel
def skim_response(t: Any, data: Any, pos: int, end: int, asked: int) -> int:
    """Whether the response from `pos` to `end` decodes as that to the request whose length is at `asked`. One
    of a version to come shows nothing, unless the broker does not know it either."""
    key, version = int16(data, asked + 4), int16(data, asked + 6)
    pos += 8
    at = layout_of(t, key, version)
    if at < 0:
        if key < 0 or key >= len(t.apis) or t.apis[key].first < 0 or version <= t.apis[key].high:
            return REFUSED
        newest = t.apis[key].first + t.apis[key].high - t.apis[key].low
        at = downgraded(t, data, pos, end, newest)
        if at == newest:
            return REFUSED
        return skim_body(t, data, pos, end, at)
    return skim_answer(t, data, pos, end, at)


@kernel
def skim_answer(t: Any, data: Any, pos: int, end: int, at: int) -> int:
    """Whether the response whose correlation id ends at `pos` decodes as one to a request of a layout."""
    if downgraded(t, data, pos, end, at) != at:
        return OK  # error 35 is what proves something; librdkafka's mock cluster leaves out the rest
    return skim_body(t, data, pos, end, at)


@kernel
def skim_body(t: Any, data: Any, pos: int, end: int, at: int) -> int:
    """The same, of the version that the layout is of."""
    layout = t.layouts[at]
    if layout.flexible_response:
        pos = after_tags(data, pos, end)
        if pos < 0:
            return REFUSED
    if layout.response < 0:
        return wants_program(t, at)
    code = skim(t, data, pos, end, layout.response, False)
    if code == OK and t.facts[1].trailing > EXTRA:
        return REFUSED
    return code
