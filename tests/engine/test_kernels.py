"""The compiled kernels, the bulk path and segment-by-segment stepping give the same events, byte for byte."""

from __future__ import annotations

import io
import random
import zlib
from pathlib import Path

import crc32c
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kwsniff.capture.chain import follow
from kwsniff.capture.pcap import record_starts
from kwsniff.config import Config
from kwsniff.engine.bulk import checksum, warm
from kwsniff.engine.bulk.batches import NO_CODEC, sums
from kwsniff.engine.bulk.numbers import NONE
from kwsniff.engine.connection import Connection
from kwsniff.offline import events
from kwsniff.table import EVENTS
from kwsniff.wire.records import CODEC_NAMES, summarize
from tests.damage.mutants import MUTATIONS, Mutation, Packet, packets, write
from tests.samples import CAPTURES, names, sample

SMALL_BLOCKS = 37
"""Packets in a block: few, so that everything is open at some block's end."""


def table(paths: list[str], **choices: object) -> pa.Table:
    config = Config(**choices)  # type: ignore[arg-type]
    return pa.Table.from_batches(list(events(paths, config)), schema=EVENTS)


def parquet(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table.combine_chunks(), sink)
    return sink.getvalue()


@pytest.mark.one_of(4)
@pytest.mark.parametrize(
    "choices", [{}, {"full": True}, {"full": True, "records": True}, {"verify_crc": False}]
)
@pytest.mark.parametrize("name", names())
def test_every_sample_gives_the_same_parquet_with_and_without_kernels(
    name: str, choices: dict[str, bool]
) -> None:
    exact = table(sample(name).paths, kernels="never", **choices)
    assert parquet(table(sample(name).paths, kernels="always", **choices)) == parquet(exact)


@pytest.mark.parametrize("name", names())
def test_small_blocks_give_the_same_rows(name: str) -> None:
    exact = table(sample(name).paths, kernels="never", block_packets=SMALL_BLOCKS)
    assert table(sample(name).paths, kernels="always", block_packets=SMALL_BLOCKS).equals(exact)


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


@pytest.mark.one_of(3)
@pytest.mark.parametrize("mutation", DAMAGE)
@pytest.mark.parametrize("name", ["librdkafka-groups", "kafka-0.10", "java-admin", "mock-produce", "quorum"])
def test_damage_gives_the_same_rows_in_kernels_in_bulk_and_step_by_step(
    name: str, mutation: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link, whole = packets(sample(name).paths[0])
    mutant = str(write(tmp_path / "mutant.pcap", link, DAMAGE[mutation](whole, random.Random(name))))
    kernels, bulk = (table([mutant], kernels=which) for which in ("always", "never"))
    kernels_of_small_blocks = table([mutant], kernels="always", block_packets=SMALL_BLOCKS)
    steps_of_small_blocks = table([mutant], kernels="never", block_packets=SMALL_BLOCKS)
    monkeypatch.setattr(Connection, "_bulk_allowed", lambda connection: False)
    steps = table([mutant], kernels="never")
    assert bulk.equals(steps)
    assert kernels.equals(steps)
    assert kernels_of_small_blocks.equals(steps_of_small_blocks)


def test_columns_that_are_asked_for_are_the_same_as_among_all() -> None:
    paths = sample("mock-produce").paths
    asked = ["time", "connection", "api", "error", "latency_us"]
    for which in ("always", "never"):
        few = table(paths, kernels=which, columns=frozenset(asked))
        assert few.select(asked).equals(table(paths, kernels=which).select(asked))
        assert few["partitions"].null_count == len(few)


@given(st.binary(max_size=300), st.integers(0, 40))
def test_both_ways_to_compute_crc_32c_agree_with_the_package(data: bytes, start: int) -> None:
    start = min(start, len(data))
    buf = np.frombuffer(data + b"\0", np.uint8)
    assert checksum.crc32c(buf, start, len(data)) == crc32c.crc32c(data[start:])
    assert checksum.by_table(buf, start, len(data)) == crc32c.crc32c(data[start:])


def recorded_record_data() -> bytes:
    """Some bytes full of batches: the payload of a recorded capture."""
    return (CAPTURES / "mock-produce.pcapng").read_bytes()


@given(st.data())
def test_batch_headers_are_summed_as_by_the_exact_path_or_left_to_it(data: st.DataObject) -> None:
    whole = recorded_record_data()
    magic = [at for at in range(17, len(whole) - 100) if whole[at : at + 1] == b"\x02" and whole[at - 1] == 0]
    start = data.draw(st.sampled_from(magic)) - 16
    size = int.from_bytes(whole[start + 8 : start + 12], "big") + 12
    end = min(start + data.draw(st.sampled_from([size, size // 2, size + 5, size * 2])), len(whole))
    if not 0 < end - start < 1 << 20:
        return
    buf = np.frombuffer(whole, np.uint8)
    usual, records, codec, base = sums(buf, start, end, True, True)
    if usual:
        found = summarize(whole, start, end)
        assert not found.crc_mismatches
        assert found.malformed is None
        assert records == found.records
        assert (None if codec == NO_CODEC else CODEC_NAMES[codec]) == found.codec
        assert (None if base == NONE else base) == found.base_offset


@pytest.mark.parametrize("order", ["<", ">"])
def test_the_chain_of_records_is_followed_as_in_python(order: str) -> None:
    rng = random.Random(zlib.crc32(order.encode()))
    name = {"<": "little", ">": "big"}[order]
    parts = []
    for _ in range(200):
        size = rng.randrange(200)
        parts.append(bytes(8) + size.to_bytes(4, name) + bytes(4 + size))  # type: ignore[arg-type]
    whole = np.frombuffer(b"".join(parts), np.uint8)
    for end in (len(whole), len(whole) - 1, len(whole) - 150, 15, 16, 0):
        starts, stop = record_starts(whole, 0, end, order, 16)
        room = np.empty(end // 16 + 1, np.int64)
        count, at = follow(whole, 0, end, order == ">", 16, room)
        assert (room[:count].tolist(), at) == (starts, stop)


def test_without_numba_everything_goes_on_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_cache() -> Path:
        raise RuntimeError("cannot cache function: no locator available")

    monkeypatch.setattr(warm, "_mark", no_cache)
    monkeypatch.setattr("kwsniff.offline.WORTH_KERNELS", 0)
    assert warm.kernels() == warm.MISSING
    paths = sample("mock-errors").paths
    assert table(paths).equals(table(paths, kernels="never"))


def test_a_small_input_does_not_wait_for_kernels_to_be_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(warm, "_mark", lambda: tmp_path / "mark")
    monkeypatch.setattr("kwsniff.offline.WORTH_KERNELS", 0)
    assert warm.kernels() == warm.COLD
    table(sample("mock-errors").paths)
    assert warm.kernels() == warm.COLD
    table(sample("mock-errors").paths, kernels="always")
    assert warm.kernels() == warm.READY
