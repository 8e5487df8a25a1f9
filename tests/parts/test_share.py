"""Engines that share the connections of an input: together they tell what one run does, in its order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from kwsniff.config import Config
from kwsniff.engine.engine import share_of
from kwsniff.net.segments import SegmentColumns
from kwsniff.run.join import Joiner
from kwsniff.run.share import ShareEngine
from kwsniff.run.weave import in_order
from tests.parts.cutting import SEED, input_of, whole
from tests.samples import names

SECOND = 1_000_000_000


def shared(batches: Sequence[SegmentColumns], config: Config, count: int) -> pa.Table:
    """What `count` engines make of an input, in order."""
    engines = [ShareEngine(config, SEED, index) for index in range(count)]
    made = []
    for batch in batches:
        batch = replace(batch, share=share_of(batch, count))
        if together := in_order([emitted for engine in engines for emitted in engine.part([batch])]):
            made.append(together.batch)
    joiner = Joiner(config, SEED)
    for engine in engines:
        joiner.first(engine.summary())
    return pa.Table.from_batches([*made, *(emitted.batch for emitted in joiner.finish())])


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("name", names())
@pytest.mark.one_of(4)
def test_rows_of_shares_are_those_of_one_run(name: str, full: bool) -> None:
    config = Config(full=full)
    assert shared(input_of(name), config, 3).equals(whole(input_of(name), config))


def changed(flags: int, share: float, seed: int = 0) -> list[SegmentColumns]:
    """A sample that takes forty times as long, some of its FINs being other flags."""
    batches = input_of("librdkafka-groups")
    random, since = np.random.default_rng(seed), batches[0].time[0]
    made = []
    for batch in batches:
        chosen = (batch.flags & 1 != 0) & (random.random(len(batch)) < share)
        times = since + (batch.time - since) * 40
        made.append(replace(batch, flags=np.where(chosen, batch.flags | flags, batch.flags), time=times))
    return made


@pytest.mark.parametrize("seed", range(4))
def test_connections_that_are_reset_end_whoever_ended_before_them(seed: int) -> None:
    """One that was reset is closed a while after its last segment, and may stand behind another that ended
    in between, with a later time: it is due all the same."""
    batches = changed(4, 0.5, seed)
    assert shared(batches, Config(), 3).equals(whole(batches, Config()))


@pytest.mark.parametrize("by", [-2 * SECOND, 25 * 3600 * SECOND])
def test_time_that_goes_astray_is_for_one_engine(by: int) -> None:
    engine = ShareEngine(Config(), SEED, 0)
    steady = []
    for number, batch in enumerate(input_of("librdkafka-groups")[:3]):
        time = batch.time.copy()
        time[100] += by if number == 1 else 0
        list(engine.part([replace(batch, time=time, share=np.zeros(len(batch), np.int64))]))
        steady.append(not engine.astray)
    assert steady == [True, False, False]
