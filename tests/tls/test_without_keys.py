"""What TLS connections show without keys: handshakes, and exchanges as estimates of calls. The truth is what
the same captures show with their keys."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import kwsniff
from kwsniff.analysis.report import Report
from kwsniff.capture.pcapng import SECRETS
from kwsniff.config import Config
from kwsniff.engine.analyze import Engine
from kwsniff.live.counted import MetricsTally
from kwsniff.live.screen.lastminute import ScreenStatistics
from kwsniff.net.segments import SegmentColumns
from tests.cli.conftest import process
from tests.parts.cutting import in_parts, input_of, parts, shuffled, stretch, whole, without
from tests.samples import Row, encrypted, sample

SEEN = ("tls_version", "tls_cipher", "tls_group", "tls_sni", "tls_alpn", "tls_ja4", "tls_client_hello_us")
"""Columns of handshakes that are the same with and without keys."""
IN_CLEAR = ("tls_subject", "tls_expires", "tls_client_certificate", "tls_client_subject", "tls_resumed")
"""Up to TLS 1.2."""
LOADED = ("tls-librdkafka", "tls-java", "tls-kafkajs", "tls-sarama", "tls-kafka-python")


def sealed(name: str) -> list[SegmentColumns]:
    """The segments of a recording without the secrets that it holds."""
    return [replace(each, secrets=b"") for each in input_of(name) if len(each)]


def rows(table: pa.Table, event: str) -> list[Row]:
    return [row for row in table.to_pylist() if row["event"] == event]


def pairs(found: Iterable[Row]) -> Counter[Any]:
    """Which packets completed requests and their responses."""
    return Counter((row["client_port"], row["request_packet"], row["response_packet"]) for row in found)


def total(found: Iterable[Row], name: str) -> int:
    return sum(row[name] or 0 for row in found)


@pytest.mark.parametrize("name", encrypted())
def test_exchanges_are_the_calls_that_keys_show(name: str) -> None:
    truth = [row for row in sample(name).calls if row["security"] != "plaintext"]
    found = rows(whole(sealed(name), Config()), "exchange")
    assert pairs(found) == pairs(truth)
    at = {(row["client_port"], row["request_packet"], row["response_packet"]): row for row in truth}
    for row in found:
        call = at[row["client_port"], row["request_packet"], row["response_packet"]]
        assert (row["request_time"], row["latency_us"]) == (call["request_time"], call["latency_us"])
    for side in ("request_bytes", "response_bytes"):  # CBC pads
        assert total(found, side) == pytest.approx(total(truth, side), rel=0.025)
    assert {row["status"] for row in found} == {"estimated"}
    fetches = {row["api"] for row in truth if at and row["api"] == "Fetch"}
    assert len(fetches) == len({row["api"] for row in found if row["api"] == "TLS fetch"})


@pytest.mark.parametrize("name", encrypted())
def test_handshakes_say_the_same_without_keys(name: str) -> None:
    kept = {row["connection"]: row for row in sample(name).events() if row["event"] == "connection"}
    found = [row for row in rows(whole(sealed(name), Config()), "connection") if row["security"] == "tls"]
    assert found
    for row in found:
        with_keys = kept[row["connection"]]
        old = row["tls_version"] != "TLS 1.3"
        assert {each: row[each] for each in SEEN} == {each: with_keys[each] for each in SEEN}
        assert [row[each] for each in IN_CLEAR if old] == [with_keys[each] for each in IN_CLEAR if old]
        # Of one client without a certificate the broker says so, in a record of its own.
        assert row["tls_failed"] == {"broker_alert": "broker_alert_hidden"}.get(with_keys["tls_failed"])
        assert row["tls_history"].upper()[:2] in ("CS", "CJ")
        assert not row["decrypted"]


@pytest.mark.parametrize("name", LOADED)
def test_neither_batches_nor_parts_nor_processes_matter(name: str) -> None:
    """Where packets were lost, came in another order, and twice."""
    segments = [each for each in shuffled(without(sealed(name), 0.03, 3), 11) if len(each)]
    expected = whole(segments, Config())
    assert len(rows(expected, "exchange")) > 25
    for size in (1, 13, 5000):
        cut = [stretch(each, at, at + size) for each in segments for at in range(0, len(each), size)]
        assert whole(cut, Config()).equals(expected)
    assert whole(segments, Config(), compiled=False).equals(expected)
    many = sum(map(len, segments))
    for count in (1, 2, 3, 7):
        given = parts(segments, [many * at // count for at in range(1, count)])
        assert in_parts(given, Config()).events.equals(expected)
    engine, made = Engine(Config()), []
    for each in segments:
        made += list(engine.feed(each))
        engine = pickle.loads(pickle.dumps(engine))
    assert pa.Table.from_batches([*made, *engine.finish()]).equals(expected)


@pytest.mark.parametrize("name", [*encrypted(), "tls-failures"])
def test_a_key_log_that_lacks_the_connections_changes_nothing(name: str, tmp_path: Path) -> None:
    config = Config(ports=frozenset(range(9092, 9103)))
    (tmp_path / "keys").touch()
    given = whole(sealed(name), replace(config, keylog=str(tmp_path / "keys")))
    assert given.equals(whole(sealed(name), config))


@pytest.mark.parametrize("seed", range(4))
def test_a_lost_packet_costs_its_exchange(seed: int) -> None:
    intact = right = 0
    for name in LOADED:
        true = pairs(rows(whole(sealed(name), Config()), "exchange"))
        segments = without(sealed(name), 0.02, seed)
        there = {number for each in segments for number in each.packet.tolist()}
        table = whole(segments, Config())
        found = pairs(rows(table, "exchange"))
        wanted = Counter({key: count for key, count in true.items() if {*key[1:]} <= there})
        intact, right = intact + wanted.total(), right + (wanted & found).total()
        ends = [row for row in rows(table, "connection") if row["security"] == "tls"]
        assert sum(end["tls_exchanges"] for end in ends) == found.total()
    assert intact > 280
    assert right >= 0.93 * intact


def test_a_connection_met_in_its_middle_is_cut_into_exchanges() -> None:
    segments = sealed("tls-kafkajs")
    true = pairs(rows(whole(segments, Config()), "exchange"))
    half = sum(map(len, segments)) // 2
    late = parts(segments, [half])[1]
    found = pairs(rows(whole(late, Config()), "exchange"))
    assert sum((found & true).values()) >= 0.8 * sum(found.values()) > 20


def test_those_who_count_see_exchanges_and_those_who_judge_calls_do_not(tmp_path: Path) -> None:
    file = tmp_path / "sealed.pcapng"
    file.write_bytes(without_secrets(Path(sample("tls-librdkafka").paths[0])))
    batches = list(kwsniff.events([str(file)]))
    count = sum(batch["event"].to_pylist().count("exchange") for batch in batches)
    report = Report.from_events(batches)
    api = {row["api"]: row for row in report.arrow["api"].to_pylist()}
    assert report.exchanges == count == api["TLS exchange"]["calls"] + api["TLS fetch"]["calls"]
    assert api["TLS fetch"]["waited_calls"] == api["TLS fetch"]["calls"]
    assert report.total("calls") == len(kwsniff.calls(str(file)))
    tally = MetricsTally(topics=False)
    for batch in batches:
        tally.add(batch)
    labels, columns = tally.calls.series.snapshot()
    told: Counter[str] = Counter()
    for label, requests in zip(labels, columns["requests"].tolist(), strict=True):
        told[label[0]] += requests
    assert told["TLS exchange"] == api["TLS exchange"]["calls"]
    assert told["Metadata"] == api["Metadata"]["calls"]
    screen = ScreenStatistics()
    for batch in batches:
        screen.add(batch)
    assert screen.snapshot().calls == report.total("calls") + count
    page = tmp_path / "page.html"
    assert process("report", str(file), "--html", str(page), module="kwsniff").returncode == 0
    assert "TLS exchanges (estimated)" in page.read_text()


def without_secrets(path: Path) -> bytes:
    """A pcapng file without its Decryption Secrets Blocks."""
    import zstandard

    data = path.read_bytes()
    data = zstandard.ZstdDecompressor().decompressobj().decompress(data) if path.suffix == ".zst" else data
    kept, at = b"", 0
    while at < len(data):
        size = int.from_bytes(data[at + 4 : at + 8], "little")
        if int.from_bytes(data[at : at + 4], "little") != SECRETS:
            kept += data[at : at + size]
        at += size
    return kept
