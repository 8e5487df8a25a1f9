"""Conversations cut before each of their segments: what happens at a cut is what one process says of it."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from kwsniff.engine.tables import QUIET
from kwsniff.run import part
from kwsniff.run.part import SplitReader
from tests.hostile.wire import Flow
from tests.parts.compare import SEED, SMALL, Outcome, differences
from tests.parts.traffic import ACK, FIN, RST, Talk, api_versions, no_versions, request, response
from tests.strength import ALL

SECOND = 10**9
LONG = 15
"""Exchanges after which the state of a connection is known."""


def plain() -> Talk:
    talk, flow = Talk(), Flow()
    talk.open(flow)
    talk.add(flow.send(0, api_versions(0)))
    talk.add(flow.send(1, no_versions(0)))
    talk.exchange(flow, 1, 40)
    talk.add(flow.send(0, b"", FIN | ACK))
    talk.add(flow.send(1, b"", FIN | ACK))
    return talk


def pipelined() -> Talk:
    """Three requests are always on their way."""
    talk, flow = Talk(), Flow()
    talk.open(flow)
    for number in range(40):
        talk.add(flow.send(0, request(number)))
        if number > 2:
            talk.add(flow.send(1, response(number - 3)))
    return talk


def unaligned() -> Talk:
    """Segments end anywhere in a frame."""
    talk, flow = Talk(), Flow()
    talk.open(flow)
    sent = b"".join(map(request, range(60)))
    said = b"".join(map(response, range(60)))
    step = len(said) // 50
    for at in range(0, len(sent), len(sent) // 50):
        talk.add(flow.send(0, sent[at : at + len(sent) // 50]))
        talk.add(flow.send(1, said[at * step // (len(sent) // 50) :][:step]))
    return talk


def reused() -> Talk:
    """A new connection on the same ports, by a SYN and then after long silence."""
    talk, flow = Talk(), Flow()
    talk.open(flow)
    talk.exchange(flow, 0, LONG)
    flow.sent = [5_000_001, 7_000_001]
    talk.open(flow)
    talk.exchange(flow, 0, LONG)
    flow.time_ns += 700 * SECOND
    talk.exchange(flow, 500, LONG)
    return talk


def reset() -> Talk:
    talk, flow = Talk(), Flow()
    talk.open(flow)
    talk.exchange(flow, 0, LONG)
    talk.add(flow.send(0, request(100)))
    talk.add(flow.send(1, b"", RST))
    talk.add(flow.send(1, response(100)))
    flow.time_ns += 70 * SECOND
    talk.exchange(flow, 0, LONG)
    return talk


def lost() -> Talk:
    """Segments of both sides are missing, and acknowledged all the same."""
    talk, flow = Talk(), Flow()
    talk.open(flow)
    talk.exchange(flow, 0, LONG)
    flow.send(0, request(100))
    talk.exchange(flow, 101, LONG)
    flow.send(1, response(200))
    talk.exchange(flow, 201, LONG)
    talk.add(flow.send(1, response(7)))  # nobody asked
    flow.time_ns += 2 * SECOND
    talk.exchange(flow, 301, LONG)
    return talk


def swapped() -> Talk:
    """Segments out of order, the response before its request among them."""
    talk, flow = Talk(), Flow()
    talk.open(flow)
    for number in range(0, 60, 2):
        records = [flow.send(0, request(number)), flow.send(1, response(number))]
        records += [flow.send(0, request(number + 1)), flow.send(1, response(number + 1))]
        talk.records += [records[index] for index in ((1, 0, 2, 3), (0, 1, 3, 2), (0, 2, 1, 3))[number % 3]]
    return talk


def repeated() -> Talk:
    """A retransmission from long ago that is not what was sent."""
    talk, flow = Talk(), Flow()
    talk.open(flow)
    talk.exchange(flow, 0, LONG)
    at = flow.sent[0]
    talk.exchange(flow, 100, LONG)
    talk.add(flow.send(0, request(-1), seq=at))
    talk.add(flow.send(0, b"\0", seq=flow.sent[0] - 1))
    talk.exchange(flow, 200, LONG)
    return talk


def deep() -> Talk:
    """Forty requests are always on their way, several in a segment."""
    talk, flow = Talk(), Flow()
    talk.open(flow)
    for number in range(0, 120, 2):
        talk.add(flow.send(0, request(number) + request(number + 1)))
        if number >= 40:
            talk.add(flow.send(1, response(number - 40) + response(number - 39)))
    return talk


def lost_deep(skipped: int = 90) -> Talk:
    """Five requests are always on their way. A response is lost; much later the broker passes a request over,
    which shows what was lost before: not one more. Some wait at the end."""
    talk, flow = Talk(), Flow()
    talk.open(flow)
    for number in range(120):
        talk.add(flow.send(0, request(number)))
        if number == 45:
            flow.send(1, response(40))
        elif number > 4 and number != skipped:
            talk.add(flow.send(1, response(number - 5)))
    talk.add(flow.send(0, b"", FIN | ACK))
    talk.add(flow.send(1, b"", FIN | ACK))
    return talk


def unasked(number: int) -> bytes:
    """Produce with acks=0."""
    body = b"\xff\xff\0\0" + struct.pack(">i", 1000) + struct.pack(">i", 0)
    return request(number, key=0, version=3, body=body)


def quiet() -> Talk:
    """Produce with acks=0; some other requests are answered late, the last one never."""
    talk, flow = Talk(), Flow()
    talk.open(flow)
    for number in range(120):
        talk.add(flow.send(0, request(number) if number in (30, 75, 100) else unasked(number)))
        talk.add(flow.send(1, response({45: 30, 77: 75}[number]) if number in (45, 77) else b""))
    return talk


def quiet_to_the_end() -> Talk:
    """Produce with acks=0; a request that is never answered waits until the connection is closed."""
    talk, flow = Talk(), Flow()
    talk.open(flow)
    for number in range(60):
        talk.add(flow.send(0, request(number) if number == 10 else unasked(number)))
        talk.add(flow.send(1, b""))
    talk.add(flow.send(0, b"", FIN | ACK))
    talk.add(flow.send(1, b"", FIN | ACK))
    return talk


def unanswered() -> Talk:
    """Produce with acks=0: the broker only acknowledges, but once it does answer."""
    talk, flow = Talk(), Flow()
    talk.open(flow)
    for number in range(90):
        talk.add(flow.send(0, unasked(number)))
        talk.add(flow.send(1, b""))
        if number == 80:
            talk.add(flow.send(1, response(3)))
    return talk


def resent() -> Talk:
    """Produce with acks=0, of which the client sends some again, once other bytes."""
    talk, flow = Talk(), Flow()
    talk.open(flow)
    for number in range(90):
        at = flow.sent[0]
        talk.add(flow.send(0, unasked(number)))
        if number in (31, 52, 70):
            talk.add(flow.send(0, unasked(5 if number == 70 else number), seq=at))
        talk.add(flow.send(1, b""))
    return talk


def short_frames() -> Talk:
    """A length that only the first frames of a connection may have."""
    talk, flow = Talk(), Flow()
    talk.open(flow)
    talk.exchange(flow, 0, 14)
    talk.add(flow.send(0, struct.pack(">i", 2) + b"ab"))
    talk.exchange(flow, 100, LONG)
    return talk


def foreign() -> Talk:
    """TLS on a Kafka port, and something else on another."""
    talk, flow, other = Talk(), Flow(), Flow(number=2, port=80)
    talk.open(flow)
    talk.open(other)
    talk.add(flow.send(0, b"\x16\x03\x01\x00\x05hello"))
    for _ in range(30):
        talk.add(flow.send(1, b"\x17\x03\x03\x00\x30" + b"x" * 48))
        talk.add(other.send(0, b"GET / HTTP/1.1\r\n" * 200))
    return talk


def interleaved() -> Talk:
    """Connections that come and go; one is silent for a while."""
    talk = Talk()
    flows = [Flow(number=number) for number in range(3)]
    for flow in flows:
        talk.open(flow)
    for number in range(8):
        for flow in flows[: 1 if 3 <= number < 6 else 3]:
            talk.exchange(flow, 3 * number, 3)
    return talk


TALKS: list[Callable[[], Talk]] = [
    plain, pipelined, unaligned, reused, reset, lost, swapped, repeated, unanswered, short_frames, foreign,
    interleaved, deep, quiet, resent, lost_deep, quiet_to_the_end,
]  # fmt: skip


@pytest.mark.one_of(2)
@pytest.mark.parametrize("made", TALKS, ids=lambda made: made.__name__)
def test_a_cut_before_any_segment_changes_nothing(made: Callable[[], Talk], tmp_path: Path) -> None:
    talk = made()
    path = talk.write(tmp_path)
    for index in range(1, len(talk.records), 5 if ALL else 17):
        differences([path], talk.splits(path, [index]))


@pytest.mark.one_of(8)
@pytest.mark.parametrize("made", TALKS, ids=lambda made: made.__name__)
@pytest.mark.parametrize("step", [1, 2, 7, 23, 31])
def test_neither_do_several_cuts(made: Callable[[], Talk], step: int, tmp_path: Path) -> None:
    talk = made()
    path = talk.write(tmp_path)
    differences([path], talk.splits(path, range(step, len(talk.records), step)))


def outcome(talk: Talk, place: Path, *cuts: int) -> Outcome:
    path = talk.write(place)
    return differences([path], talk.splits(path, cuts))


def test_a_state_is_known_after_some_exchanges(tmp_path: Path) -> None:
    assert outcome(plain(), tmp_path, 20).again == 0


def test_requests_in_flight_at_a_cut_are_counted_right(tmp_path: Path) -> None:
    found = outcome(pipelined(), tmp_path, 31)
    assert found.again == 0
    flights = [row["in_flight"] for row in found.events.to_pylist() if row["event"] == "call"]
    assert max(flights) == 3


def test_requests_on_their_way_at_a_cut_do_not_count_for_those_after_it(tmp_path: Path) -> None:
    found = outcome(deep(), tmp_path, 70)
    assert found.again == 0
    calls = [row for row in found.events.to_pylist() if row["status"] == "ok"]
    assert {row["in_flight"] for row in calls if row["correlation_id"] >= 42} == {40, 41}


@pytest.mark.parametrize(("skipped", "cut", "again"), [(90, 130, 1), (90, 70, 0), (0, 130, 1), (0, 70, 0)])
def test_a_gap_before_a_cut_is_asked_for_where_it_matters(
    skipped: int, cut: int, again: int, tmp_path: Path
) -> None:
    """It says why requests are not answered: here those that were passed over, and those that wait at the end
    of the connection."""
    found = outcome(lost_deep(skipped), tmp_path, cut)
    assert found.again == again
    reasons = [row["unanswered_because"] for row in found.events.to_pylist() if row["status"] == "unanswered"]
    assert reasons
    assert set(reasons) == {"gap_in_responses"}


def test_a_gap_before_a_cut_goes_on_behind_it(tmp_path: Path) -> None:
    found = outcome(lost_deep(), tmp_path, 110, 140)
    reasons = [row["unanswered_because"] for row in found.events.to_pylist() if row["status"] == "unanswered"]
    assert reasons
    assert set(reasons) == {"gap_in_responses"}


@pytest.mark.parametrize(("cut", "again"), [(120, 0), (80, 0), (214, 0)])
def test_a_broker_that_says_nothing_is_believed_to_wait(cut: int, again: int, tmp_path: Path) -> None:
    found = outcome(quiet(), tmp_path, cut)
    assert found.again == again
    flights = [row["in_flight"] for row in found.events.to_pylist() if row["event"] == "call"]
    assert flights.count(1) == 15 + 2 + 19


def test_what_a_client_sends_again_says_nothing_of_its_quiet_broker(tmp_path: Path) -> None:
    talk = resent()
    path = talk.write(tmp_path)
    splits = talk.splits(path, [24])
    engine = part.PartEngine(SMALL, SEED, 1 << part.ORDER_BITS, first=False)
    told = sum(len(each.batch) for each in engine.part(SplitReader(splits, 1, SMALL).columns()))
    summary = engine.summary()
    assert (summary.lefts["quiet"].tolist(), len(summary.spare)) == ([QUIET], 0)
    assert told > 70
    differences([path], splits)


def test_what_waited_before_a_cut_is_told_when_its_connection_closes(tmp_path: Path) -> None:
    found = outcome(quiet_to_the_end(), tmp_path, 60)
    told = [row["correlation_id"] for row in found.events.to_pylist() if row["status"] == "unanswered"]
    assert told == [10]


def test_calls_after_a_cut_name_the_software_that_was_told_before_it(tmp_path: Path) -> None:
    found = outcome(plain(), tmp_path, 20)
    calls = [row for row in found.events.to_pylist() if row["event"] == "call"]
    assert {(row["software_name"], row["software_version"]) for row in calls} == {("library", "1.0")}


def test_a_head_too_long_to_keep_is_decoded_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(part, "MAX_HEAD", 100)
    assert outcome(plain(), tmp_path, 20, 40).again == 2
