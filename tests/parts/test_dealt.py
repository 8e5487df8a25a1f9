"""Parts joined in shares of the connections come to the rows of one run, in its order."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from kwsniff.config import Config
from kwsniff.net.segments import SegmentColumns
from kwsniff.run.dealt import Steadiness, dealt, even, together
from kwsniff.run.join import Joiner, limits_of, within
from kwsniff.run.part import ORDER_BITS, Emitted, PartEngine
from kwsniff.run.weave import Joined, woven
from tests.parts.cutting import SEED, input_of, parts, shuffled, whole, without
from tests.parts.decoded import Decoded
from tests.parts.decoded import joined as joined_by_one
from tests.parts.test_parts import cuts_of
from tests.samples import names

CONFIG = Config()
SHARES = 3


def decoded(given: Sequence[Sequence[SegmentColumns]], config: Config) -> Iterator[Decoded]:
    for number, part in enumerate(given):
        order = number << ORDER_BITS
        engine = PartEngine(config, SEED, order, first=number == 0)
        yield Decoded(list(part), order, deque(engine.part(part)), engine.summary())


def merged(each: Sequence[Joined]) -> Joined:
    """What the joiners of all shares told of a part."""
    return Joined(
        [rows for joined in each for rows in joined.rows],
        {number: name for joined in each for number, name in joined.names.items()},
        set().union(*(joined.wrong for joined in each)),
    )


def in_shares(given: Sequence[Sequence[SegmentColumns]], config: Config) -> pa.Table:
    joiners = [Joiner(config, SEED) for _ in range(SHARES)]
    made: list[Emitted] = []
    for part in decoded(given, config):
        dealt_out = list(zip(joiners, dealt(part.summary, SHARES), strict=True))
        if part.order == 0:
            for joiner, share in dealt_out:
                joiner.first(share)
            made += part.rows()
            continue
        told = merged([joiner.join(share, part.again) for joiner, share in dealt_out])
        made += woven(part.rows(), told)
    made += woven([], Joined([rows for joiner in joiners for rows in joiner.finish()]))
    return pa.Table.from_batches([each.batch for each in made])


@pytest.mark.one_of(5)
@pytest.mark.parametrize("name", names())
def test_shares_come_to_the_rows_of_one_run(name: str) -> None:
    batches = input_of(name)
    cuts = cuts_of(name, 3, sum(map(len, batches)))
    assert in_shares(parts(batches, cuts), CONFIG).equals(whole(batches, CONFIG)), cuts


@pytest.mark.one_of(4)
@pytest.mark.parametrize("name", names())
def test_shares_with_packets_lost(name: str) -> None:
    batches = without(input_of(name), 0.1, 3)
    cuts = cuts_of(name, 3, sum(map(len, batches)))
    assert in_shares(parts(batches, cuts), CONFIG).equals(whole(batches, CONFIG)), cuts


@pytest.mark.one_of(4)
@pytest.mark.parametrize("name", names())
def test_shares_put_together_are_the_summary(name: str) -> None:
    batches = shuffled(input_of(name), 11)
    cuts = cuts_of(name, 2, sum(map(len, batches)))
    joiner, made = Joiner(CONFIG, SEED), []
    for part in decoded(parts(batches, cuts), CONFIG):
        part.summary = together(dealt(part.summary, SHARES))
        made += joined_by_one(joiner, part)
    made += joiner.finish()
    assert pa.Table.from_batches([each.batch for each in made]).equals(whole(batches, CONFIG)), cuts


def test_each_connection_is_in_one_share() -> None:
    batches = input_of("librdkafka-groups")
    *_, part = decoded(parts(batches, [sum(map(len, batches)) // 2]), CONFIG)
    shares = dealt(part.summary, SHARES)
    assert sorted(np.concatenate([each.tail.conns["number"] for each in shares]).tolist()) == sorted(
        part.summary.tail.conns["number"].tolist()
    )
    assert sorted(np.concatenate([each.lefts["number"] for each in shares]).tolist()) == sorted(
        part.summary.lefts["number"].tolist()
    )
    assert sum(len(each.tail.conns) > 0 for each in shares) > 1


def test_what_all_shares_hold_is_what_one_joiner_holds() -> None:
    batches = input_of("librdkafka-groups")
    given = parts(batches, cuts_of("librdkafka-groups", 3, sum(map(len, batches))))
    alone, joiners = Joiner(CONFIG, SEED), [Joiner(CONFIG, SEED) for _ in range(SHARES)]
    for part in decoded(given, CONFIG):
        shares = dealt(part.summary, SHARES)
        for joiner, share in [(alone, part.summary), *zip(joiners, shares, strict=True)]:
            if part.order == 0:
                joiner.first(share)
            else:
                joiner.join(share, part.again)
        held = tuple(map(sum, zip(*(joiner.held() for joiner in joiners), strict=True)))
        assert held == alone.held()
        assert within(held, part.summary.most, limits_of(CONFIG))
        assert not within(held, limits_of(CONFIG), limits_of(CONFIG)) or not any(held)


def test_times_that_go_back_are_for_one_joiner() -> None:
    (first, *_), second = input_of("librdkafka-groups"), 1_000_000_000
    rows = replace(first, time=np.sort(first.time))

    def seen(times: np.ndarray) -> Steadiness:
        made = Steadiness()
        assert len(list(made.watch([replace(rows, time=times)]))) == 1
        return made

    back = rows.time.copy()
    back[-1] = back[0] - 2 * second
    ahead = rows.time.copy()
    ahead[-1] += 2 * 86_400 * second
    assert seen(rows.time).steady
    assert not seen(back).steady
    assert not seen(ahead).steady
    assert even([seen(rows.time), seen(rows.time + int(rows.time[-1] - rows.time[0]))])
    assert not even([seen(rows.time + 3600 * second), seen(rows.time)])
    assert even([])
