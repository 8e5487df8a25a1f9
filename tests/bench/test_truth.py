"""The truth that pairing is measured against: frames as tshark sees them, the brokers' log, losses."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from kwsniff.cli.live import Warnings
from kwsniff.live.session import Health
from tests.bench import crowd, pairing, pcapfile, replay, truth, variants
from tests.bench.truth import Ends, Frames, Key
from tests.samples import CAPTURES, sample

SAMPLE = CAPTURES / "librdkafka-transactions.pcap"
PORTS = [9092]


@pytest.fixture(scope="module")
def frames() -> Frames:
    return truth.frames(SAMPLE, PORTS)


def test_frames_are_those_that_tshark_sees(frames: Frames) -> None:
    requests = {(key.ends.client_port, key.ends.broker_port, key.correlation_id) for key in frames.requests}
    responses = {(key.ends.broker_port, key.ends.client_port, key.correlation_id) for key in frames.responses}
    assert requests | responses == {
        (int(row["tcp.srcport"]), int(row["tcp.dstport"]), int(number))
        for row in sample("librdkafka-transactions").tshark()
        for number in row["kafka.correlation_id"].split(",")
        if number
    }
    assert not frames.unclear


def test_packets_of_a_frame_hold_all_its_bytes(frames: Frames) -> None:
    sizes = [len(record) for _, record in pcapfile.packets(SAMPLE)]
    for packets in (*frames.requests.values(), *frames.responses.values()):
        assert packets == sorted(packets)
        assert all(sizes[packet] > pcapfile.LENGTHS.size + 14 + 40 for packet in packets)


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
    variants.keep(SAMPLE, cut, variants.index(SAMPLE), np.flatnonzero(kept))
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
    assert sorted({*range(100)} - {*kept.tolist()}) == list(range(50, 60))


def test_damage_loses_one_in_a_hundred_and_swaps_as_many() -> None:
    packets = variants.Index(np.arange(10_000), np.arange(10_000))
    order = variants.damaged(packets)
    assert 9_850 < len({*order.tolist()}) == len(order) < 9_950
    assert 50 < np.count_nonzero(np.diff(order) < 0) < 150


def test_cuts_keep_packets_whole(tmp_path: Path) -> None:
    cut = tmp_path / "cut.pcap"
    variants.make(SAMPLE, {"100kb": cut})
    assert cut.read_bytes() == SAMPLE.read_bytes()[: cut.stat().st_size]
    assert cut.stat().st_size <= 100_000


def test_a_crowd_has_as_many_connections_as_wanted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crowd, "CONNECTIONS", 2)
    monkeypatch.setattr(crowd, "SIZES", (2, 8))
    for size, (path, packets) in crowd.make(SAMPLE, tmp_path, PORTS, packets=400).items():
        made = truth.frames(path, PORTS)
        assert len({key.ends for key in made.requests}) == size
        assert pcapfile.count(path) == packets <= 400
        assert not made.unclear


@pytest.mark.parametrize(("kernel", "own"), [(0, 0), (1_234, 0), (0, 56_789), (1_234, 56_789), (600, 160)])
def test_drops_of_a_live_session_are_read(kernel: int, own: int, capsys: pytest.CaptureFixture[str]) -> None:
    warnings = Warnings()
    warnings.tick(Health(("lo",), 0, 1, packets=500, came=70_000, kernel_dropped=min(kernel, 7)))
    warnings.tick(Health(("lo",), 0, 1, packets=500, came=70_000, kernel_dropped=kernel, own_dropped=own))
    said = capsys.readouterr().err + "1,500 packets, 2 MB. 1 connection.\n"
    assert replay.counted("kwsniff live", said) == (1500, kernel + own)
