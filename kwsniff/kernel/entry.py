"""The one function that the driver calls, compiled or interpreted."""

from __future__ import annotations

from typing import Any

from kwsniff.kernel import texts
from kwsniff.kernel.connections import rehash_connections
from kwsniff.kernel.follow import finish, follow, tick
from kwsniff.kernel.limits import give_up_buffers, give_up_requests
from kwsniff.kernel.mode import kernel
from kwsniff.kernel.numbers import OK
from kwsniff.kernel.waiting import rehash

(FOLLOW, FINISH, TICK, REHASH_TEXTS, REHASH_REQUESTS, REHASH_CONNECTIONS, GIVE_UP_BUFFERS, GIVE_UP_REQUESTS) = (
    range(8)
)
"""What to do."""


@kernel
def act(t: Any, what: int, how: int) -> int:
    """Do something with the tables: OK, FULL or PROGRAM."""
    if what == FOLLOW:
        return follow(t, how)
    if what == FINISH:
        return finish(t)
    if what == TICK:
        return tick(t, how)
    if what == GIVE_UP_BUFFERS:
        return give_up_buffers(t, how)
    if what == GIVE_UP_REQUESTS:
        return give_up_requests(t, how)
    if what == REHASH_TEXTS:
        texts.rehash(t)
    elif what == REHASH_REQUESTS:
        rehash(t)
    elif what == REHASH_CONNECTIONS:
        rehash_connections(t)
    return OK
