"""Headers that say what cannot be, as in injected or damaged segments: what they cost is what they hit.

Each case compiled, in one batch and segment by segment, and interpreted.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from struct import pack
from typing import Any

import pytest

from kwsniff.config import Config
from tests.playbook import (
    BODIES,
    BROKER,
    CLIENT,
    SYN,
    Play,
    Segment,
    ack,
    fin,
    from_broker,
    from_client,
    handshake,
    kafka_request,
    lost_from_client,
    play,
    request,
    response,
    rst,
    run,
    stamped,
    wait,
)  # fmt: skip

ACK, RST = 16, 4
PRODUCE_HEAD = pack(">hii", 1, 1000, 1) + pack(">h1sii", 1, b"t", 1, 0)
"""A Produce v0 body up to the size of its one record set: acks, timeout, one topic, one partition."""


def named(corr: int, client_id: str = "tester") -> bytes:
    return kafka_request(3, 0, corr, BODIES[3, 0][0], client_id)


def exchanges(script: Play, first: int, last: int) -> Play:
    for corr in range(first, last + 1):
        script >> request(corr=corr) >> response(corr=corr)
    return script


def altered(script: Play, index: int, **changes: Any) -> list[Segment]:
    """The segments, one of them with other header fields."""
    segments = list(script.segments)
    segments[index] = replace(segments[index], **changes)
    return segments


def statuses(segments: list[Segment]) -> dict[int, str]:
    """Status of each call by correlation id; every way through a connection must tell the same."""
    told = []
    for which, cuts in (("always", []), ("never", []), ("always", range(len(segments)))):
        rows = run(segments, Config(kernels=which), cuts)
        calls = [(row["correlation_id"], row["status"]) for row in rows if row["event"] == "call"]
        assert len(dict(calls)) == len(calls), calls
        told.append(dict(calls))
    assert told[0] == told[1] == told[2]
    return told[0]


def all_ok(first: int, last: int) -> dict[int, str]:
    return dict.fromkeys(range(first, last + 1), "ok")


REQUEST_5 = 3 + 2 * 4
"""Place of the fifth request behind a handshake."""


def test_a_request_a_little_ahead_does_not_hide_the_one_that_belongs_there() -> None:
    script = exchanges(play() >> handshake(), 1, 40)
    seq = script.segments[REQUEST_5].seq
    found = statuses(altered(script, REQUEST_5, seq=seq + 60))
    assert set(range(1, 41)) - {5} <= set(found)


@pytest.mark.parametrize("away", [-900_000, -40, 1 << 21, 1 << 30, -(1 << 30)])
def test_a_request_with_a_wrong_sequence_number_costs_itself_alone(away: int) -> None:
    script = exchanges(play() >> handshake(), 1, 40)
    seq = script.segments[REQUEST_5].seq
    found = statuses(altered(script, REQUEST_5, seq=(seq + away) % 2**32))
    assert {number for number, status in found.items() if status == "ok"} == set(range(1, 41)) - {5}


@pytest.mark.parametrize("side", [CLIENT, BROKER])
@pytest.mark.parametrize("away", [-(1 << 20), 5000, 1 << 24])
def test_a_wrong_number_in_the_syn_costs_no_request(side: int, away: int) -> None:
    script = exchanges(play() >> handshake(), 1, 40)
    seq = script.segments[side].seq
    assert set(statuses(altered(script, side, seq=(seq + away) % 2**32))) >= set(range(1, 41))


def test_an_undamaged_copy_of_a_request_that_was_out_of_place_counts_once() -> None:
    script = exchanges(play() >> handshake(), 1, 10)
    segments = list(script.segments)
    whole = segments[REQUEST_5]
    segments[REQUEST_5] = replace(whole, seq=whole.seq - 500_000)
    segments.insert(REQUEST_5 + 1, whole)
    assert statuses(segments) == all_ok(1, 10)


def test_copies_of_requests_in_pieces_are_copies() -> None:
    whole = kafka_request(0, 0, 2, PRODUCE_HEAD + pack(">i", 900) + bytes(900))
    script = exchanges(play() >> handshake(), 1, 1)
    for at in range(0, len(whole), 100):
        piece, seq = whole[at : at + 100], script.next_seq[CLIENT]
        script >> from_client(piece) >> from_client(piece, seq=seq) >> from_client(whole[:100], seq=seq - at)
    script >> response(corr=2, api=0, body=pack(">i", 0))
    assert statuses(exchanges(script, 3, 12).segments) == all_ok(1, 12)


def test_copies_of_requests_that_all_have_the_correlation_id_minus_one_are_copies() -> None:
    script = play() >> handshake()
    for _ in range(12):
        seq = script.next_seq[CLIENT]
        script >> from_client(named(-1)) >> from_client(named(-1), seq=seq) >> response(corr=-1)
    rows = run(script.segments)
    assert Counter(row["status"] for row in rows if row["event"] == "call") == {"ok": 12}


def test_an_acknowledgement_from_nowhere_does_not_give_up_a_hole() -> None:
    script = exchanges(play() >> handshake(), 1, 5) >> ack(BROKER)
    damaged = len(script.segments) - 1
    late = len(script.segments)
    script = exchanges(script, 6, 40)
    segments = altered(script, damaged, ack=script.segments[damaged].ack + (1 << 29))
    # The sixth request comes 30 packets late, and the broker acknowledges nothing of what lies behind it.
    held = segments.pop(late)
    waiting = [replace(each, ack=held.seq) if each.side == BROKER else each for each in segments[late:]]
    found = statuses([*segments[:late], *waiting[:30], held, *waiting[30:]])
    assert found == all_ok(1, 40)


@pytest.mark.parametrize("flags", [RST | ACK, SYN | ACK, SYN, RST | SYN])
@pytest.mark.parametrize("place", [REQUEST_5, REQUEST_5 + 1])
def test_a_wrong_flag_does_not_end_a_connection_that_goes_on(flags: int, place: int) -> None:
    script = exchanges(play() >> handshake(), 1, 8) >> wait(3)
    script = exchanges(script, 9, 40)
    assert set(range(1, 41)) - {5} <= set(statuses(altered(script, place, flags=flags)))


def test_a_connection_that_goes_on_after_two_wrong_fins_is_read_on() -> None:
    script = exchanges(play() >> handshake(), 1, 5)
    segments = list(script.segments)
    for place in (-2, -1):
        segments[place] = replace(segments[place], flags=ACK | 1)
    more = exchanges(script, 6, 40).segments[len(segments) :]
    assert statuses([*segments, *more]) == all_ok(1, 40)


def test_stragglers_of_a_closed_connection_begin_no_new_one() -> None:
    script = exchanges(play() >> handshake(), 1, 5)
    copies = list(script.segments)
    script >> fin(CLIENT) >> fin(BROKER) >> rst(CLIENT) >> wait(3)
    late = [replace(each, packet=100 + each.packet, time=script.clock) for each in copies]
    rows = run([*script.segments, *late])
    assert len([row for row in rows if row["event"] == "connection"]) == 1
    assert len([row for row in rows if row["event"] == "call"]) == 5


def test_record_data_that_looks_like_a_request_stays_record_data() -> None:
    inner = kafka_request(3, 0, 1, BODIES[3, 0][0])  # of another connection, so its number is not due
    data = b"".join(inner for _ in range(20))
    whole = kafka_request(0, 0, 50, PRODUCE_HEAD + pack(">i", len(data)) + data)
    head = len(whole) - len(data)
    pieces = [whole[:head], *(data[at : at + len(inner)] for at in range(0, len(data), len(inner)))]
    script = exchanges(play() >> handshake(), 40, 49) >> from_client(*pieces)
    script >> response(corr=50, api=0, body=pack(">i", 0))
    assert statuses(exchanges(script, 51, 60).segments) == all_ok(40, 60)


@pytest.mark.parametrize("place", [14, 15, 17, 19])
def test_a_damaged_client_id_does_not_keep_a_first_request_from_being_seen(place: int) -> None:
    damaged = bytearray(named(1))
    damaged[place] = 0x07
    script = play() >> handshake() >> from_client(bytes(damaged)) >> response(corr=1)
    assert statuses(exchanges(script, 2, 10).segments) == all_ok(1, 10)


def test_a_damaged_client_id_does_not_keep_framing_from_being_found() -> None:
    damaged = bytearray(named(3))
    damaged[15] = 0xFF
    script = exchanges(play(), 1, 1) >> from_client(pack(">i", -5) + bytes(40)) >> from_client(bytes(damaged))
    script >> response(corr=3)
    assert set(statuses(exchanges(script, 4, 10).segments)) >= {1, *range(3, 11)}


def test_a_syn_of_the_broker_alone_does_not_make_it_the_client() -> None:
    script = exchanges(play() >> handshake(), 1, 10)
    segments = altered(script, 1, flags=SYN)[1:]  # the SYN-ACK without its ACK, and the SYN lost
    assert set(statuses(segments)) >= set(range(1, 11))


def test_a_tls_alert_does_not_say_that_the_client_speaks_tls() -> None:
    refusal = bytes.fromhex("15030300020246")
    script = play() >> handshake() >> request(18, corr=1) >> from_broker(refusal)
    asked, refused = script.segments[-2:]
    rows = run([*script.segments[:-2], refused, asked])
    calls = [row for row in rows if row["event"] == "call"]
    assert [(row["api"], row["status"]) for row in calls] == [("ApiVersions", "unanswered")]
    assert [row["security"] for row in rows if row["event"] == "connection"] == ["plaintext"]


def test_what_lies_behind_a_hole_that_nobody_acknowledged_was_never_read() -> None:
    script = exchanges(play() >> handshake(), 1, 3) >> lost_from_client(named(4)) >> request(corr=5)
    rows = run(script.segments)
    assert [row["correlation_id"] for row in rows if row["event"] == "call"] == [1, 2, 3]
    assert [row["code"] for row in rows if row["event"] == "anomaly"] == []


def test_what_lies_behind_a_hole_that_was_acknowledged_was_lost_by_the_capture() -> None:
    script = (
        exchanges(play() >> handshake(), 1, 3) >> lost_from_client(named(4)) >> request(corr=5) >> ack(BROKER)
    )
    rows = run(script.segments)
    assert [row["correlation_id"] for row in rows if row["event"] == "call"] == [1, 2, 3, 5]
    assert "gap" in {row["code"] for row in rows if row["event"] == "anomaly"}


def test_a_first_request_that_a_reset_cut_off_is_not_called_something_else() -> None:
    whole = kafka_request(0, 0, 1, PRODUCE_HEAD + bytes(1000), "")
    script = play() >> handshake() >> from_client(whole[:500]) >> rst(CLIENT)
    assert [row["code"] for row in run(script.segments) if row["event"] == "anomaly"] == []


def test_an_rst_that_comes_before_the_bytes_before_it_is_dated_by_itself() -> None:
    script = play() >> handshake() >> request(corr=1) >> rst(CLIENT) >> fin(BROKER)
    asked, *rest = script.segments[3:]
    (end,) = [row for row in run([*script.segments[:3], *rest, asked]) if row["event"] == "connection"]
    assert end["closed_by"] == "client_rst"


def test_of_two_resets_that_cross_the_earlier_one_ended_the_connection() -> None:
    script = play() >> handshake() >> request(corr=1) >> rst(CLIENT) >> rst(BROKER)
    *before, first, second = script.segments
    (end,) = [row for row in run([*before, second, first]) if row["event"] == "connection"]
    assert end["closed_by"] == "client_rst"


@pytest.mark.parametrize("begin", [1000, 2**32 - 3])
def test_a_segment_from_before_the_syn_is_of_an_earlier_connection(begin: int) -> None:
    """Its timestamp says so, where its sequence number fits (RFC 7323, 5.3)."""
    script = exchanges(play() >> handshake(), 1, 3) >> request(corr=66) >> request(corr=4)
    segments = stamped(script.segments, begin)
    late, asked = segments[-2:]
    asked = replace(asked, seq=late.seq, packet=late.packet)
    late = replace(late, tsval=begin - 1, packet=asked.packet + 1)
    assert statuses([*segments[:-2], late, asked]) == all_ok(1, 3) | {4: "unanswered"}
    assert statuses([*segments[:-2], replace(late, tsval=begin), asked]) == all_ok(1, 3) | {66: "unanswered"}


def test_a_reset_counts_whatever_its_timestamp() -> None:
    segments = stamped((exchanges(play() >> handshake(), 1, 3) >> rst(CLIENT)).segments)
    segments[-1] = replace(segments[-1], tsval=1)
    (end,) = [row for row in run(segments) if row["event"] == "connection"]
    assert end["closed_by"] == "client_rst"


def test_timestamps_that_came_round_are_no_old_ones() -> None:
    script = exchanges(play() >> handshake(), 1, 3) >> wait(700)
    exchanges(script, 4, 6)
    segments = stamped(script.segments)
    segments = segments[:9] + [replace(each, tsval=each.tsval + 2**31) for each in segments[9:]]
    assert statuses(segments) == all_ok(1, 6)


@pytest.mark.parametrize("times", [1, 2])
def test_bytes_with_an_acknowledgement_of_what_was_never_sent_are_refused(times: int) -> None:
    """RFC 9293, 3.10.7.4; also where the capture holds each packet twice."""
    script = exchanges(play() >> handshake(), 1, 3) >> request(corr=66) >> request(corr=4) >> response(corr=4)
    *before, forged, asked, answered = script.segments
    asked = replace(asked, seq=forged.seq)
    answered = replace(answered, ack=asked.seq + len(asked.data))
    forged = replace(forged, ack=forged.ack + (1 << 28))
    segments = [*before, *[forged] * times, asked, answered]
    assert statuses([replace(each, packet=at + 1) for at, each in enumerate(segments)]) == all_ok(1, 4)


def test_a_client_goes_on_after_megabytes_that_the_capture_lacks() -> None:
    script = exchanges(play() >> handshake(), 1, 3)
    script.next_seq[BROKER] += 5 << 20
    exchanges(script, 4, 9)
    assert statuses(script.segments) == all_ok(1, 3) | {4: "orphan"} | all_ok(5, 9)


def test_what_answers_an_earlier_syn_is_of_an_earlier_connection() -> None:
    """A client that reset a connection may use its port again before the broker's answer comes."""
    old = play() >> handshake() >> request(corr=1) >> rst(CLIENT) >> response(corr=1)
    syn, answer, _, asked, reset, late = old.segments
    new = play() >> handshake() >> request(corr=2) >> response(corr=2)
    later = [replace(each, seq=each.seq + 70_000, ack=each.ack + 70_000) for each in new.segments]
    segments = [syn, asked, reset, replace(later[0], ack=0), answer, late, *later[1:]]
    segments = [replace(each, packet=at + 1, time=syn.time + at) for at, each in enumerate(segments)]
    rows = run(segments)
    calls = [row for row in rows if row["event"] == "call"]
    assert [(row["correlation_id"], row["status"]) for row in calls] == [(1, "unanswered"), (2, "ok")]
    assert [row["code"] for row in rows if row["event"] == "anomaly"] == []
