"""The one function that the driver calls, compiled or interpreted."""

from __future__ import annotations

from typing import Any

from kwsniff.kernel import texts
from kwsniff.kernel.connections import rehash_connections
from kwsniff.kernel.follow import finish, follow, tick, watch
from kwsniff.kernel.limits import compact_texts
from kwsniff.kernel.mode import kernel
from kwsniff.kernel.numbers import OK
from kwsniff.kernel.waiting import rehash

(FOLLOW, FINISH, TICK, REHASH_TEXTS, REHASH_REQUESTS, REHASH_CONNECTIONS, COMPACT_TEXTS,
 HASH_TEXTS, WATCH) = range(9)  # fmt: skip
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
    if what == WATCH:
        return watch(t, how)
    if what == COMPACT_TEXTS:
        compact_texts(t)
    elif what == REHASH_TEXTS:
        texts.rehash(t)
    elif what == HASH_TEXTS:
        texts.hash_again(t)
    elif what == REHASH_REQUESTS:
        rehash(t)
    elif what == REHASH_CONNECTIONS:
        rehash_connections(t)
    return OK
