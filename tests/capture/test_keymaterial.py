"""Secrets of TLS connections, wherever they stand in a capture: in front of the packets that they are for."""

from __future__ import annotations

import gzip
import os
import random
import shutil
import subprocess
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest

from kwsniff.capture import keymaterial
from kwsniff.capture.error import Stop
from kwsniff.capture.following import followed
from kwsniff.capture.keymaterial import AddedLines, found_ahead, secret_lines
from kwsniff.capture.memory import segments_of_bytes
from kwsniff.capture.source import resolve, segments
from kwsniff.config import Config
from kwsniff.engine.analyze import Engine, analyze
from kwsniff.net.packets import CaptureTotals
from kwsniff.net.segments import secrets_told, segment_columns, tells_time, with_secrets
from kwsniff.run.processes import Pipe, Processes
from kwsniff.run.stages import _arriving, _read
from tests.capture.files import (
    brief,
    expected,
    frame,
    frames,
    ng_block,
    ng_enhanced,
    ng_interface,
    ng_secrets,
    ng_section,
    notes,
    pcapng,
    read,
)
from tests.samples import CAPTURES, sample

PACKETS = frames(40)
Write = Callable[..., str]


def line(number: int, label: str = "CLIENT_RANDOM") -> bytes:
    return f"{label} {number:064x} {number * 3:096x}\n".encode()


ONE, TWO = line(1), line(2)


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(data: bytes, name: str = "test.pcapng") -> str:
        path = tmp_path / name
        path.write_bytes(data)
        return str(path)

    return write


def course(batches: object) -> list[bytes | int]:
    """The secrets as they come, and between them how many packets."""
    found: list[bytes | int] = []
    for batch in batches:  # type: ignore[attr-defined]
        told = secrets_told(batch)
        if told is not None:
            found.append(told)
        elif len(batch) and found and isinstance(found[-1], int):
            found[-1] += len(batch)
        elif len(batch):
            found.append(len(batch))
    return found


def course_of(*paths: str, **limits: int) -> list[bytes | int]:
    return course(segments(paths, Config(**limits)))


def packets(some: list[tuple[int, bytes]], order: str = "<") -> bytes:
    return b"".join(ng_enhanced(each, order) for each in some)


@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize("block_bytes", [1, 300, 1 << 20])
def test_secrets_come_before_the_packets_wherever_they_stand_in_a_file(
    order: str, block_bytes: int, write: Write
) -> None:
    data = pcapng(PACKETS[:20], order) + ng_secrets(ONE, order) + packets(PACKETS[20:], order)
    path = write(data + ng_secrets(TWO, order))
    assert course_of(path, block_bytes=block_bytes) == [ONE + TWO, 40]
    assert brief(read(path, block_bytes=block_bytes)) == expected(PACKETS)
    assert notes(read(path)) == []


@pytest.mark.parametrize("order", "<>")
def test_where_a_file_cannot_be_searched_they_come_where_they_stand(order: str, write: Write) -> None:
    data = ng_section(order) + ng_interface(order) + ng_secrets(ONE, order) + packets(PACKETS[:20], order)
    data += ng_secrets(TWO, order) + packets(PACKETS[20:], order) + ng_secrets(ONE, order)
    packed = write(gzip.compress(data), "test.pcapng.gz")
    there = [ONE, 20, TWO, 20, ONE]
    assert course_of(packed, block_bytes=1) == there
    assert course(segments_of_bytes(data, Config(block_bytes=1))) == there
    # Those of one block come before its packets.
    assert course_of(packed) == [ONE + TWO + ONE, 40]


