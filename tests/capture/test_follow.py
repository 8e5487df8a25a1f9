"""Files that grow while they are read: the events are those of the finished files, whatever happens between.

Time does not pass here by itself: each wait of the follower is the next step of a script.
"""

from __future__ import annotations

import gzip
import json
import os
import random
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kwsniff.capture import following, growing
from kwsniff.capture.error import CaptureError, Stop
from kwsniff.capture.stream import open_stream
from kwsniff.config import Config
from kwsniff.engine.analyze import analyze
from kwsniff.net.packets import CaptureTotals
from kwsniff.run.offline import events
from tests.samples import CAPTURES, names, sample

Row = dict[str, Any]
Step = Callable[[], object]


class Script(Stop):
    """Does one step whenever the follower waits, and asks it to stop after the last."""

    def __init__(self, *steps: Step) -> None:
        super().__init__()
        self._steps = iter(steps)

    def wait(self, seconds: float) -> None:
        step = next(self._steps, None)
        if step is None:
            self.set()
        else:
            step()


class Clock:
    """Stands in for the module `time`: its seconds are those that a script lets pass."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.time = time.time

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(following, "time", made)
    return made


@pytest.fixture
def said() -> list[str]:
    return []


def run(said: list[str], paths: list[Path], *steps: Step, **choices: Any) -> list[Row]:
    """Events of following `paths` while the steps are done."""
    config, totals = Config(**choices), CaptureTotals()
    source = following.followed([str(path) for path in paths], config, totals, Script(*steps), said.append)
    return [row for batch in analyze(source, config) for row in batch.to_pylist()]


def plain(*paths: Path) -> list[Row]:
    return [row for batch in events([str(path) for path in paths], Config()) for row in batch.to_pylist()]


def in_any_order(rows: list[Row], *, without: str = "") -> list[str]:
    kept = ({name: value for name, value in row.items() if name != without} for row in rows)
    return sorted(json.dumps(row, default=str) for row in kept)


def content(path: Path) -> bytes:
    """A capture's bytes, decompressed."""
    with open_stream(str(path)) as stream:
        room = bytearray(1 << 22)
        return bytes(room[: stream.fill(memoryview(room))])


def grown(path: Path, data: bytes, sizes: Iterator[int]) -> Iterator[Step]:
    """Steps that write `data` in pieces of these sizes."""
    at = 0
    while at < len(data):
        size = next(sizes)
        yield lambda piece=data[at : at + size]: append(path, piece)
        at += size


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def pieces(seed: int, most: int) -> Iterator[int]:
    chance = random.Random(seed)
    while True:
        yield chance.choice([1, 3, 16, chance.randrange(1, most), chance.randrange(1, most)])


ROTATION = sorted((CAPTURES / "rotation").iterdir())


