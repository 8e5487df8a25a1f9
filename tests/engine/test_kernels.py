"""Compiled or interpreted, whole or in small blocks, with all columns or a few: the same events."""

from __future__ import annotations

import random
from functools import cache
from pathlib import Path

import pyarrow as pa
import pytest

from kwsniff.config import Config
from kwsniff.rows.schema import EVENTS
from kwsniff.run.offline import events
from tests.damage.mutants import MUTATIONS, Mutation, Packet, packets, write
from tests.parts import cutting
from tests.samples import names, sample

SMALL_BLOCKS = 37
"""Packets in a block: few, so that everything is open at some block's end."""


def table(paths: list[str], **choices: object) -> pa.Table:
    config = Config(**choices)  # type: ignore[arg-type]
    return pa.Table.from_batches(list(events(paths, config)), schema=EVENTS).combine_chunks()


@pytest.mark.one_of(6)
@pytest.mark.parametrize("choices", [{}, {"full": True, "records": True}, {"verify_crc": False}])
@pytest.mark.parametrize("name", names())
def test_small_blocks_give_the_same_rows(name: str, choices: dict[str, bool]) -> None:
    whole = table(sample(name).paths, **choices)
    assert table(sample(name).paths, block_packets=SMALL_BLOCKS, **choices).equals(whole)


def wrong_payload(share: float) -> Mutation:
    """A wrong byte behind the headers of some packets: lengths, keys, correlation ids, bodies."""

    def mutate(whole: list[Packet], chance: random.Random) -> list[Packet]:
        wrong = []
        for packet in whole:
            data = bytearray(packet.data)
            if len(data) > 60 and chance.random() < share:
                data[chance.randrange(54, len(data))] = chance.randrange(256)
            wrong.append(Packet(packet.time_ns, bytes(data), packet.size))
        return wrong

    return mutate


DAMAGE = {**MUTATIONS, "a wrong byte in 10 % of packets": wrong_payload(0.1)}


@pytest.mark.one_of(14)
@pytest.mark.parametrize("mutation", DAMAGE)
@pytest.mark.parametrize("name", ["librdkafka-groups", "kafka-0.10", "java-admin", "mock-produce", "quorum"])
def test_damage_gives_the_same_rows_compiled_interpreted_and_in_small_blocks(
    name: str, mutation: str, tmp_path: Path
) -> None:
    link, whole = packets(sample(name).paths[0])
    mutant = str(write(tmp_path / "mutant.pcap", link, DAMAGE[mutation](whole, random.Random(name))))
    compiled = table([mutant])
    assert table([mutant], block_packets=SMALL_BLOCKS).equals(compiled)
    assert table([mutant], kernels="never").equals(compiled)


@pytest.mark.one_of(2)
@pytest.mark.parametrize("column", EVENTS.names)
def test_a_column_that_is_asked_for_alone_is_the_same_as_among_all(column: str) -> None:
    """Some are made from others, which nobody asked for then."""
    paths = sample("mock-produce").paths + sample("java-groups").paths
    choices = {"full": column in ("request", "response")}
    few = table(paths, columns=frozenset([column]), **choices)
    assert few[column].equals(all_columns(choices["full"])[column])


@cache
def all_columns(full: bool) -> pa.Table:
    return table(sample("mock-produce").paths + sample("java-groups").paths, full=full)


def test_what_was_not_asked_for_is_not_made() -> None:
    few = table(sample("mock-produce").paths, columns=frozenset(["api", "latency_us"]))
    assert few["partitions"].null_count == len(few)
    assert few["client_id"].null_count == len(few) - len(
        [e for e in few["event"].to_pylist() if e == "connection"]
    )


def test_what_anomalies_are_about_is_put_into_words_where_that_is_asked_for() -> None:
    batches = cutting.without(cutting.input_of("java-groups"), 0.2, seed=1)
    every = cutting.whole(batches, Config())
    assert len(set(every["detail"].drop_null().to_pylist())) > 10
    assert cutting.whole(batches, Config(columns=frozenset(["detail"])))["detail"].equals(every["detail"])
    few = cutting.whole(batches, Config(columns=frozenset(["api"])))
    assert few["code"].equals(every["code"])
    assert few["packet"].equals(every["packet"])
    assert few["detail"].null_count == len(few)
