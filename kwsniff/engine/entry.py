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
    DONE,
    FINISH,
    FOLLOW,
    INTERN,
    LEAVE,
    LINK,
    MERGE,
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
    """Do one of the actions of `kwsniff.engine.numbers` with the tables. Raises Stopped."""
    if what == FOLLOW:
        follow(t, how)
    elif what == FINISH:
        finish(t)
    elif what == TICK:
        tick(t, how)
    elif what == WATCH:
        watch(t, how)
    elif what == INTERN:
        intern(t, how)
    elif what == COMPACT_TEXTS:
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
    return DONE
