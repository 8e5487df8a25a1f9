"""The time between `--since` and `--until`, or around `--around`."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kwsniff.count.where import WhereError, zone
from kwsniff.count.where.predicate import NO_TIME, clock_of, compile_where, moment_of
from kwsniff.rows.events import CONNECTION


def minute_around(text: str) -> tuple[str, str]:
    """From when to when the minute around a time is, as `--since` and `--until` take it: it ends at midnight
    if the time is one of day. Raises WhereError."""
    clock, half = clock_of(text.strip()), timedelta(seconds=30)
    if clock is None:
        try:
            moment = datetime.fromisoformat(text.strip())
        except ValueError:
            raise WhereError(f"--around: {text!r} is {NO_TIME}") from None
        return (moment - half).isoformat(), (moment + half).isoformat()
    day = datetime.combine(datetime.min.date(), clock) + timedelta(days=1)
    since, until = day - half, day + half
    first = since.time() if since.date() == day.date() else time.min
    last = until.time() if until.date() == day.date() else time.max
    return first.isoformat(), last.isoformat()


class Window:
    """The time between `--since` and `--until`, of which at least one was given and has been checked."""

    def __init__(self, since: str | None, until: str | None, tz: str) -> None:
        self._zone = zone(tz)
        self._predicate = compile_where(None, since=since, until=until, tz=tz)
        self._bounds = [
            None if text is None else clock_of(text.strip()) or _micros(moment_of(text.strip(), tz))
            for text in (since, until)
        ]

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
