"""Times in expressions and options: ISO 8601, or a time of day."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, time, timedelta
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from kwsniff.count.where import WhereError, wrong, zone
from kwsniff.count.where.term import CLOCK, TEXT, TIME, ZONE, Term, Values, tested
from kwsniff.rows.schema import TIMESTAMP

CLOCK_TYPE = pa.time64("us")
NO_TIME = "no ISO 8601 time such as 2026-01-31T12:00:00.5Z, and no time of day such as 12:03:05"


def as_times(left: Term, right: Term) -> tuple[Term, Term]:
    """Two terms as what can be compared: beside a time, text becomes a moment or a time of day."""
    if left.kind == TIME and right.kind in (TEXT, CLOCK) and right.constant:
        return _against(left, right)
    if right.kind == TIME and left.kind in (TEXT, CLOCK) and left.constant:
        second, first = _against(right, left)
        return first, second
    return left, right


def _against(column: Term, constant: Term) -> tuple[Term, Term]:
    clock = clock_of(str(constant.value))
    if clock is None:
        return column, _moment(constant)
    scalar = pa.scalar(clock, CLOCK_TYPE)
    value = Term(CLOCK, lambda batch: scalar, constant.at, constant=True, value=constant.value)
    return Term(CLOCK, _time_of_day(column, ZONE.get()), column.at, name=column.name), value


def clock_of(text: str) -> time | None:
    if ":" not in text[:3]:
        return None
    hours, _, rest = text.partition(":")
    try:
        return time.fromisoformat(f"{int(hours):02}:{rest}")
    except ValueError:
        return None


def _time_of_day(column: Term, name: str) -> Callable[[pa.RecordBatch], Values]:
    zoned = pa.timestamp("us", tz=name)

    def evaluate(batch: pa.RecordBatch) -> Values:
        return pc.local_timestamp(column.evaluate(batch).cast(zoned)).cast(CLOCK_TYPE)

    return evaluate


def _moment(term: Term) -> Term:
    try:
        moment = datetime.fromisoformat(str(term.value))
    except ValueError:
        raise wrong(term.at, f"{term.value!r} is {NO_TIME}") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=zone(ZONE.get()))
    scalar = pa.scalar(moment, TIMESTAMP)
    return Term(TIME, lambda batch: scalar, term.at, constant=True, value=term.value)


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


def bounded(column: Term, since: str | None, until: str | None) -> list[Term]:
    """The tests that `--since` and `--until` ask for. Raises WhereError."""
    tests = []
    for text, option, kernel in ((since, "--since", pc.greater_equal), (until, "--until", pc.less)):
        if text is None:
            continue
        try:
            written = Term(TEXT, lambda batch: None, 1, constant=True, value=text.strip())
            left, right = as_times(column, written)
        except WhereError as error:
            raise WhereError(f"{option}: {str(error).partition(': ')[2]}") from None
        scalar = right.evaluate(pa.record_batch([]))
        tests.append(tested(left, partial(_applied, kernel, scalar)))
    return tests


def _applied(kernel: Callable[[Values, Values], Values], scalar: pa.Scalar, values: Values) -> Values:
    return kernel(values, scalar)
