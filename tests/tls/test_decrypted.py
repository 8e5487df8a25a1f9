"""Calls of decrypted connections: those of the same traffic in plaintext, those that the broker logged."""

from __future__ import annotations

import json
import pickle
import random
import ssl
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from kwsniff.capture.source import CaptureTotals, segments
from kwsniff.config import Config
from kwsniff.engine.analyze import Engine, analyze
from kwsniff.net.segments import SegmentColumns
from tests.parts.cutting import in_parts, input_of, shuffled, stretch, whole, without
from tests.samples import CAPTURES, Row, encrypted, sample
from tests.test_request_log import as_logged, decoded, logged
from tests.tls.wrapped import batches, end_of, wrapped

VERSIONS = {"TLS 1.3": ssl.TLSVersion.TLSv1_3, "TLS 1.2": ssl.TLSVersion.TLSv1_2}
CIPHERS = {"TLS 1.2 CBC": "ECDHE-ECDSA-AES128-SHA256", "TLS 1.2 ChaCha20": "ECDHE-ECDSA-CHACHA20-POLY1305"}
ANSWERED = ("ok", "error")
LOST = 2
"""Percent of the segments that are lost."""
SPELLED = {"generation_id_or_member_epoch", "generation_id"}


def rows_of(name: str) -> list[Row]:
    found = segments(sample(name).paths, Config(), CaptureTotals())
    return [row for batch in found for row in batch.to_pylist() if row["anomaly"] is None]


def encrypted_rows(rows: Iterable[Row], folder: Path, how: str) -> list[Row]:
    return list(wrapped(rows, folder, folder / "keys", VERSIONS[how[:7]], CIPHERS.get(how, "")))


def same_connections(rows: Iterable[Row], others: Iterable[Row]) -> list[Row]:
    """The rows of connections that the others have, too: those that began in the capture."""
    ends = {frozenset((end_of(row, "src"), end_of(row, "dst"))) for row in others}
    return [row for row in rows if frozenset((end_of(row, "src"), end_of(row, "dst"))) in ends]


def calls(rows: Sequence[Row], count: int = 1000, **choices: Any) -> list[Row]:
    events = analyze(batches(rows, count), Config(**choices))
    return [row for batch in events for row in batch.to_pylist() if row["event"] == "call"]


def without_security(rows: Iterable[Row]) -> list[Row]:
    return [{name: value for name, value in row.items() if name != "security"} for row in rows]


@pytest.mark.parametrize("how", [*VERSIONS, *CIPHERS])
@pytest.mark.parametrize("name", ["librdkafka-produce", "sasl"])
def test_decrypted_calls_are_those_of_the_plaintext(name: str, how: str, tmp_path: Path) -> None:
    rows = rows_of(name)
    hidden = encrypted_rows(rows, tmp_path, how)
    plain = calls(same_connections(rows, hidden), full=True)
    found = calls(hidden, full=True, keylog=str(tmp_path / "keys"))
    assert {row["security"] for row in found} == {how[:7]}
    assert without_security(found) == without_security(plain)
    assert len(found) > 100


@pytest.mark.parametrize("name", ["java-groups", "java-admin", "kafkajs-tansu", "kafka-0.10", "ipv6"])
def test_other_samples_decrypt_to_their_plaintext(name: str, tmp_path: Path) -> None:
    rows = rows_of(name)
    hidden = encrypted_rows(rows, tmp_path, "TLS 1.3")
    plain = calls(same_connections(rows, hidden))
    assert without_security(calls(hidden, 7, keylog=str(tmp_path / "keys"))) == without_security(plain)


def test_an_engine_goes_on_in_another_process(tmp_path: Path) -> None:
    rows = rows_of("java-groups")
    hidden = encrypted_rows(rows, tmp_path, "TLS 1.2")
    config = Config(keylog=str(tmp_path / "keys"))
    engine, found = Engine(config), []
    for batch in batches(hidden, 97):
        found += [engine.events(each).to_pylist() for each in engine.take(batch)]
        engine = pickle.loads(pickle.dumps(engine))
    found += [engine.events(each).to_pylist() for each in engine.end()]
    again = [row for part in found for row in part if row["event"] == "call"]
    assert again == calls(hidden, 97, keylog=config.keylog)


@pytest.mark.parametrize("how", VERSIONS)
def test_of_intact_calls_hardly_any_is_missed_where_packets_are_lost(how: str, tmp_path: Path) -> None:
    """Two percent lost, those of handshakes too: a lost record costs what it held, not the connection."""
    rows = rows_of("java-groups") + rows_of("librdkafka-produce") + rows_of("java-admin")
    hidden, keylog = encrypted_rows(rows, tmp_path, how), str(tmp_path / "keys")
    hidden = [{**row, "packet": number} for number, row in enumerate(hidden, 1)]
    whole = [row for row in calls(hidden, keylog=keylog) if row["status"] in ANSWERED]
    intact = told = 0
    for seed in range(4):
        chance = random.Random(seed)
        kept = [row for row in hidden if chance.randrange(100) >= LOST]
        there = {row["packet"] for row in kept}
        some = calls(kept, keylog=keylog)
        found, opened = {key(row) for row in some}, {row["client_port"] for row in some}
        wanted = {key(row) for row in whole if {row["request_packet"], row["response_packet"]} <= there}
        wanted = {each for each in wanted if each[0] in opened}
        intact += len(wanted)
        told += len(wanted & found)
    assert told >= 0.98 * intact
    assert intact > 2000


