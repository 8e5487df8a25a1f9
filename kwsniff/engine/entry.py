"""The one function that the driver calls, compiled or interpreted."""

from __future__ import annotations

from typing import Any

from kwsniff.engine import texts
from kwsniff.engine.closing import finish, tick
from kwsniff.engine.connections import rehash_connections
from kwsniff.engine.follow import follow, watch
from kwsniff.engine.left import adopt, intern, leave, link_all
from kwsniff.engine.merging import merge_all
from kwsniff.engine.numbers import (
    ADOPT,
    COMPACT_TEXTS,
    FINISH,
    FOLLOW,
    INTERN,
    LEAVE,
    LINK,
    MERGE,
    OK,
    REHASH_CONNECTIONS,
    REHASH_REQUESTS,
    REHASH_TEXTS,
    TICK,
    WATCH,
)
from kwsniff.engine.packing import compact_texts
from kwsniff.engine.waiting import rehash
from kwsniff.native.mode import kernel


@kernel
def act(t: Any, what: int, how: int) -> int:
    """Do one of the actions of `kwsniff.engine.numbers` with the tables: OK, FULL or PROGRAM."""
    if what == FOLLOW:
        return follow(t, how)
    if what == FINISH:
        return finish(t)
    if what == TICK:
        return tick(t, how)
    if what == WATCH:
        return watch(t, how)
    if what == INTERN:
        return intern(t, how)
    if what == COMPACT_TEXTS:
        compact_texts(t)
    elif what == LEAVE:
        leave(t)
    elif what == ADOPT:
        adopt(t, how)
    elif what == MERGE:
        merge_all(t)
    elif what == LINK:
        link_all(t, how)
    elif what == REHASH_TEXTS:
        texts.rehash(t)
    elif what == REHASH_REQUESTS:
        rehash(t)
    elif what == REHASH_CONNECTIONS:
        rehash_connections(t)
    return OK