def test_through_a_pipe_they_come_where_they_stand(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    data = pcapng(PACKETS) + ng_secrets(ONE)
    writer = threading.Thread(target=path.write_bytes, args=(data,))
    writer.start()
    found = course_of(str(path), block_bytes=1)
    writer.join()
    assert [each for each in found if isinstance(each, bytes)] == [ONE]
    assert sum(each for each in found if isinstance(each, int)) == 40


def test_of_a_growing_file_they_come_as_they_are_written(tmp_path: Path) -> None:
    path = tmp_path / "grows.pcapng"
    path.write_bytes(pcapng(PACKETS[:20]))

    class Script(Stop):
        def wait(self, seconds: float) -> None:
            with path.open("ab") as file:
                file.write(ng_secrets(ONE) + packets(PACKETS[20:]))
            self.set()

    found = followed([str(path)], Config(), CaptureTotals(), Script(), lambda said: None)
    assert course(found) == [20, ONE, 20]


def test_those_of_an_earlier_file_come_before_the_packets_of_a_later_one(write: Write) -> None:
    first = write(ng_section() + ng_interface() + ng_secrets(ONE) + packets(PACKETS[:20]), "a.pcapng")
    later = write(pcapng(PACKETS[20:]), "b.pcapng")
    assert course_of(later, first) == [ONE, 40]
    assert [file.secrets for file in resolve([later, first])] == [True, False]


def test_secrets_of_other_kinds_are_stepped_over(write: Write) -> None:
    ssh, wireguard = ng_secrets(b"abc", kind=0x5353484B), ng_secrets(b"def", kind=0x57474B4C)
    path = write(pcapng(PACKETS[:20]) + ssh + ng_secrets(ONE) + wireguard + packets(PACKETS[20:]))
    assert course_of(path) == [ONE, 40]
    assert notes(read(path)) == []


def test_a_key_log_without_a_newline_at_its_end_stays_apart_from_the_next(write: Write) -> None:
    path = write(pcapng(PACKETS) + ng_secrets(ONE.rstrip()) + ng_secrets(b"") + ng_secrets(TWO))
    assert course_of(path) == [ONE + TWO, 40]


@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize(
    "damaged",
    [
        lambda order: ng_secrets(ONE, order, length=len(ONE) + 10),
        lambda order: ng_block(10, b"abcd", order),
        lambda order: ng_secrets(ONE, order)[:-4] + b"\xff" * 4,
    ],
    ids=["longer than its block", "no room for lengths", "another length at its end"],
)
def test_a_damaged_block_costs_nothing_but_itself(
    order: str, damaged: Callable[[str], bytes], write: Write
) -> None:
    data = pcapng(PACKETS[:20], order) + damaged(order) + ng_secrets(TWO, order)
    path = write(data + packets(PACKETS[20:], order))
    totals = CaptureTotals()
    rows = read(path, totals)
    assert brief(rows) == expected(PACKETS)
    assert (notes(rows), totals.damaged) == (["capture_damaged"], 1)
    assert [each for each in course_of(path) if isinstance(each, bytes)] == [TWO]


def test_a_packet_that_holds_a_capture_with_secrets_tells_none(write: Write) -> None:
    inner = pcapng([]) + ng_secrets(ONE)
    packet = frame(1, inner + bytes(-(54 + 28 + len(inner)) % 4) + inner)
    time = PACKETS[0][0]
    path = write(pcapng([(time, packet), (time, frame(2, bytes(2) + inner))]) + ng_secrets(TWO))
    assert course_of(path) == [TWO, 2]


@pytest.mark.parametrize("step", [16, 20, 64, 4096])
@pytest.mark.parametrize("order", "<>")
def test_blocks_are_found_wherever_the_search_takes_a_step(
    step: int, order: str, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keymaterial, "STEP", step)
    monkeypatch.setattr(keymaterial, "FOLLOWED", 3 * step)
    draw = random.Random(step)
    for _ in range(20):
        data, places = pcapng([], order), {}
        for number in range(30):
            if draw.random() < 0.3:
                places[len(data)] = line(number)
                data += ng_secrets(line(number), order)
            data += ng_block(0xBAD, bytes(4 * draw.randrange(20)), order)
        with open(write(data), "rb") as file:
            assert found_ahead(file.fileno()) == places


def test_many_secrets_without_packets_do_not_wait_for_one(write: Write) -> None:
    data = pcapng([]) + b"".join(ng_secrets(line(number)) for number in range(50))
    found = course_of(write(gzip.compress(data), "test.pcapng.gz"), block_bytes=1000)
    assert b"".join(each for each in found if isinstance(each, bytes)) == b"".join(map(line, range(50)))
    assert len(found) > 5


def test_what_is_searched_for_secrets_may_be_cut_anywhere(write: Write) -> None:
    data = pcapng(PACKETS[:2]) + ng_secrets(ONE) + packets(PACKETS[2:4]) + ng_secrets(TWO)
    for size in range(28, len(data)):
        found = course_of(write(data[:size]))
        assert [each for each in found if isinstance(each, bytes)] in ([], [ONE]), size


def test_an_empty_batch_brings_any_bytes() -> None:
    batch = with_secrets(b"\xff\x00\n")
    assert (len(batch), secrets_told(batch), tells_time(batch)) == (0, b"\xff\x00\n", False)
    columns = segment_columns(batch)
    assert (len(columns), columns.secrets) == (0, b"\xff\x00\n")


@pytest.mark.parametrize("full", [False, True])
def test_secrets_that_nothing_needs_change_no_event(full: bool) -> None:
    paths, config = sample("librdkafka-errors").paths, Config(full=full)

    def seen(*between: pa.RecordBatch) -> list[dict[str, object]]:
        given = [each for batch in segments(paths, config) for each in (*between, batch)]
        events = analyze([*given, *between], config, Engine(config))
        return [row for batch in events for row in batch.to_pylist()]

    assert seen(with_secrets(ONE)) == seen()


def test_they_come_to_the_process_that_follows_connections(write: Write) -> None:
    path = write(pcapng(PACKETS) + ng_secrets(ONE))
    processes = Processes()
    with closing(processes):
        receiving, sending = processes.pipe(duplex=True)
        processes.start(_read, sending, [path], Config(block_packets=15))
        found = [(len(each), each.secrets) for _, each in _arriving(Pipe(receiving)) if each is not None]
    assert found == [(0, ONE), (15, b""), (15, b""), (10, b"")]


# Key logs


def test_sessions_that_a_key_log_names_by_their_id_have_secrets() -> None:
    """As the agent in the Java client wrote them."""
    key_log = (CAPTURES / "tls-java.keys").read_bytes()
    assert b"Session-ID:" in key_log
    assert [line for _, line in secret_lines(key_log)] == key_log.splitlines(keepends=True)


def test_only_lines_with_a_secret_are_of_a_connection() -> None:
    key_log = (
        b"# comment\n\n"
        + ONE
        + b"RSA 00 11\n"
        + line(7, "EXPORTER_SECRET").upper()
        + b"CLIENT_RANDOM aa bb\n"
    )
    found = list(secret_lines(key_log))
    assert [random for random, _ in found] == [bytes(31) + b"\x01", bytes(31) + b"\x07"]
    assert b"".join(each for _, each in found) == ONE + line(7, "EXPORTER_SECRET").upper()


def test_a_key_log_is_read_on_from_line_to_line_and_anew_where_it_became_shorter(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_bytes(b"# begun\n" + ONE + TWO[:50])
    grows = AddedLines(str(path))
    assert grows.more() == ONE
    assert grows.more() == b""
    with path.open("ab") as file:
        file.write(TWO[50:])
    assert grows.more() == TWO
    path.write_bytes(TWO)
    assert grows.more() == TWO


@pytest.mark.tshark
@pytest.mark.skipif(shutil.which("editcap") is None, reason="editcap is not installed")
@pytest.mark.parametrize("place", ["before", "behind"])
def test_what_editcap_wrote_into_a_capture_is_read(place: str, tmp_path: Path) -> None:
    keys, made = tmp_path / "keys", tmp_path / "made.pcapng"
    keys.write_bytes(ONE + line(3, "CLIENT_TRAFFIC_SECRET_0"))
    capture = CAPTURES / "tls.pcapng"
    given = capture if place == "before" else write_empty(tmp_path)
    subprocess.run(["editcap", "--inject-secrets", f"tls,{keys}", str(given), str(made)], check=True)
    if place == "behind":
        made.write_bytes(capture.read_bytes() + made.read_bytes())
    found = course_of(str(made))
    assert found == [keys.read_bytes(), *course_of(str(capture))]


def write_empty(folder: Path) -> Path:
    path = folder / "empty.pcapng"
    path.write_bytes(pcapng([]))
    return path
