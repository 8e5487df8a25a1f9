"""The time between `--since` and `--until`."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kwsniff.events import CONNECTION
from kwsniff.where.moment import clock_of
from kwsniff.where.predicate import compile_where
from kwsniff.where.zones import zone


class Window:
    """The time between `--since` and `--until`, of which at least one was given and has been checked."""

    def __init__(self, since: str | None, until: str | None, tz: str) -> None:
        self._zone = zone(tz)
        self._predicate = compile_where(None, since=since, until=until, tz=tz)
        self._bounds = [None if text is None else self._bound(text.strip()) for text in (since, until)]

    def _bound(self, text: str) -> time | int:
        clock = clock_of(text)
        if clock is not None:
            return clock
        moment = datetime.fromisoformat(text)
        return _micros(moment if moment.tzinfo else moment.replace(tzinfo=self._zone))

    def parts(self, first: int, last: int) -> list[tuple[int, int]]:
        """The parts of a span of time within it: one, or one a day if it is between times of day.
        Microseconds since 1970."""
        since, until = self._bounds
        first = max(first, since) if isinstance(since, int) else first
        last = min(last, until) if isinstance(until, int) else last
        if last < first or not any(isinstance(bound, time) for bound in self._bounds):
            return [(first, last)] if first <= last else []
        day, end = (datetime.fromtimestamp(each // 1_000_000, self._zone).date() for each in (first, last))
        found = []
        while day <= end:
            after = day + timedelta(days=1)
            begin = self._at(day, since if isinstance(since, time) else time())
            over = self._at(day, until) if isinstance(until, time) else self._at(after, time())
            if max(begin, first) <= min(over, last):
                found.append((max(begin, first), min(over, last)))
            day = after
        return found

    def _at(self, day: date, clock: time) -> int:
        return _micros(datetime.combine(day, clock, self._zone))

    def seen(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The calls and anomalies in it, and the connections that were there in it, also if they began
        before or ended after it."""
        chosen = self._predicate(batch).to_numpy(zero_copy_only=False).copy()
        ends = np.flatnonzero(pc.equal(batch["event"], CONNECTION).to_numpy(zero_copy_only=False))
        first, last = (batch[name].cast(pa.int64()) for name in ("first_time", "last_time"))
        for row in ends.tolist():
            chosen[row] = first[row].is_valid and bool(self.parts(first[row].as_py(), last[row].as_py()))
        return batch.filter(pa.array(chosen))


def _micros(moment: datetime) -> int:
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
