"""TCP as it really arrives: cut, lost, doubled, out of order; and the laws that events obey all the same."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from struct import pack
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kwsniff.config import Config
from kwsniff.engine.analyze import analyze
from tests.playbook import (
    BODIES,
    BROKER,
    CLIENT,
    Play,
    Segment,
    ack,
    anomaly,
    batch,
    call,
    connection,
    fin,
    from_broker,
    from_client,
    handshake,
    kafka_request,
    kafka_response,
    lost_from_broker,
    lost_from_client,
    play,
    request,
    response,
    rst,
    run,
    wait,
)  # fmt: skip
from tests.strength import examples

METADATA = kafka_request(3, 0, 1, pack(">i", 0))
ANSWER = kafka_response(1, pack(">ii", 0, 0))
BIG = pack(">ii", 0, 0) + bytes(300)
"""A Metadata v0 response with bytes to spare, which are an anomaly but no damage."""


def test_a_capture_may_begin_in_the_middle_of_a_connection() -> None:
    (
        play() >> request(corr=1) >> response(corr=1)
        << call(correlation_id=1, status="ok") << connection(syn=False, resynchronisations=0)
    ).nothing_more()  # fmt: skip


def test_a_capture_may_begin_in_the_middle_of_a_frame() -> None:
    (
        play() >> from_client(b"tail of an earlier request") >> from_broker(b"and of its response")
        >> request(corr=8) >> response(corr=8)
        << call(correlation_id=8, status="ok")
        << anomaly("resynchronised", packet=3) << anomaly("resynchronised", packet=4)
        << connection(resynchronisations=2, skipped_bytes=45)
    ).nothing_more()  # fmt: skip


def test_a_retransmission_changes_nothing() -> None:
    script = play() >> handshake() >> request(corr=1) >> response(corr=1)
    for segment in script.segments[3:]:
        script.send(segment.side, segment.data, seq=segment.seq)
    script << call(status="ok", latency_us=1000.0) << connection(client_bytes=48, broker_bytes=32)
    script.nothing_more()


def test_an_overlapping_segment_adds_only_its_new_bytes() -> None:
    script = play() >> handshake()
    begin = script.next_seq[CLIENT]
    script.send(CLIENT, METADATA[:10])
    script.send(CLIENT, METADATA[5:], seq=begin + 5)
    script.next_seq[CLIENT] = begin + len(METADATA)
    script >> response(corr=1) << call(status="ok", request_packet=5)
    script.nothing_more()


def test_the_first_copy_wins_and_a_differing_one_is_reported() -> None:
    script = play() >> handshake()
    begin = script.next_seq[CLIENT]
    script.send(CLIENT, METADATA[:14])
    script.send(CLIENT, b"\xff" * 14, seq=begin)
    script >> from_client(METADATA[14:]) >> response(corr=1)
    script << call(status="ok", correlation_id=1) << anomaly("overlap_differs", packet=5)
    script.nothing_more()


def test_segments_out_of_order_are_put_in_order() -> None:
    script = (
        play() >> handshake() >> from_client(METADATA[:5], METADATA[5:9], METADATA[9:]) >> response(corr=1)
    )
    first, second, third = script.segments[3:6]
    script.segments[3:6] = renumber(script.segments[3:6], [third, first, second])
    script << call(status="ok", request_packet=6, request_bytes=24)
    script.nothing_more()


def renumber(old: Sequence[Segment], new: Sequence[Segment]) -> list[Segment]:
    """Segments in a new order, with the packet numbers and times of the old."""
    return [replace(n, packet=o.packet, time=o.time) for o, n in zip(old, new, strict=True)]


def test_keep_alives_change_nothing() -> None:
    script = play() >> handshake() >> request(corr=1)
    script.send(CLIENT, b"", seq=script.next_seq[CLIENT] - 1)
    script.send(CLIENT, b"\0", seq=script.next_seq[CLIENT] - 1)
    script >> ack(BROKER) >> response(corr=1) << call(status="ok")
    script.nothing_more()


def test_sequence_numbers_wrap() -> None:
    script = play()
    script.next_seq = [2**32 - 30, 2**32 - 10]
    script >> handshake()
    for corr in range(1, 5):
        script >> request(corr=corr) >> response(corr=corr)
    for corr in range(1, 5):
        script << call(correlation_id=corr, status="ok")
    script << connection(client_missing_bytes=0, broker_missing_bytes=0)
    script.nothing_more()


def test_a_gap_inside_a_known_frame_marks_the_frame_and_nothing_else() -> None:
    answer = kafka_response(1, BIG)
    script = (
        play()
        >> handshake()
        >> request(corr=1)
        >> from_broker(answer[:100])
        >> lost_from_broker(answer[100:200])
    )
    script >> from_broker(answer[200:]) >> ack(CLIENT) >> wait(2) >> request(corr=2) >> response(corr=2)
    (
        script
        << call(correlation_id=1, status="truncated", response_bytes=len(answer), latency_us=1000.0)
        << call(correlation_id=2, status="ok")
        << anomaly("gap", detail="100 bytes from the broker")
        << connection(broker_missing_bytes=100, resynchronisations=0)
    ).nothing_more()


def test_after_a_gap_that_swallows_a_header_the_next_frame_is_found() -> None:
    script = (
        play()
        >> handshake()
        >> request(corr=1)
        >> response(corr=1)
        >> lost_from_client(METADATA + METADATA[:7])
    )
    script >> from_client(METADATA[7:]) >> request(corr=4) >> ack(BROKER) >> wait(2) >> response(corr=4)
    (
        script
        << call(correlation_id=1, status="ok") << call(correlation_id=4, status="ok")
        << anomaly("gap") << anomaly("resynchronised", detail="17 bytes skipped of the request stream")
        << connection(client_missing_bytes=31, skipped_bytes=17, resynchronisations=1)
    ).nothing_more()  # fmt: skip


def test_a_hole_is_filled_by_a_late_retransmission() -> None:
    script = play() >> handshake() >> request(corr=1)
    begin = script.next_seq[BROKER]
    script.next_seq[BROKER] += 10
    script >> from_broker(ANSWER[10:]) >> wait(5)
    script.send(BROKER, ANSWER[:10], seq=begin)
    script << call(status="ok", response_packet=6, latency_us=5_002_000.0)
    script.nothing_more()


def test_a_snap_length_costs_the_bodies_but_not_the_latencies() -> None:
    script = play() >> handshake()
    answer = kafka_response(1, BIG)
    script >> from_client(METADATA[:14], length=len(METADATA)) >> from_broker(answer[:20], length=len(answer))
    script >> request(corr=2) >> response(corr=2)
    (
        script
        << call(
            correlation_id=1,
            status="truncated",
            latency_us=1000.0,
            response_bytes=len(answer),
            api="Metadata",
        )
        << call(correlation_id=2, status="ok")
    ).nothing_more()


def test_an_impossible_length_is_reported_and_framing_found_again() -> None:
    script = (
        play()
        >> handshake()
        >> request(corr=1)
        >> response(corr=1)
        >> from_client(b"\xff\xff\xff\xff" + b"junk")
    )
    script >> request(corr=2) >> response(corr=2)
    (
        script
        << call(correlation_id=1) << call(correlation_id=2, status="ok")
        << anomaly("frame_size_invalid", packet=6) << anomaly("resynchronised", packet=7)
    ).nothing_more()  # fmt: skip


def test_a_frame_cut_by_the_end_of_the_capture_is_truncated() -> None:
    (
        play() >> handshake() >> request(corr=1) >> from_broker(kafka_response(1, BIG)[:50])
        << call(status="truncated", latency_us=1000.0, duration_us=None) << anomaly("frame_incomplete")
    ).nothing_more()  # fmt: skip


def test_a_frame_over_the_limit_is_not_kept_but_counted() -> None:
    answer = kafka_response(1, pack(">ii", 0, 0) + bytes(5000))
    script = play(max_connection_bytes=1000) >> handshake() >> request(corr=1)
    for start in range(0, len(answer), 700):
        script >> from_broker(answer[start : start + 700])
    script >> request(corr=2) >> response(corr=2)
    (
        script
        << call(correlation_id=1, status="truncated", response_bytes=len(answer), duration_us=8000.0)
        << call(correlation_id=2, status="ok") << anomaly("frame_too_large", packet=5)
    ).nothing_more()  # fmt: skip


def test_packet_time_that_runs_backwards_is_reported_once() -> None:
    script = play() >> handshake() >> wait(100) >> request(corr=1) >> wait(-50) >> response(corr=1)
    script >> request(corr=2) >> response(corr=2)
    # The response is earlier than its request, too.
    script << anomaly("time_backwards", packet=5) << anomaly("clocks_differ", packet=5) << call() << call()
    script.nothing_more()


@pytest.mark.parametrize("cut", range(1, len(METADATA)))
def test_the_length_prefix_and_every_other_byte_may_be_split(cut: int) -> None:
    script = play() >> handshake() >> from_client(METADATA[:cut], METADATA[cut:]) >> response(corr=1)
    script << call(status="ok", request_packet=5, client_id="tester")
    script.nothing_more()


# Laws


@st.composite
def conversations(draw: st.DrawFn) -> Play:
    """A connection of several calls, with pipelining and segments of any size."""
    script = play() >> handshake()
    apis = [key for key in BODIES if key[0] != 17]
    pending: list[tuple[int, int, int]] = []
    corr = 0
    for _ in range(draw(st.integers(1, 12))):
        if pending and draw(st.booleans()):
            api, version, answered = pending.pop(0)
            _send(draw, script, BROKER, kafka_response(answered, BODIES[api, version][1]))
        else:
            api, version = draw(st.sampled_from(apis))
            corr += 1
            pending.append((api, version, corr))
            _send(draw, script, CLIENT, kafka_request(api, version, corr, BODIES[api, version][0]))
    for side in (CLIENT, BROKER):
        ending = draw(st.sampled_from([None, fin, rst]))
        if ending:
            script >> ending(side)
    return script


def _send(draw: st.DrawFn, script: Play, side: int, data: bytes) -> None:
    cuts = sorted({0, len(data), *draw(st.lists(st.integers(1, len(data) - 1), max_size=3))})
    for begin, end in itertools.pairwise(cuts):
        script.send(side, data[begin:end])


def calls(
    events: list[dict[str, Any]], without: frozenset[str] | set[str] = frozenset()
) -> list[tuple[Any, ...]]:
    kept = [row for row in events if row["event"] == "call"]
    return sorted(
        (tuple((k, str(v)) for k, v in row.items() if k not in without) for row in kept),
        key=lambda row: str(row),
    )


@settings(max_examples=examples(150))
@given(conversations(), st.lists(st.integers(1, 60), max_size=6))
def test_events_do_not_depend_on_how_segments_are_batched(script: Play, cuts: list[int]) -> None:
    whole = run(script.segments)
    assert sorted(map(str, run(script.segments, cuts=cuts))) == sorted(map(str, whole))
    assert sorted(map(str, run(script.segments, cuts=range(100)))) == sorted(map(str, whole))


@settings(max_examples=examples(150))
@given(conversations(), st.data())
def test_duplicated_segments_give_the_same_calls(script: Play, data: st.DataObject) -> None:
    doubled: list[Segment] = []
    for segment in script.segments:
        doubled += [segment] * data.draw(st.integers(1, 2))
    assert calls(run(doubled)) == calls(run(script.segments))


@settings(max_examples=examples(200))
@given(conversations(), st.data())
def test_segments_reordered_within_the_window_give_the_same_calls(script: Play, data: st.DataObject) -> None:
    """Each packet keeps its number and time; only its place in the capture changes, after the handshake."""
    moved = list(script.segments)
    for _ in range(data.draw(st.integers(1, 4))):
        index = data.draw(st.integers(3, len(moved) - 1))
        moved.insert(min(len(moved), index + data.draw(st.integers(0, 5))), moved.pop(index))
    # A response that the broker sent is never captured long before its request, so pairs stay possible.
    assert calls(run(moved), ARRIVAL) == calls(run(script.segments), ARRIVAL)


ARRIVAL = {
    "in_flight",
    "request_packet",
    "response_packet",
    "request_end_time",
    "response_end_time",
    "latency_us",
    "duration_us",
    "request_transfer_us",
    "queued_us",
    "throttled_us",
    "waited_us",
    "broker_us",
    "broker_least_us",
    "response_transfer_us",
    "waited_open_us",
}
"""What may differ when packets come in another order: which of them completes a message, and what is measured
from there."""


@settings(max_examples=examples(150))
@given(conversations(), st.data())
def test_whatever_is_lost_no_call_is_invented(script: Play, data: st.DataObject) -> None:
    kept = [segment for segment in script.segments if data.draw(st.integers(0, 9)) > 1]
    known = {(row["api"], row["correlation_id"]) for row in run(script.segments) if row["event"] == "call"}
    seen = [row for row in run(kept) if row["event"] == "call" and row["status"] != "orphan"]
    assert {(row["api"], row["correlation_id"]) for row in seen} <= known
    assert len(seen) <= len(known)


def test_a_damaged_sequence_number_does_not_carry_the_stream_away() -> None:
    script = play() >> handshake() >> request(corr=1) >> response(corr=1)
    stray = script.next_seq[CLIENT] + 300_000_000
    script >> from_client(b"stray bytes", seq=stray) >> ack(BROKER)
    for corr in range(2, 60):
        script >> request(corr=corr) >> response(corr=corr)
    calls = [row for row in script.events() if row["event"] == "call"]
    assert [(row["correlation_id"], row["status"]) for row in calls] == [
        (corr, "ok") for corr in range(1, 60)
    ]


def test_a_stream_with_many_holes_does_not_fall_behind() -> None:
    """However many holes came before: a call is told a few packets after its response."""
    script, calls = play() >> handshake(), 300
    for corr in range(1, calls + 1):
        script >> request(corr=corr)
        script >> (lost_from_broker(ANSWER) if corr % 3 == 0 else response(corr=corr))
    taken: list[int] = []

    def batches() -> Iterator[pa.RecordBatch]:
        for segment in script.segments:
            taken.append(segment.packet)
            yield batch([segment])

    late = [
        taken[-1] - row["response_packet"]
        for events in analyze(batches(), Config())
        for row in events.to_pylist()
        if row["event"] == "call" and row["status"] == "ok"
    ]
    assert len(late) == calls * 2 // 3
    assert max(late) <= 2 * Config().reorder_packets


def test_a_list_of_small_numbers_behind_a_gap_is_no_response() -> None:
    """The request of the response that lies here was lost; another waits whose number stands in it."""
    answer = kafka_response(3, pack(">ii", 0, 700) + pack(">ii", 4, 2) * 40 + bytes(400))
    script = play() >> handshake() >> request(corr=1) >> response(corr=1) >> request(corr=2)
    script >> lost_from_client(METADATA) >> lost_from_broker(ANSWER)
    script >> from_broker(answer[:336], answer[336:])
    script >> request(corr=4) >> response(corr=4)
    script << call(correlation_id=1, status="ok")
    assert {
        (row["correlation_id"], row["status"], row["response_packet"])
        for row in script.events()
        if row["event"] == "call"
    } == {(1, "ok", 5), (2, "unanswered", None), (4, "ok", 10)}


def test_a_stream_goes_on_behind_a_very_long_hole() -> None:
    script = play() >> handshake() >> request(corr=1) >> response(corr=1)
    script.next_seq[CLIENT] += 300_000_000
    for corr in range(2, 60):
        script >> request(corr=corr) >> response(corr=corr)
    calls = [row for row in script.events() if row["event"] == "call"]
    assert {row["correlation_id"] for row in calls if row["status"] == "ok"} == set(range(1, 60))


@pytest.mark.parametrize("client_first", [True, False])
def test_an_anomaly_before_the_verdict_names_the_client_however_segments_are_batched(
    client_first: bool,
) -> None:
    # On an unknown port only the response shows who is the client; the anomaly comes before it.
    asked = kafka_request(3, 0, 7, pack(">i", 0))
    script = play(ports=())
    script >> from_client(asked[:12]) >> from_client(b"\1" * 12, seq=1000) >> from_client(asked[12:])
    script >> response(corr=7)
    hosts = (0x0A000001, 0x0A000002) if client_first else (0x0A000002, 0x0A000001)
    segments = [replace(each, hosts=hosts) for each in script.segments]
    for cuts in ([], [2], range(len(segments))):
        rows = run(segments, script.config, cuts)
        told = [row["client_ip"] for row in rows if row["event"] == "anomaly"]
        assert told == ["10.0.0.1" if client_first else "10.0.0.2"]
