"""Fetch sessions over rows that are taken in parts: what each part comes to, and how that composes.

Theory of operation. Whatever a session was before some calls, they do one of two things to it: they open it
anew, and what it is then stands by itself; or partitions leave it, and others are mentioned, each with an
offset or without one. A partition that is there stays at its place and takes the offset, if there is one; one
that isn't there joins behind the others. That is a `Change`, and a session as it is stands for the change
that makes it out of nothing. So changes compose, in whatever grouping of neighbours, and what is open at a
cut is all changes before it in one. Parts are looked at each by itself, without what lies before them.

Limits on what is kept (`kwsniff.count.sessions`) are no part of it: they hold for what is open at a cut.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from kwsniff.count.mentions import Key, Mentions, mentions
from kwsniff.count.sessioncalls import Calls, Name, Offsets
from kwsniff.count.sessions import MAX_PARTITIONS, MAX_SESSIONS, Sessions

BEYOND = 1 << 62
"""No limit: a part is bounded by itself."""


class Change(NamedTuple):
    """What some calls do to their session."""

    opened: bool
    """It is begun anew, by a full fetch."""
    gone: frozenset[Key]
    """Partitions that leave it; they may join again behind the others."""
    offsets: Offsets
    """Partitions that are mentioned and don't leave after that, in the order in which they would join; None:
    at the offset from before."""

    def then(self, later: Change) -> Change:
        """Both in one, `later` behind this one."""
        if later.opened:
            return later
        offsets = {key: offset for key, offset in self.offsets.items() if key not in later.gone}
        for key, offset in later.offsets.items():
            if offset is not None or key not in offsets:
                offsets[key] = offset
        return Change(self.opened, frozenset() if self.opened else self.gone | later.gone, offsets)


Changes = Mapping[Name, Change]
"""Of sessions, in the order in which they were last used."""


def composed(first: Changes, later: Changes) -> dict[Name, Change]:
    """Both in one."""
    made = {name: change for name, change in first.items() if name not in later}
    for name, change in later.items():
        before = first.get(name)
        made[name] = change if before is None else before.then(change)
    return made


def bounded(
    changes: Changes, *, sessions: int = MAX_SESSIONS, partitions: int = MAX_PARTITIONS
) -> dict[Name, Change]:
    """Without the sessions that were used longest ago, as far as they are more than are kept."""
    left = OrderedDict(changes)
    size = sum(len(change.offsets) for change in changes.values())
    while len(left) > sessions or (size > partitions and len(left) > 1):
        size -= len(left.popitem(last=False)[1].offsets)
    return dict(left)


class Noticed:
    """What rows that follow each other do to the sessions of their calls."""

    def __init__(self) -> None:
        self._sessions = Sessions(sessions=BEYOND, partitions=BEYOND, idle=False)
        self._opened: set[Name] = set()
        self._gone: dict[Name, set[Key]] = {}

    def take(self, batch: pa.RecordBatch) -> None:
        """Take EVENTS, or rows with the columns NEEDED of them, behind those before."""
        calls = Calls.of(batch)
        if not len(calls.row):
            return
        said = mentions(batch, calls.row)
        self._opened.update(calls.names[each] for each in np.unique(calls.whose[calls.epoch == 0]).tolist())
        self._leave(calls, said)
        self._sessions.follow(calls, said)

    def _leave(self, calls: Calls, said: Mentions) -> None:
        gone, width = said.gone, len(said.keys)
        codes = np.unique(calls.whose[said.call[gone]] * width + said.key[gone])
        for code in codes.tolist():
            name = calls.names[code // width]
            if name not in self._opened:
                self._gone.setdefault(name, set()).add(said.keys[code % width])

    def changes(self) -> dict[Name, Change]:
        """All of it."""
        nothing: frozenset[Key] = frozenset()
        return {
            name: Change(True, nothing, offsets)
            if name in self._opened
            else Change(False, frozenset(self._gone.get(name, nothing)), offsets)
            for name, offsets in self._sessions.open().items()
        }
