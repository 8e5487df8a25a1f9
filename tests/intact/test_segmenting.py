"""However TCP cuts a conversation into segments, the same calls are told, and nothing else."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.intact.checking import check, expected, plainly, readings, requests_and_responses, written
from tests.intact.comparison import compare
from tests.intact.conversations import conversations
from tests.intact.segmenting import STYLES, case

SEEDS = 14
FLIGHTS = 3
"""Seeds of a style by default, fewer for long conversations. `python -m tests.intact --segmentations` makes
any number."""
KEPT = {
    "plain": (39, 32), "sizes": (50, 39, 36), "again": (22, 55, 37), "copies": (43, 25, 40),
    "some copies": (49, 40, 51), "lost": (40, 55, 18), "shuffled": (41, 16, 47), "probes": (52, 47, 43),
    "keep-alives": (40, 29, 16), "garbage": (37,), "late": (17, 47, 22), "many behind": (48, 24),
    "forged rst": (39, 19, 38), "forged syn": (29, 47, 23), "old bytes": (53, 27, 34), "openings": (27, 52),
    "closings": (38, 16, 55), "reused": (30, 26, 51), "wraps": (36, 23, 22),
    "queues": (44, 38, 42, 236, 20_030, 20_135, 20_260),
    "urgent": (37, 53, 46), "silence": (39, 25, 42), "other port": (38, 32, 36),
    "everything": (35, 44, 27, 95, 20_074, 20_260, 20_303, 40_255, 40_334),
}  # fmt: skip
"""Seeds that were told wrong once. They mean something else when conversations or styles change."""


def wrong(cases: list[tuple[str, int]]) -> list[str]:
    """What is told wrong, case by case."""
    return [str(verdict) for verdict in check([case(*one) for one in cases]) if verdict.wrong]


@pytest.mark.parametrize("style", STYLES)
def test_the_calls_are_those_of_the_streams_however_they_are_cut(style: str) -> None:
    seeds = range(FLIGHTS if "flight" in style else SEEDS)
    assert not (found := wrong([(style, seed) for seed in seeds])), "\n".join(found)


@pytest.mark.parametrize("style", KEPT)
def test_what_was_told_wrong_once_is_told_right(style: str) -> None:
    assert not (found := wrong([(style, seed) for seed in KEPT[style]])), "\n".join(found)


@pytest.mark.parametrize("style", STYLES)
def test_the_independent_reading_has_the_calls_of_the_streams_too(style: str) -> None:
    """So if something is told wrong, the segments are not to blame: their connections are whole."""
    for seed in range(FLIGHTS if "flight" in style else SEEDS):
        made = case(style, seed)
        found = readings(made)
        assert [one.why_not for one in found] == [""] * len(made.conversations), (style, seed)
        plain = (each for name in made.conversations for each in readings(plainly(conversations()[name])))
        assert requests_and_responses(found) == requests_and_responses(plain), (style, seed)


@pytest.mark.parametrize("name", conversations())
def test_frames_that_are_a_segment_each_are_told_as_they_are_read(name: str) -> None:
    """This is what segmentations are compared with."""
    told: Counter[tuple[int | None, ...]] = Counter()
    for (key, version, ident, status, size, answer, *_), count in expected()[name].calls.items():
        told[key, version, ident, size, None if status == "no_reply_expected" else answer] += count
    assert told == requests_and_responses(readings(plainly(conversations()[name])))


@pytest.mark.parametrize("style", ["plain", "copies", "lost", "shuffled", "wraps", "closings"])
@pytest.mark.parametrize("seed", [100, 101])
def test_a_capture_file_of_it_tells_the_same(style: str, seed: int, tmp_path: Path) -> None:
    """Through headers and checksums, and with packets that came twice recognised by their identification."""
    path = tmp_path / "made.pcap"
    made = case(style, seed)
    written(path, made)
    found = compare(str(path), (made.port,))
    assert (found.whole, found.connections) == (len(made.conversations),) * 2
    assert found.calls == sum(expected()[name].calls.total() for name in made.conversations)
    assert found.right, (found.untold, found.invented, found.anomalies)
