"""The samples against what tshark saw and what the clients themselves say they did."""

from __future__ import annotations

import shutil
from collections import Counter

import pytest

from kwsniff.config import Config
from kwsniff.spec.load import catalog
from tests.samples import Sample, names, sample, tshark_finds

Request = tuple[int, int, int, int]
"""Packet, correlation id, API key, version."""

RAW_TOKENS = {"sasl-0.10"}
"""tshark takes the SASL tokens that follow SaslHandshake v0 for messages of APIs that do not exist."""
CUT = {"snaplen-128"}
"""tshark loses framing where the snap length cut a message."""
REPEATED = {"slow-reader"}
"""tshark misses a response some of whose segments were sent again."""


def _number(text: str) -> int:
    return int(text, 0)


def tshark_requests(recorded: Sample) -> Counter[Request]:
    seen: Counter[Request] = Counter()
    for row in recorded.tshark():
        keys = [_number(key) for key in row["kafka.request_key"].split(",") if key]
        versions = [_number(version) for version in row["kafka.request.version"].split(",") if version]
        ids = [_number(each) for each in row["kafka.correlation_id"].split(",") if each]
        if keys:
            frame = int(row["frame.number"])
            seen.update((frame, *each) for each in zip(ids, keys, versions, strict=True))
    return seen


def tshark_responses(recorded: Sample) -> Counter[tuple[int, int]]:
    seen: Counter[tuple[int, int]] = Counter()
    for row in recorded.tshark():
        if not row["kafka.request_key"]:
            ids = [_number(each) for each in row["kafka.correlation_id"].split(",") if each]
            seen.update((int(row["frame.number"]), each) for each in ids)
    return seen


def our_requests(recorded: Sample) -> Counter[Request]:
    before = recorded.packets_before()
    return Counter(
        (
            row["request_packet"] + before[row["capture"]],
            row["correlation_id"],
            row["api_key"],
            row["api_version"],
        )
        for row in recorded.calls
        if row["api_key"] is not None
    )


@pytest.mark.tshark
@pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not installed")
@pytest.mark.parametrize("name", sorted(set(names()) - RAW_TOKENS - {"rotation"}))
def test_the_installed_tshark_sees_the_same_requests_as_the_saved_one(name: str) -> None:
    recorded = sample(name)
    assert our_requests(recorded) == Counter(tshark_finds(recorded.paths[0], recorded.note["ports"]))


@pytest.mark.parametrize("name", sorted(set(names()) - {"rotation"}))
def test_requests_are_those_that_tshark_saw(name: str) -> None:
    recorded = sample(name)
    seen = tshark_requests(recorded)
    if name in RAW_TOKENS:
        seen = Counter({key: count for key, count in seen.items() if key[2] in catalog().apis})
    assert our_requests(recorded) == seen


def test_a_rotation_is_one_stream_of_requests() -> None:
    """Packets are numbered by file here and through all files by tshark, so only the rest is compared."""
    recorded = sample("rotation")
    seen = Counter((api, version, corr) for _, corr, api, version in tshark_requests(recorded).elements())
    ours = Counter((row["api_key"], row["api_version"], row["correlation_id"]) for row in recorded.calls)
    assert ours == seen
    assert {row["status"] for row in recorded.calls} <= {"ok", "error", "no_reply_expected"}


@pytest.mark.parametrize("name", sorted(set(names()) - CUT - RAW_TOKENS - {"rotation"}))
def test_responses_are_those_that_tshark_saw(name: str) -> None:
    """But for those that answer acks=0, reported apart, and those cut by the end, which tshark leaves out."""
    recorded = sample(name)
    events = recorded.events()
    unwanted = Counter(
        (row["packet"], int(row["detail"].rsplit(" ", 1)[1]))
        for row in events
        if row["code"] == "reply_to_acks_0"
    )
    ours = Counter(
        (row["response_packet"], row["correlation_id"])
        for row in recorded.calls
        if row["response_packet"] is not None and row["status"] != "truncated"
    )
    whole = tshark_responses(recorded)
    if name in REPEATED:
        assert whole < ours + unwanted
    else:
        assert ours + unwanted == whole


@pytest.mark.parametrize("name", names())
def test_nothing_a_sample_carries_is_left_undecoded(name: str) -> None:
    recorded = sample(name)
    assert [row for row in recorded.calls if row["status"] == "undecoded"] == []
    if name not in CUT | {"midstream"}:
        assert [row for row in recorded.calls if row["status"] == "orphan"] == []


def acknowledged(recorded: Sample) -> dict[tuple[str, int], list[tuple[int, int, str]]]:
    """Offsets that Produce responses gave, as (first, one beyond the last, codec) by topic and partition."""
    uuids = {
        uuid: topic
        for row in recorded.calls
        for topic, uuid in zip(row["topics"] or [], row["topic_ids"] or [], strict=False)
        if topic and uuid
    }
    held: dict[tuple[str, int], list[tuple[int, int, str]]] = {}
    for row in recorded.calls:
        for part in (row["partitions"] or []) if row["api"] == "Produce" else []:
            topic = part["topic"] or uuids.get(part["topic_id"])
            if row["status"] == "ok" and topic:
                # How many records a compressed wrapper of magic 0 and 1 holds, only its codec knows.
                count = 1000 if part["records"] is None else part["records"]
                span = (part["base_offset"], part["base_offset"] + count, part["codec"])
                held.setdefault((topic, part["partition"]), []).append(span)
    return held


@pytest.mark.parametrize("name", names())
def test_records_are_produced_where_and_as_the_client_says(name: str) -> None:
    """Offsets are those of the clients' delivery reports, codecs those of their settings, but that a client
    may leave a batch alone which its codec would not make smaller."""
    told = [
        each
        for client in sample(name).note.get("clients", [])
        for each in client.get("produced", [])
        if each.get("offset") is not None and each["offset"] >= 0 and each.get("partition") is not None
    ]
    if not told or name in CUT | {"midstream", "tls"}:
        pytest.skip("no delivery reports, or not everything captured, in this sample")
    held = acknowledged(sample(name))
    missing = [
        each
        for each in told
        if not any(
            first <= each["offset"] < beyond and codec in (each.get("codec", codec), "none")
            for first, beyond, codec in held.get((each["topic"], each["partition"]), [])
        )
    ]
    assert missing == []


@pytest.mark.one_of(8)
@pytest.mark.parametrize("name", names())
def test_any_block_size_gives_the_same_events(name: str) -> None:
    recorded = sample(name)
    whole = sorted(map(str, recorded.events()))
    assert sorted(map(str, recorded.events(block_packets=7))) == whole
    assert Config().block_packets > 7
