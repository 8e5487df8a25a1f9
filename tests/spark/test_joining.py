"""Segments of a split that are wanted again are the same each time."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import numpy as np
import pytest

from kwsniff.capture.error import CaptureError
from kwsniff.engine.tables import SWEEP
from kwsniff.run.heads import edges_of
from kwsniff.run.part import endpoints_of
from kwsniff.run.plan import Split, cut
from kwsniff.spark import joining
from kwsniff.spark.joining import SplitAgain
from tests.parts.compare import SMALL
from tests.parts.test_payload import summary_of
from tests.samples import sample

NAMES = ["librdkafka-groups", "kafka-0.8", "snaplen-128", "tls"]
Wanted = list[tuple[int, int, bytes]]


def wanted(again: SplitAgain, name: bytes, after: int) -> Wanted:
    """Place, packet and payload of the segments of some endpoints."""
    made: Wanted = []
    for segments, orders in again.again({name}, after):
        data = bytearray()
        edges = edges_of(segments, orders, 0, data)
        assert (endpoints_of(edges) == name).all()
        rows = edges[["order", "packet", "start", "captured"]].tolist()
        made += [(order, packet, bytes(data[at : at + size])) for order, packet, at, size in rows]
    return made


def splits_of(path: str) -> list[Split]:
    return cut(path, [os.path.getsize(path) // 3], SMALL)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_what_was_read_is_kept(
    name: str, packed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = sample(name).paths[0]
    splits = splits_of(path)
    if packed:
        file = tmp_path / "packed.gz"
        file.write_bytes(gzip.compress(Path(path).read_bytes()))
        splits = [splits[0], Split(str(file))]
    heads = summary_of(splits, 1).edges
    heads = heads[heads["stop"] != SWEEP]
    held = SplitAgain(splits, 1, SMALL, heads)
    monkeypatch.setattr(joining, "HELD_BYTES", 0)
    read = SplitAgain(splits, 1, SMALL, heads)
    found: list[Wanted] = []
    for each in np.unique(endpoints_of(heads)).tolist():
        monkeypatch.setattr(joining, "HELD_BYTES", 1 << 20)
        found.append(wanted(held, each, -1))
        monkeypatch.setattr(joining, "HELD_BYTES", 0)
        assert wanted(read, each, -1) == found[-1]
        if len(found[-1]) > 1:
            (first, *_), *rest = found[-1]
            assert wanted(held, each, first) == rest
    assert any(payload for each in found for *_, payload in each)


def test_a_file_that_became_shorter_meanwhile_is_named(tmp_path: Path) -> None:
    path = tmp_path / "copy.pcap"
    path.write_bytes(Path(sample("kafka-0.8").paths[0]).read_bytes())
    splits = splits_of(str(path))
    heads = summary_of(splits, 1).edges
    again = SplitAgain(splits, 1, SMALL, heads)
    name = endpoints_of(heads[heads["captured"] > 0])[0]
    assert wanted(again, name, -1)
    path.write_bytes(b"")
    with pytest.raises(CaptureError, match=r"copy\.pcap: the file is shorter than it was"):
        wanted(again, name, -1)
