"""Kafka on ports that nobody named: found, whole and the right way round, also from the middle."""

from __future__ import annotations

import json
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from kwsniff.config import Config
from kwsniff.run.offline import events
from tests.damage.mutants import packets, write
from tests.foreign import SYN, carries_data, segments
from tests.samples import Row

FOLDER = Path(__file__).parent.parent / "data" / "odd_ports" / "captures"
NAMES = sorted(path.stem for path in FOLDER.glob("*.json"))
WITH_API_VERSIONS_5 = [name for name in NAMES if name.startswith("franz-go")]
UNSUPPORTED_VERSION = 35
API_VERSIONS = 18


def note(name: str) -> Row:
    """What the client said of itself, and where the broker was."""
    told: Row = json.loads((FOLDER / f"{name}.json").read_text())
    return told


def calls(path: Path, **choices: object) -> list[Row]:
    batches = events([str(path)], Config(**choices))  # type: ignore[arg-type]
    return [row for batch in batches for row in batch.to_pylist() if row["event"] == "call"]


@cache
def whole(name: str) -> list[Row]:
    return calls(FOLDER / f"{name}.pcap.zst")


def broker(row: Row) -> str:
    return f"{row['broker_ip']}:{row['broker_port']}"


@pytest.mark.parametrize("name", NAMES)
def test_every_connection_is_found(name: str) -> None:
    _, recorded = packets(str(FOLDER / f"{name}.pcap.zst"))
    opened = {source for _, _, source, _, flags in segments(recorded) if flags == SYN}
    speaking = {
        source
        for packet, at, source, *_ in segments(recorded)
        if source in opened and carries_data(packet, at)
    }
    assert {row["client_port"] for row in whole(name)} == speaking


@pytest.mark.parametrize("name", NAMES)
def test_offsets_are_those_that_the_client_was_told(name: str) -> None:
    found = {
        (part["partition"], part["base_offset"])
        for row in whole(name)
        if row["api"] == "Produce"
        for part in row["partitions"] or []
    }
    told = {(each["partition"], each["offset"]) for each in note(name)["produced"]}
    assert told
    assert told <= found


@pytest.mark.parametrize("name", NAMES)
def test_calls_are_those_of_a_named_port(name: str) -> None:
    port = int(note(name)["broker"].rpartition(":")[2])
    named = calls(FOLDER / f"{name}.pcap.zst", ports=(port,))
    assert [kept(row) for row in whole(name)] == [kept(row) for row in named]


@pytest.mark.parametrize("name", WITH_API_VERSIONS_5)
def test_a_refused_version_of_api_versions_is_an_error(name: str) -> None:
    """The broker knows ApiVersions up to version 4, and answers a newer one in version 0."""
    refused = [row for row in whole(name) if row["api_key"] == API_VERSIONS and row["api_version"] > 4]
    assert refused
    assert {(row["status"], row["error_code"]) for row in refused} == {("error", UNSUPPORTED_VERSION)}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("share", [0.2, 0.5, 0.7])
def test_a_capture_from_the_middle_has_all_calls_sent_after_its_beginning(
    name: str, share: float, tmp_path: Path
) -> None:
    link, recorded = packets(str(FOLDER / f"{name}.pcap.zst"))
    missing = int(len(recorded) * share)
    late = calls(write(tmp_path / "late.pcap", link, recorded[missing:]))
    assert {broker(row) for row in late} == {note(name)["broker"]}
    wanted = Counter(kept(row, missing) for row in whole(name) if row["request_packet"] > missing)
    assert wanted
    assert wanted - Counter(kept(row) for row in late) == Counter()


def kept(row: Row, missing: int = 0) -> tuple[object, ...]:
    """What says which call this is, its packets counted from the first that is not missing."""
    seen = [place and place - missing for place in (row["request_packet"], row["response_packet"])]
    return (
        *seen,
        row["api"],
        row["api_version"],
        row["correlation_id"],
        row["status"],
        broker(row),
        row["client_id"],
    )