@pytest.mark.parametrize("name", ["tls-aiokafka", "tls-franz-go"])
def test_neither_batches_nor_shares_nor_parts_matter(name: str) -> None:
    """Where packets were lost, came in another order, and twice."""
    segments = [each for each in shuffled(without(input_of(name), 0.03, 3), 11) if len(each)]
    config = Config(keylog=str(CAPTURES / sample(name).note["keys"]))
    expected = whole(segments, config)
    assert len(set(expected["security"].to_pylist())) > 1
    for size in (1, 13, 5000):
        cut = [stretch(each, at, at + size) for each in segments for at in range(0, len(each), size)]
        assert whole(cut, config).equals(expected)
    assert in_parts([segments], config).events.equals(expected)
    assert whole(segments, config, compiled=False).equals(expected)
    shares = [row for index in range(2) for row in shared(segments, config, index)]
    assert sorted(map(str, shares)) == sorted(map(str, expected.to_pylist()))


def shared(segments: Iterable[SegmentColumns], config: Config, index: int) -> Iterator[Row]:
    engine = Engine(config, (index, 2))
    for part in segments:
        yield from (row for batch in engine.feed(part) for row in batch.to_pylist())
    yield from (row for batch in engine.finish() for row in batch.to_pylist())


@pytest.mark.parametrize("seed", range(6))
def test_records_that_were_changed_are_told_and_the_rest_is_decrypted(seed: int, tmp_path: Path) -> None:
    hidden = encrypted_rows(rows_of("java-admin"), tmp_path, ["TLS 1.3", "TLS 1.2 CBC"][seed % 2])
    chance = random.Random(seed)
    changed = set()
    for number, row in enumerate(hidden):
        row["packet"] = number
        if row["payload"] and row["payload"][0] == 23 and chance.random() < 0.03:
            payload = bytearray(row["payload"])
            payload[chance.randrange(5, len(payload))] ^= 1 << chance.randrange(8)
            row["payload"] = bytes(payload)
            changed.add(number)
    events = analyze(batches(hidden), Config(keylog=str(tmp_path / "keys")))
    rows = [row for batch in events for row in batch.to_pylist()]
    told = {row["packet"] for row in rows if row["code"] == "tls_record_unreadable"}
    assert told == changed
    ok = [row for row in rows if row["event"] == "call" and row["status"] in ANSWERED]
    assert not changed & {packet for row in ok for packet in (row["request_packet"], row["response_packet"])}
    assert len(ok) >= 105 - 3 * len(changed)


def test_keys_of_other_connections_open_nothing(tmp_path: Path) -> None:
    rows = rows_of("java-admin")
    hidden = encrypted_rows(rows, tmp_path, "TLS 1.3")
    lines = (tmp_path / "keys").read_text().splitlines()
    wrong = [
        f"{line.rsplit(' ', 1)[0]} {other.rsplit(' ', 1)[1]}"
        for line, other in zip(lines, lines[5:], strict=False)
    ]
    for name, text in (("wrong", wrong), ("none", []), ("junk", ["\0", "CLIENT_RANDOM zz zz", "# text"])):
        (tmp_path / name).write_text("\n".join(text) + "\n")
        events = analyze(batches(hidden), Config(keylog=str(tmp_path / name)))
        found = [row for batch in events for row in batch.to_pylist()]
        assert {(row["security"], row["decrypted"]) for row in found if row["event"] == "connection"} == {
            ("tls", False)
        }
        assert not [row for row in found if row["event"] == "call"]


def key(row: Row) -> tuple[Any, ...]:
    return (
        row["client_port"],
        row["api"],
        row["correlation_id"],
        row["request_packet"],
        row["response_packet"],
    )


@pytest.mark.parametrize("name", encrypted())
def test_the_broker_logged_the_calls_that_are_decrypted(name: str) -> None:
    """It logs none before a client is authenticated, and answers that a client did not wait for."""
    ours, theirs = decoded(name), logged(name)
    answered = {at for at, row in ours.items() if row["response"] is not None}
    assert {ours[at]["api"] for at in answered - set(theirs)} <= {
        "ApiVersions", "SaslHandshake", "SaslAuthenticate"
    }  # fmt: skip
    assert {ours[at]["status"] for at in set(theirs) - answered} <= {"truncated", "unanswered"}
    assert len(set(theirs) - answered) <= 3
    for at in answered & set(theirs):
        for direction in ("request", "response"):
            body = json.loads(ours[at][direction])
            assert comparable(as_logged(body), body) == comparable(theirs[at][direction], body), (
                at,
                direction,
            )


def comparable(value: Any, ours: Any) -> Any:
    """Without what the broker's log names or writes in another way: generations, and bytes that we decode."""
    if isinstance(value, list):
        return [comparable(*each) for each in zip(value, ours, strict=False)]
    if not isinstance(value, dict) or not isinstance(ours, dict):
        return value
    bodies = {camel(name): each for name, each in ours.items()}
    return {
        name: comparable(each, bodies.get(name))
        for name, each in value.items()
        if not name.startswith("generationId") and not is_embedded(bodies.get(name))
    }


def is_embedded(value: Any) -> bool:
    return isinstance(value, dict) and "message" in value


def camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(word.capitalize() for word in others)


@pytest.mark.parametrize("name", encrypted())
def test_without_keys_calls_over_tls_are_not_shown(name: str) -> None:
    found = sample(name).events(keylog=str(CAPTURES / "tls-none.keys"))
    assert "keys" in sample(name).note
    assert {row["security"] for row in found if row["event"] == "connection"} >= {"plaintext"}
