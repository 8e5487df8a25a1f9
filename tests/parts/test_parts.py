"""Wherever an input is cut, its parts come to the very rows of one run, in its order."""

from __future__ import annotations

import zlib
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kwsniff.config import Config
from kwsniff.net.segments import segment_columns
from tests.parts.cutting import in_parts, input_of, parts, shuffled, stretch, whole, without
from tests.playbook import BODIES, batch, handshake, kafka_request, play, request, response, stamped
from tests.samples import names
from tests.strength import ALL, examples

CONFIG = Config()
FEW = ["librdkafka-groups", "kafka-0.10-clients", "sasl", "tls", "snaplen-128", "rotation"]
SMALL = ["throttled", "sasl-0.10", "wrong-listener"]


def cuts_of(name: str, count: int, size: int) -> list[int]:
    random = np.random.default_rng(zlib.crc32(name.encode()) + count)
    return random.integers(1, max(size, 2), count).tolist()


@pytest.mark.one_of(4)
@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("name", names())
def test_every_sample_cut_somewhere(name: str, count: int) -> None:
    batches = input_of(name)
    cuts = cuts_of(name, count, sum(map(len, batches)))
    assert in_parts(parts(batches, cuts), CONFIG).events.equals(whole(batches, CONFIG)), cuts


@given(name=st.sampled_from(names()), data=st.data(), full=st.booleans())
@settings(max_examples=examples(40), deadline=None)
def test_any_cuts(name: str, data: st.DataObject, full: bool) -> None:
    batches, config = input_of(name), Config(full=full)
    cuts = data.draw(st.lists(st.integers(1, sum(map(len, batches)) - 1), min_size=1, max_size=6))
    assert in_parts(parts(batches, cuts), config).events.equals(whole(batches, config))


@pytest.mark.parametrize("name", SMALL)
def test_cut_before_every_segment(name: str) -> None:
    batches = list(input_of(name))
    size = sum(map(len, batches))
    expected = whole(batches, CONFIG)
    for place in range(1, size, max(size // (40 if ALL else 15), 1)):
        assert in_parts(parts(batches, [place]), CONFIG).events.equals(expected), place


@pytest.mark.one_of(2)
@pytest.mark.parametrize("name", FEW)
def test_neighbours_may_be_taken_together(name: str) -> None:
    batches = input_of(name)
    cuts = sorted(cuts_of(name, 6, sum(map(len, batches))))
    expected = in_parts(parts(batches, cuts), CONFIG).events
    for kept in (cuts[::2], cuts[1::2], cuts[:3], cuts[3:], []):
        assert in_parts(parts(batches, kept), CONFIG).events.equals(expected), kept


@pytest.mark.parametrize("share", [0.02, 0.2])
@pytest.mark.parametrize("name", names())
@pytest.mark.one_of(6)
def test_with_packets_lost(name: str, share: float) -> None:
    batches = without(input_of(name), share, 7)
    cuts = cuts_of(name, 2, sum(map(len, batches)))
    assert in_parts(parts(batches, cuts), CONFIG).events.equals(whole(batches, CONFIG)), cuts


@pytest.mark.parametrize("name", names())
@pytest.mark.one_of(3)
def test_with_packets_out_of_order_and_twice(name: str) -> None:
    batches = shuffled(input_of(name), 11)
    cuts = cuts_of(name, 2, sum(map(len, batches)))
    assert in_parts(parts(batches, cuts), CONFIG).events.equals(whole(batches, CONFIG)), cuts


def test_a_segment_of_an_earlier_connection_is_dropped_wherever_is_cut() -> None:
    """Its timestamp is from before the SYN, which only the first part has."""
    script = play() >> handshake()
    for corr in range(1, 9):
        script >> request(corr=corr) >> response(corr=corr)
    segments = stamped(script.segments)
    late = replace(segments[-2], data=kafka_request(3, 0, 77, BODIES[3, 0][0]), tsval=7)
    batches = [segment_columns(batch([*segments[:-2], late, *segments[-2:]]))]
    expected = whole(batches, CONFIG)
    assert expected.column("correlation_id").drop_null().to_pylist() == list(range(1, 9))
    for place in range(1, len(segments)):
        assert in_parts(parts(batches, [place]), CONFIG).events.equals(expected), place


def test_a_handshake_that_a_part_ends_after_its_connection_is_known() -> None:
    """The ACK was captured before its SYN, and the SYN-ACK behind the first request."""
    batches = shuffled(input_of("kafka-python-tansu"), 5)
    outcome = in_parts(parts(batches, [20, 366, 587]), CONFIG)
    assert outcome.events.equals(whole(batches, CONFIG))
    assert outcome.again == 1


@pytest.mark.one_of(3)
@pytest.mark.parametrize("name", SMALL)
def test_interpreted(name: str) -> None:
    batches = input_of(name)
    cuts = cuts_of(name, 2, sum(map(len, batches)))
    assert in_parts(parts(batches, cuts), CONFIG, False).events.equals(whole(batches, CONFIG, False))


@pytest.mark.parametrize("name", ["librdkafka-produce", "kafkajs-kafka", "connection-churn"])
def test_limits_over_all_connections_hold_whatever_is_cut(name: str) -> None:
    config = Config(max_outstanding_total=3, max_connections=4)
    batches = input_of(name)
    outcome = in_parts(parts(batches, cuts_of(name, 3, sum(map(len, batches)))), config)
    assert outcome.alone
    assert outcome.events.equals(whole(batches, config))


LOSSY = ["librdkafka-errors", "quorum", "sasl", "stuck-consumer", "java-groups", "rebalance-timeout"]


@pytest.mark.parametrize("limit", [{"max_buffered_bytes": 8_000}, {"max_buffered_bytes": 3_000}])
@pytest.mark.parametrize("name", LOSSY)
@pytest.mark.one_of(3)
def test_buffer_limits_with_packets_lost_are_those_of_one_run(name: str, limit: dict[str, int]) -> None:
    """Also where a part before the cut reached the limit, and could not give up enough."""
    config = Config(**limit)  # type: ignore[arg-type]
    batches = without(input_of(name), 0.2, 7)
    expected = whole(batches, config)
    outcome = in_parts(parts(batches, cuts_of(name, 3, sum(map(len, batches)))), config)
    assert outcome.alone
    assert outcome.events.equals(expected)


def test_what_is_given_up_of_several_connections_is_told_in_one_order_wherever_batches_end() -> None:
    config = Config(max_outstanding_total=5)
    batches = without(input_of("stale-leader"), 0.2, 7)
    expected = whole(batches, config)
    assert "outstanding_limit" in expected["code"].to_pylist()
    for size in (20, 100, 170):
        stretches = [
            stretch(each, at, min(at + size, len(each)))
            for each in batches
            for at in range(0, len(each), size)
        ]
        assert whole(stretches, config).equals(expected), size


def test_little_is_decoded_again_where_nothing_was_lost() -> None:
    again = parts_joined = 0
    for name in names() if ALL else names()[::3]:
        batches = input_of(name)
        cut = parts(batches, cuts_of(name, 3, sum(map(len, batches))))
        outcome = in_parts(cut, CONFIG)
        again, parts_joined = again + outcome.again, parts_joined + len(cut) - 1
        assert not outcome.alone
    assert again <= parts_joined // 20
