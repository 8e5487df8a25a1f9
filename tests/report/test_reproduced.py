"""What columns of EVENTS say of recorded calls, and that asking for fewer of them changes none."""

from __future__ import annotations

import pyarrow as pa

import kwsniff
from kwsniff.config import Config
from kwsniff.run.offline import events
from tests.samples import sample


def test_a_fetch_held_back_by_a_quota_did_not_wait_on_purpose() -> None:
    calls = kwsniff.calls(sample("throttled").paths)
    (held,) = calls[calls["throttled_us"] > 1_000_000].to_dict(orient="records")
    assert (held["api"], held["waited_us"]) == ("Fetch", 0)


def test_events_say_nothing_else_when_only_some_columns_are_asked_for() -> None:
    few = frozenset(("event", "api", "queued_us", "throttled_us", "waited_us", "broker_us"))
    for name in ("kafka-python-kafka", "stuck-consumer"):
        whole = pa.Table.from_batches(list(events(sample(name).paths, Config()))).select(list(few))
        some = pa.Table.from_batches(list(events(sample(name).paths, Config(columns=few)))).select(list(few))
        assert some.equals(whole)