@pytest.mark.one_of(4)
@pytest.mark.parametrize("name", [name for name in names() if name != "rotation"])
def test_a_file_that_grows_gives_the_events_of_the_finished_one(
    name: str, tmp_path: Path, said: list[str]
) -> None:
    data = content(Path(sample(name).paths[0]))
    path = tmp_path / "trace"
    path.touch()
    rows = run(said, [path], *grown(path, data, pieces(len(name), len(data) // 8)))
    assert in_any_order(rows) == in_any_order(plain(path))
    assert rows
    assert said == []


@pytest.mark.parametrize("name", ["mock-errors", "librdkafka-produce"])
def test_a_file_that_grows_byte_by_byte_gives_the_same_events(
    name: str, tmp_path: Path, said: list[str]
) -> None:
    data = content(Path(sample(name).paths[0]))
    # Until some packets are whole, then all at once.
    path = tmp_path / "trace"
    path.touch()
    steps = [*grown(path, data[:1500], iter(lambda: 1, 0)), lambda: append(path, data[1500:])]
    assert in_any_order(run(said, [path], *steps)) == in_any_order(plain(path))


def test_calls_are_told_as_soon_as_their_packets_are_there(tmp_path: Path, said: list[str]) -> None:
    data = content(Path(sample("mock-produce").paths[0]))
    path = tmp_path / "trace.pcapng"
    path.write_bytes(data[: len(data) // 2])
    seen: list[Row] = []
    counts: list[int] = []
    config = Config()
    script = Script(lambda: counts.append(len(seen)), lambda: append(path, data[len(data) // 2 :]))
    source = following.followed([str(path)], config, CaptureTotals(), script, said.append)
    for batch in analyze(source, config):
        seen += batch.to_pylist()
    expected = [row for row in plain(path) if row["event"] == "call"]
    assert 0.3 * len(expected) < counts[0] < 0.8 * len(expected)


def test_a_rotation_in_a_directory_gives_the_events_of_its_files(tmp_path: Path, said: list[str]) -> None:
    steps: list[Step] = []
    for number, file in enumerate(ROTATION):
        steps += grown(tmp_path / file.name, file.read_bytes(), pieces(number, 9000))
    steps.insert(3, lambda: (tmp_path / "notes.txt").write_text("no capture at all"))
    rows = run(said, [tmp_path], *steps)
    assert in_any_order(rows) == in_any_order(plain(*(tmp_path / file.name for file in ROTATION)))
    assert said == []


def test_files_that_are_there_from_the_start_are_read_in_the_order_of_their_packets(
    tmp_path: Path, said: list[str]
) -> None:
    for name, file in zip("bca", ROTATION, strict=True):
        shutil.copy(file, tmp_path / name)
    rows = run(said, [tmp_path])
    assert rows == plain(tmp_path)


def test_two_files_of_a_rotation_that_come_between_two_looks_are_read_in_order(
    tmp_path: Path, said: list[str]
) -> None:
    def rest() -> None:
        for name, file in zip("zy", ROTATION[1:], strict=True):
            shutil.copy(file, tmp_path / name)

    rows = run(said, [tmp_path], lambda: shutil.copy(ROTATION[0], tmp_path / "m"), rest)
    assert in_any_order(rows) == in_any_order(plain(tmp_path))


def test_a_writer_that_compresses_finished_files_doubles_and_loses_nothing(
    tmp_path: Path, said: list[str], clock: Clock
) -> None:
    """As `tcpdump -G 60 -z gzip`: the file is replaced by a compressed one, while the next one is written."""
    steps: list[Step] = []

    def packed(path: Path) -> None:
        (tmp_path / f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()

    for number, file in enumerate(ROTATION):
        path = tmp_path / file.name
        *most, last = grown(path, file.read_bytes(), pieces(number, 9000))
        steps += most
        # The end of the file is written and the file gone before anybody looks again.
        steps.append(lambda path=path, last=last: (last(), packed(path)))
    steps += [lambda: setattr(clock, "now", clock.now + 10)] * 3
    rows = run(said, [tmp_path], *steps)
    expected = plain(*ROTATION)
    assert in_any_order(rows, without="capture") == in_any_order(expected, without="capture")
    assert said == []


def test_compressed_files_are_read_when_they_are_complete(
    tmp_path: Path, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.pcapng.gz"
    data = gzip.compress(ROTATION[0].read_bytes())
    monkeypatch.setattr(growing, "SETTLED_S", 1e9)

    def complete() -> None:
        append(path, data[5000:])
        monkeypatch.setattr(growing, "SETTLED_S", -1e9)

    rows = run(said, [tmp_path], lambda: append(path, data[:5000]), lambda: None, complete, lambda: None)
    assert in_any_order(rows) == in_any_order(plain(path))
    assert [row for row in rows if row["code"]] == []


def test_a_compressed_copy_beside_a_followed_file_is_not_read(tmp_path: Path, said: list[str]) -> None:
    shutil.copy(ROTATION[0], tmp_path / "a.pcapng")
    (tmp_path / "a.pcapng.gz").write_bytes(gzip.compress(ROTATION[0].read_bytes()))
    rows = run(said, [tmp_path])
    assert in_any_order(rows) == in_any_order(plain(tmp_path / "a.pcapng"))


def test_a_file_written_anew_is_read_from_its_start(tmp_path: Path, said: list[str]) -> None:
    """As `tcpdump -W 1 -C 1`, which uses its files again."""
    first, second = (content(Path(sample(name).paths[0])) for name in ("mock-errors", "kafka-0.10"))
    path = tmp_path / "ring.pcap"
    path.write_bytes(first)
    expected = plain(path)
    rows = run(
        said, [tmp_path], lambda: path.write_bytes(second[:50_000]), lambda: append(path, second[50_000:])
    )
    expected += plain(path)
    assert in_any_order(rows) == in_any_order(expected)


def test_a_file_written_anew_that_is_longer_already_is_known_by_its_first_packet(
    tmp_path: Path, said: list[str]
) -> None:
    first, second = (content(Path(sample(name).paths[0])) for name in ("mock-errors", "kafka-0.10"))
    assert len(first) < len(second)
    path = tmp_path / "ring.pcap"
    path.write_bytes(first)
    expected = plain(path)
    rows = run(said, [tmp_path], lambda: path.write_bytes(second))
    assert in_any_order(rows) == in_any_order(expected + plain(path))


def test_a_file_moved_away_and_made_again_is_read_to_its_end_and_then_the_new_one(
    tmp_path: Path, said: list[str], clock: Clock
) -> None:
    first, second = (content(Path(sample(name).paths[0])) for name in ("mock-errors", "kafka-0.10"))
    path = tmp_path / "trace.pcap"
    path.write_bytes(first[:9000])

    def rotate() -> None:
        append(path, first[9000:])
        path.rename(tmp_path / "old")
        path.write_bytes(second)

    rows = run(said, [path], rotate, lambda: setattr(clock, "now", clock.now + 10), lambda: None)
    expected = plain(tmp_path / "old") + plain(path)
    assert in_any_order(rows, without="capture") == in_any_order(expected, without="capture")


def test_a_file_renamed_within_the_directory_is_not_read_twice(tmp_path: Path, said: list[str]) -> None:
    data = ROTATION[0].read_bytes()
    path, new = tmp_path / "a", tmp_path / "b"
    path.write_bytes(data[:9000])
    rows = run(said, [tmp_path], lambda: path.rename(new), lambda: append(new, data[9000:]))
    expected = plain(new)
    assert in_any_order(rows, without="capture") == in_any_order(expected, without="capture")


def test_more_files_than_may_be_open_at_a_time_are_followed(
    tmp_path: Path, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "MAX_OPEN", 1)
    contents = [file.read_bytes() for file in ROTATION]
    paths = [tmp_path / file.name for file in ROTATION]
    before = len(os.listdir("/proc/self/fd"))
    opened: list[int] = []
    steps: list[Step] = [lambda p=p, d=d: append(p, d[:9000]) for p, d in zip(paths, contents, strict=True)]
    steps += [lambda: None] * 2
    steps += [lambda: opened.append(len(os.listdir("/proc/self/fd")) - before)]
    steps += [lambda p=p, d=d: append(p, d[9000:]) for p, d in zip(paths, contents, strict=True)]
    rows = run(said, [tmp_path], *steps)
    assert opened == [1]
    # Packets of one connection now came in another order than they were captured in.
    count = lambda found: sum(row["client_packets"] or 0 for row in found)  # noqa: E731
    assert count(rows) == count(plain(*paths))


def test_what_a_file_holds_when_asked_to_stop_is_still_told(tmp_path: Path, said: list[str]) -> None:
    path = tmp_path / "trace"
    shutil.copy(ROTATION[0], path)
    assert run(said, [path]) == plain(path)


def test_a_file_that_ends_inside_a_packet_is_cut_short_at_the_end_only(
    tmp_path: Path, said: list[str]
) -> None:
    path = tmp_path / "trace"
    data = ROTATION[0].read_bytes()
    rows = run(
        said,
        [path.parent],
        lambda: append(path, data[:9000]),
        lambda: None,
        lambda: append(path, data[9000:20_001]),
    )
    assert in_any_order(rows) == in_any_order(plain(path))
    assert [row["code"] for row in rows if row["code"]].count("capture_cut_short") == 1


def test_damage_in_a_growing_file_is_told_and_what_follows_is_found(tmp_path: Path, said: list[str]) -> None:
    data = content(Path(sample("kafka-0.10").paths[0]))
    path = tmp_path / "trace"
    path.touch()
    broken = data[:60_000] + b"\xff" * 5000 + data[65_000:]
    rows = run(said, [path], *grown(path, broken, pieces(1, 9000)))
    assert "capture_damaged" in {row["code"] for row in rows}
    calls = [row for row in rows if row["event"] == "call"]
    assert len(calls) > 0.9 * len([row for row in plain(path) if row["event"] == "call"])


# Paths


def test_a_file_with_less_than_a_header_is_waited_for_and_named_at_the_end(
    tmp_path: Path, said: list[str]
) -> None:
    short, empty = tmp_path / "short", tmp_path / "empty"
    short.write_bytes(ROTATION[0].read_bytes()[:20])
    empty.touch()
    assert run(said, [short, empty], lambda: None) == []
    assert said == [f"{short}: ends inside its file header", f"{empty}: is empty"]


def test_a_file_that_is_no_capture_is_an_error_by_name_and_passed_over_in_a_directory(
    tmp_path: Path, said: list[str]
) -> None:
    bad = tmp_path / "bad"
    bad.write_bytes(b"garbage!" * 9)
    with pytest.raises(CaptureError, match=r"bad: is no capture file \(neither pcap nor pcapng\)"):
        run(said, [bad])
    broken = tmp_path / "broken"
    broken.write_bytes(ROTATION[0].read_bytes()[:8] + b"????" + ROTATION[0].read_bytes()[12:])
    with pytest.raises(CaptureError, match="broken: ends inside its section header or has a broken one"):
        run(said, [broken])
    shutil.copy(ROTATION[0], tmp_path / "good")
    assert in_any_order(run(said, [tmp_path])) == in_any_order(plain(tmp_path / "good"))
    assert said == [f"{broken}: ends inside its section header or has a broken one; it is passed over"]


def test_what_cannot_be_followed_is_refused_before_anything_is_read(tmp_path: Path, said: list[str]) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path, says in {
        tmp_path / "missing": "missing: No such file or directory",
        tmp_path / "pipe": "pipe: is neither a file nor a directory",
        Path("-"): "-: standard input cannot be followed",
    }.items():
        with pytest.raises(CaptureError, match=says):
            following.followed([str(path)], Config(), CaptureTotals(), Script(), said.append)


def test_a_directory_that_vanishes_ends_it_with_one_line(
    tmp_path: Path, said: list[str], clock: Clock
) -> None:
    place = tmp_path / "captures"
    place.mkdir()
    data = ROTATION[0].read_bytes()
    (place / "a").write_bytes(data[:9000])

    def vanish() -> None:
        append(place / "a", data[9000:])
        shutil.rmtree(place)

    later = [lambda: setattr(clock, "now", clock.now + 1)] * 5
    rows = run(said, [place], vanish, *later, lambda: pytest.fail("it should have ended"))
    (tmp_path / "a").write_bytes(data)
    expected = plain(tmp_path / "a")
    assert in_any_order(rows, without="capture") == in_any_order(expected, without="capture")
    assert said == [f"{place} is gone and no longer followed"]


def test_a_path_that_is_gone_for_a_moment_is_followed_on(
    tmp_path: Path, said: list[str], clock: Clock
) -> None:
    path = tmp_path / "trace"
    data = ROTATION[0].read_bytes()
    path.write_bytes(data[:9000])
    away = tmp_path / "away"

    def later(seconds: float) -> Step:
        return lambda: setattr(clock, "now", clock.now + seconds)

    steps = [
        lambda: path.rename(away),
        later(1),
        lambda: away.rename(path),
        later(9),
        lambda: append(path, data[9000:]),
    ]
    assert in_any_order(run(said, [path], *steps)) == in_any_order(plain(path))
    assert said == []


# Time


def test_a_quiet_file_still_reports_what_went_unanswered(
    tmp_path: Path, said: list[str], clock: Clock
) -> None:
    path = tmp_path / "trace"
    shutil.copy(sample("librdkafka-groups").paths[0], path)
    config, seen, counts = Config(request_timeout=30.0), [], []

    def pass_time() -> None:
        counts.append(len(seen))
        clock.now += 10

    script = Script(*[pass_time] * 80, lambda: counts.append(len(seen)))
    source = following.followed([str(path)], config, CaptureTotals(), script, said.append)
    for batch in analyze(source, config):
        seen += batch.to_pylist()
    assert len(seen) == counts[-1], "all was told before the end"
    assert len(seen) == len(plain(path))
    assert len(seen) > counts[0]


def test_who_takes_long_to_read_does_not_make_others_late(
    tmp_path: Path, said: list[str], clock: Clock
) -> None:
    path, other = tmp_path / "trace1", tmp_path / "trace2"
    shutil.copy(sample("librdkafka-groups").paths[0], path)
    expected, data = plain(path), content(path)
    path.write_bytes(data[: len(data) // 2])
    other.write_bytes(data[:1000])
    config, seen = Config(request_timeout=30.0), []
    script = Script(lambda: None)
    for batch in following.followed([str(path), str(other)], config, CaptureTotals(), script, said.append):
        seen.append(batch)
        if len(seen) == 2:  # as if the reader of our output slept; the captures go on meanwhile
            clock.now += 1000
            append(path, data[len(data) // 2 :])
    source = (batch for batch in seen if not len(batch) or batch["capture"][0].as_py() == str(path))
    rows = [row for batch in analyze(source, config) for row in batch.to_pylist()]
    assert in_any_order(rows) == in_any_order(expected)


def test_a_large_rest_is_not_read_when_asked_to_stop(
    tmp_path: Path, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "MUCH", 1000)
    path = tmp_path / "trace"
    shutil.copy(sample("librdkafka-groups").paths[0], path)
    stop = Stop()
    stop.set()
    config = Config(block_bytes=50_000)
    source = following.followed([str(path)], config, CaptureTotals(), stop, said.append)
    rows = [row for batch in analyze(source, config) for row in batch.to_pylist()]
    assert 0 < len(rows) < len(plain(path))
    assert len(said) == 1
    assert said[0].startswith("stopped with ")


def test_a_writer_in_another_thread_loses_nothing(tmp_path: Path, said: list[str]) -> None:
    stop = Stop()

    def write() -> None:
        for number, file in enumerate(ROTATION):
            for step in grown(tmp_path / file.name, file.read_bytes(), pieces(number, 9000)):
                step()
                time.sleep(0.01)
        stop.set()

    writer = threading.Thread(target=write)
    writer.start()
    config = Config()
    source = following.followed([str(tmp_path)], config, CaptureTotals(), stop, said.append)
    rows = [row for batch in analyze(source, config) for row in batch.to_pylist()]
    writer.join()
    assert in_any_order(rows) == in_any_order(plain(*(tmp_path / file.name for file in ROTATION)))
