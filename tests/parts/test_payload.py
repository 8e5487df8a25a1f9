"""The payload of heads stays in the file, where that can be read at any place."""

from __future__ import annotations

import gzip
import os
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from kwsniff.capture import place
from kwsniff.capture.error import CaptureError
from kwsniff.engine.tables import SWEEP
from kwsniff.rows.schema import EVENTS
from kwsniff.run.heads import with_payload
from kwsniff.run.offline import events
from kwsniff.run.part import ORDER_BITS, STORED, PartEngine, PartSummary, SplitReader
from kwsniff.run.plan import Split, cut
from tests.parts.compare import SEED, SMALL, decode, differences
from tests.samples import sample


def summary_of(splits: list[Split], number: int) -> PartSummary:
    engine = PartEngine(SMALL, SEED, number << ORDER_BITS, first=number == 0)
    for _ in engine.part(SplitReader(splits, number, SMALL).columns()):
        pass
    return engine.summary()


def payloads(summary: PartSummary) -> list[bytes]:
    """Of each segment of a head."""
    heads = summary.edges[summary.edges["stop"] != SWEEP]
    return [summary.payload[at : at + size] for at, size in heads[["start", "captured"]].tolist()]


def of_packets(path: str, numbers: list[int]) -> list[bytes]:
    """The payload of these packets of a file, as SEGMENTS have it."""
    found = {}
    for batch in SplitReader([Split(path)], 0, SMALL).segments():
        found.update(zip(batch["packet"].to_pylist(), batch["payload"].to_pylist(), strict=True))
    return [found[number] for number in numbers]


@pytest.mark.parametrize("name", ["librdkafka-groups", "kafka-0.8", "ipv6", "snaplen-128"])
def test_it_is_found_where_the_packets_are(name: str) -> None:
    path = sample(name).paths[0]
    splits = cut(path, [os.path.getsize(path) // 3], SMALL)
    made = summary_of(splits, 1)
    stored = made.edges["buffer"] == STORED
    assert stored.any()
    assert len(made.payload) <= 12 * np.count_nonzero(made.edges["captured"])  # of the shortest segments
    heads = made.edges[made.edges["stop"] != SWEEP]
    assert payloads(with_payload(made)) == of_packets(path, heads["packet"].tolist())


def test_whole_files_are_read_at_a_place_and_compressed_ones_are_not(tmp_path: Path) -> None:
    before, path = sample("rotation").paths[:2]
    packed = tmp_path / "packed.gz"
    packed.write_bytes(gzip.compress(Path(path).read_bytes()))
    for file, stored in ((path, True), (str(packed), False)):
        made = summary_of([Split(before), Split(file)], 1)
        assert bool((made.edges["buffer"] == STORED).any()) == stored
        assert (len(made.payload) == made.edges["captured"].sum()) != stored
        heads = made.edges[made.edges["stop"] != SWEEP]
        assert payloads(with_payload(made)) == of_packets(file, heads["packet"].tolist())


@pytest.mark.skipif(sys.platform == "darwin", reason="its file system takes no such names")
def test_a_file_whose_name_is_no_text_is_joined_all_the_same(tmp_path: Path) -> None:
    path = os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.pcap")
    Path(path).write_bytes(Path(sample("kafka-0.8").paths[0]).read_bytes())
    splits = cut(path, [os.path.getsize(path) // 3], SMALL)
    assert len(splits) == 2
    assert not (summary_of(splits, 1).edges["buffer"] == STORED).any()
    expected = pa.Table.from_batches(list(events([path], SMALL)), EVENTS)
    assert decode(splits, SMALL).events.equals(expected)


def test_a_file_that_became_shorter_is_named(tmp_path: Path) -> None:
    copy = tmp_path / "copy.pcap"
    data = Path(sample("kafka-0.8").paths[0]).read_bytes()
    copy.write_bytes(data)
    made = summary_of(cut(str(copy), [len(data) // 3], SMALL), 1)
    copy.write_bytes(data[: len(data) // 3 + 200])
    with pytest.raises(CaptureError, match=r"copy\.pcap: the file is shorter than it was"):
        with_payload(made)
    copy.unlink()
    with pytest.raises(CaptureError, match=r"copy\.pcap: No such file"):
        with_payload(made)


def test_payload_of_a_file_on_other_storage_is_kept() -> None:
    pytest.importorskip("fsspec")
    from fsspec import filesystem

    path, url = sample("kafka-0.8").paths[0], "memory://kwsniff-payload/some.pcap"
    data = Path(path).read_bytes()
    memory = filesystem("memory")
    memory.pipe("/kwsniff-payload/some.pcap", data)
    try:
        made = summary_of(cut(url, [len(data) // 3], SMALL), 1)
    finally:
        memory.rm("/kwsniff-payload", recursive=True)
    local = with_payload(summary_of(cut(path, [len(data) // 3], SMALL), 1))
    assert not (made.edges["buffer"] == STORED).any()
    assert payloads(made) == payloads(local)


def test_stretches_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = bytes(range(256)) * 40
    path, found = tmp_path / "some.bin", bytearray(504)
    path.write_bytes(data)
    views = [memoryview(found)[:3], memoryview(found)[3:503], memoryview(found)[503:]]
    assert place.scattered(str(path), [0, 9_000, 10_239], views)
    assert found == data[:3] + data[9_000:9_500] + data[10_239:]
    assert not place.scattered(str(path), [0, 9_741, 0], views)
    few = os.preadv
    monkeypatch.setattr(os, "preadv", lambda file, into, at: few(file, [into[0][:7]], at))
    assert place.scattered(str(path), [1, 300, 2], views), "a file system may give less at a time"
    assert found == data[1:4] + data[300:800] + data[2:3]


def test_a_cut_in_a_small_file_behind_others(tmp_path: Path) -> None:
    paths = sample("rotation").paths
    splits = [Split(paths[0], more=tuple(paths[1:2])), *map(Split, paths[2:])]
    differences(paths, splits)
