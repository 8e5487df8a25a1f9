"""Packets of a session that are kept: what is written, and that nothing else keeps it from being."""

from __future__ import annotations

import re
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from kwsniff.capture.savefile import PcapngFiles, WrittenInterface
from kwsniff.capture.source import blocks
from kwsniff.config import Config
from kwsniff.live.collector import Keeping
from kwsniff.live.session import Session
from kwsniff.net.packets import CaptureTotals
from tests.live.test_end_to_end import Row, calls, decoded, lines, scenario
from tests.live.test_pcapng import read
from tests.live.test_pcapng import small_disk as small_disk
from tests.live.test_source import Script, ip, nobody, packets, source
from tests.playbook import Play, from_client, handshake, play, request, response

HTTP = b"GET / HTTP/1.1\r\nHost: example\r\n\r\n"


def keeping(path: Path, *, all_packets: bool = False) -> Keeping:
    return Keeping(PcapngFiles(str(path), [WrittenInterface("fake0", 101, "tcp")]), all_packets)


def written(path: Path) -> list[bytes]:
    return [data for *_, data in read(str(path))]


def said(script: Play) -> list[bytes]:
    return [ip(segment) for segment in script.segments]


def kafka(correlation_id: int = 1) -> list[bytes]:
    return said(play() >> handshake() >> request(corr=correlation_id) >> response(corr=correlation_id))


def test_packets_are_written_although_nothing_is_decoded(tmp_path: Path) -> None:
    path = tmp_path / "kept.pcapng"
    live = source(Script([packets(*kafka())]), keep=keeping(path))
    live.start()
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and len(written(path)) < 5:
        time.sleep(0.05)
    assert written(path) == kafka()
    live.stop()
    live.join()


@pytest.mark.parametrize("all_packets", [False, True])
def test_what_is_known_not_to_be_kafka_is_left_out(tmp_path: Path, all_packets: bool) -> None:
    first = said(play() >> handshake() >> from_client(*[HTTP] * 20))
    second = said(play() >> handshake() >> from_client(*[HTTP] * 40))[len(first) :]
    path = tmp_path / "kept.pcapng"
    script = Script([packets(*first)])
    session = Session([script], Config(), queue_bytes=1 << 20, keeping=keeping(path, all_packets=all_packets))  # type: ignore[list-item]
    for seconds, more in ((1, second), (2, kafka()), (3, kafka(2)[3:])):
        threading.Timer(seconds, script.add, [packets(*more)]).start()
    threading.Timer(4, session.stop).start()
    session.run([])
    left_out = [] if not all_packets else second
    assert written(path) == [*first, *left_out, *kafka(), *kafka(2)[3:]]


def test_a_verdict_on_what_was_before_leaves_out_nothing_of_a_new_connection(tmp_path: Path) -> None:
    old, new = said(play() >> handshake() >> from_client(HTTP)), kafka()
    path = tmp_path / "kept.pcapng"
    script = Script([packets(*old), packets(*new[:3])])
    live = source(script, keep=keeping(path))
    live.start()
    timer = threading.Timer(1.5, live.stop)
    threading.Timer(1, script.add, [packets(*new[3:])]).start()
    timer.start()
    judged = live.segments(nobody)
    first = next(batch for batch in judged if len(batch)).slice(0, len(old))  # decoding is behind
    assert live.keeper is not None
    live.keeper.judge(first, lambda segments: np.zeros(len(segments), np.bool_))
    list(judged)
    live.join()
    assert written(path) == [*old, *new]


@pytest.mark.root
def test_who_does_not_read_keeps_no_packet_from_its_file(tmp_path: Path) -> None:
    kept, count = tmp_path / "kept.pcapng", 3000
    told = scenario(tmp_path, count, 1000, 9000, "-f", "jsonl", "-w", kept, what="unread")
    assert told["exit"] == 0
    assert told["ended_in"] < 3
    totals = CaptureTotals()
    in_file = sum(len(each) for each in blocks(str(kept), totals=totals))
    assert totals.dropped == totals.cut_short == 0
    assert len(calls(decoded(kept, "9092"))) == count
    said = (tmp_path / "live.err").read_text()
    assert "standard output takes no more; what is left to tell is not told" in said
    here = int(re.search(r"([\d,]+) packets, ", said)[1].replace(",", ""))  # type: ignore[index]
    missing = re.findall(r"so far ([\d,]+) by kwsniff.* is missing here, ([\d,]+) of them are written", said)
    assert {int(each.replace(",", "")) for each in missing[-1]} == {in_file - here}


@pytest.mark.root
def test_a_full_disk_ends_the_file_and_not_the_session(tmp_path: Path, small_disk: Path) -> None:
    kept = small_disk / "kept.pcapng"
    told = scenario(tmp_path, 4, "-i", "lo", "-f", "jsonl", "--port", "PORTS", "-w", str(kept))
    assert told["exit"] == 0
    live: list[Row] = lines(tmp_path / "live.out")
    assert calls(live) == calls(decoded(tmp_path / "tcpdump.pcap", told["ports"]))
    totals = CaptureTotals()
    assert sum(len(each) for each in blocks(str(kept), totals=totals)) > 50
    assert totals.cut_short == totals.damaged == 0
    said = [line for line in (tmp_path / "live.err").read_text().splitlines() if "kept.pcapng" in line]
    why = "No space left on device; no more packets are written, the session goes on without"
    assert said == [f"kwsniff: {kept}: {why}"]
