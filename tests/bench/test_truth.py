"""The truth that pairing is measured against: frames as tshark sees them, the brokers' log, losses."""

from __future__ import annotations

import csv
import gzip
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

sys.path.insert(0, str(Path(__file__).parent))

import crowd
import pairing
import pcapfile
import truth
import variants
from truth import Ends, Frames, Key

CAPTURES = Path(__file__).parent.parent.parent / "captures"
SAMPLE = CAPTURES / "librdkafka-transactions.pcap"
PORTS = [9092]


@pytest.fixture(scope="module")
def frames() -> Frames:
    return truth.frames(SAMPLE, PORTS)


def tshark_frames(name: str) -> set[tuple[int, int, int]]:
    """Ports of sender and receiver, and correlation id, of each frame that tshark saw."""
    with gzip.open(CAPTURES / "expected" / f"{name}.tshark.csv.gz", "rt") as table:
        return {
            (int(row["tcp.srcport"]), int(row["tcp.dstport"]), int(number))
            for row in csv.DictReader(table)
            for number in row["kafka.correlation_id"].split(",")
            if number
        }


def test_frames_are_those_that_tshark_sees(frames: Frames) -> None:
    requests = {(key.ends.client_port, key.ends.broker_port, key.correlation_id) for key in frames.requests}
    responses = {(key.ends.broker_port, key.ends.client_port, key.correlation_id) for key in frames.responses}
    assert requests | responses == tshark_frames("librdkafka-transactions")
    assert not frames.unclear


def test_packets_of_a_frame_hold_all_its_bytes(frames: Frames) -> None:
    sizes = [len(record) for _, record in pcapfile.packets(SAMPLE)]
    for packets in (*frames.requests.values(), *frames.responses.values()):
        assert packets == sorted(packets)
        assert all(sizes[packet] > truth.LENGTHS + truth.ETHERNET + 40 for packet in packets)


def test_a_log_line_names_the_connection_by_its_client_first_unless_it_was_forwarded(tmp_path: Path) -> None:
    log = tmp_path / "requests.log"
    log.write_text(
        'Completed request:{"requestHeader":{"requestApiKey":63,"requestApiVersion":2,"correlationId":8},'
        '"connection":"127.0.0.2:9093-127.0.0.1:33840-0-7","totalTimeMs":1.2}\nsomething else\n'
        'Completed request:{"isForwarded":true,"requestHeader":{"requestApiKey":19,"correlationId":3},'
        '"connection":"127.0.0.2:9093-127.0.0.1:33840-0-7"}\n'
    )
    assert truth.logged(log) == {Key(Ends("127.0.0.1", 33840, "127.0.0.2", 9093), 8): 63}


def test_a_log_with_a_request_that_was_not_captured_is_refused(frames: Frames) -> None:
    key = Key(Ends("127.0.0.1", 1, "127.0.0.1", 9092), 1)
    with pytest.raises(SystemExit, match="not in the capture"):
        pairing.witnessed(frames, {key: 3})


def test_every_call_of_an_undamaged_sample_is_paired(frames: Frames) -> None:
    kept = np.ones(pcapfile.count(SAMPLE), bool)
    found = pairing.outcome(frames, kept, pairing.calls(SAMPLE, PORTS))
    assert found.survived == len(frames.responses) > 100
    assert (found.paired, found.unpaired_sends, found.phantoms) == (found.survived, 0, 0)


def test_calls_with_a_lost_packet_do_not_count_but_invented_ones_do(frames: Frames) -> None:
    rows = pairing.calls(SAMPLE, PORTS)
    kept = np.ones(pcapfile.count(SAMPLE), bool)
    lost = next(iter(frames.responses.values()))[0]
    kept[lost] = False
    invented = rows.iloc[:1].assign(correlation_id=123456)
    another_api = rows.iloc[:1].assign(api_key=77)
    found = pairing.outcome(frames, kept, pd.concat([rows, invented, another_api]))
    assert found.survived == len(frames.responses) - 1
    assert (found.paired, found.phantoms) == (found.survived, 2)


def test_a_response_in_which_the_capture_ends_is_no_invention(frames: Frames, tmp_path: Path) -> None:
    key, packets = max(frames.responses.items(), key=lambda response: len(response[1]))
    cut = tmp_path / "cut.pcap"
    kept = np.arange(pcapfile.count(SAMPLE)) < packets[-1]
    variants.keep(SAMPLE, cut, kept)
    ended = truth.frames(cut, PORTS)
    assert len(packets) > 1
    assert key not in ended.responses
    orphan = pairing.calls(SAMPLE, PORTS).query("correlation_id == @key.correlation_id").iloc[:1]
    orphan = orphan.assign(
        request_packet=None, client_ip=key.ends.client_ip, client_port=key.ends.client_port,
        broker_ip=key.ends.broker_ip, broker_port=key.ends.broker_port,
    )  # fmt: skip
    assert pairing.outcome(ended, kept, orphan).phantoms == 0
    assert pairing.outcome(ended, kept, orphan.assign(correlation_id=123456)).phantoms == 1


def test_a_variant_leaves_the_same_packets_out_each_time(tmp_path: Path) -> None:
    paths = [tmp_path / "one.pcap", tmp_path / "two.pcap"]
    for path in paths:
        variants.make(SAMPLE, {"lost-20": path})
    assert paths[0].read_bytes() == paths[1].read_bytes()
    assert 0.1 < 1 - pcapfile.count(paths[0]) / pcapfile.count(SAMPLE) < 0.3


def test_a_lost_second_is_that_after_the_middle() -> None:
    tenths = np.arange(100) * variants.SECOND // 10
    kept = variants.lost_second(variants.Index(ends=tenths, times=tenths))
    assert list(np.flatnonzero(~kept)) == list(range(50, 60))


def test_cuts_keep_packets_whole(tmp_path: Path) -> None:
    cut = tmp_path / "cut.pcap"
    packets = variants.index(SAMPLE)
    variants.keep(SAMPLE, cut, variants.first_bytes(5_000)(packets))
    assert cut.read_bytes() == SAMPLE.read_bytes()[: cut.stat().st_size]
    assert 4_000 < cut.stat().st_size <= 5_000


def test_a_crowd_has_as_many_connections_as_wanted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crowd, "CONNECTIONS", 2)
    monkeypatch.setattr(crowd, "SIZES", (2, 8))
    for size, (path, packets) in crowd.make(SAMPLE, tmp_path, PORTS, packets=400).items():
        made = truth.frames(path, PORTS)
        assert len({key.ends for key in made.requests}) == size
        assert pcapfile.count(path) == packets <= 400
        assert not made.unclear
