"""Situations on whole connections that were told wrong, each as small as it goes."""

from __future__ import annotations

from struct import pack

import pytest

from tests.intact.conversations import batch, request, response, text
from tests.playbook import (
    ACK,
    BROKER,
    CLIENT,
    FIN,
    RST,
    SYN,
    Act,
    Play,
    anomaly,
    call,
    fin,
    from_broker,
    from_client,
    handshake,
    lost_from_broker,
    on_ports,
    play,
    rst,
    wait,
)

HEARTBEAT = text("group") + pack(">i", 1) + text("member")
API_VERSIONS = request(18, 0, 1, b"")


def opened(script: Play, ident: int = 1) -> Play:
    """A connection with its first call."""
    script >> handshake() >> from_client(request(18, 0, ident, b""))
    return script >> from_broker(response(ident, pack(">hi", 0, 0)))


def heartbeat(ident: int) -> bytes:
    return request(12, 0, ident, HEARTBEAT)


def beat(script: Play, *idents: int) -> Play:
    """A heartbeat and its answer for each id."""
    for ident in idents:
        script >> from_client(heartbeat(ident)) >> from_broker(response(ident, pack(">h", 0)))
    return script


def told_right(script: Play, *idents: int) -> None:
    """Each request is told once, answered, and nothing else is."""
    calls = [row for row in script.events() if row["event"] == "call"]
    assert sorted(row["correlation_id"] for row in calls) == sorted(idents)
    assert {row["status"] for row in calls} == {"ok"}
    assert [row["code"] for row in script.events() if row["event"] == "anomaly"] == []
    ends = [row for row in script.events() if row["event"] == "connection"]
    assert [
        (row["skipped_bytes"], row["client_missing_bytes"], row["broker_missing_bytes"]) for row in ends
    ] == [(0, 0, 0)] * len(ends)


def commit(ident: int, partitions: int, version: int = 7) -> tuple[bytes, bytes, list[int]]:
    """An OffsetCommit whose rows read like requests of a length of the partition, with the next ids; its
    response; where its rows begin."""
    head = text("group") + pack(">i", 1) + text("member")
    head += (text(None) if version >= 7 else pack(">q", -1)) + pack(">i", 1) + text("topic")
    rows = [
        pack(">iq", at, ident + at + 1)
        + (pack(">i", -1) if version >= 6 else b"")
        + text("" if at % 2 else None)
        for at in range(partitions)
    ]
    body = head + pack(">i", partitions) + b"".join(rows)
    frame = request(8, version, ident, body)
    starts, at = [], len(frame) - sum(map(len, rows))
    for row in rows:
        starts.append(at)
        at += len(row)
    answer = pack(">i", 1) + text("topic") + pack(">i", partitions)
    answer += b"".join(pack(">ih", at, 0) for at in range(partitions))
    return frame, response(ident, (pack(">i", 0) if version >= 3 else b"") + answer), starts


def produce(ident: int, values: list[bytes]) -> tuple[bytes, bytes]:
    records = batch(values)
    body = text(None) + pack(">hii", 1, 1000, 1) + text("topic") + pack(">iii", 1, 0, len(records)) + records
    answer = pack(">i", 1) + text("topic") + pack(">iihqqi", 1, 0, 0, 7, -1, 0)
    return request(0, 3, ident, body), response(ident, answer)


def fetch(ident: int, values: list[bytes], replica: int = -1) -> tuple[bytes, bytes]:
    body = pack(">iiiibi", replica, 500, 1, 1 << 20, 0, 1) + text("topic") + pack(">iiqi", 1, 0, 7, 1 << 20)
    records = batch(values)
    answer = pack(">ii", 0, 1) + text("topic") + pack(">iihqqii", 1, 0, 0, 900, 900, -1, len(records))
    return request(1, 4, ident, body), response(ident, answer + records)


def test_a_segment_that_begins_with_a_row_of_an_offset_commit_is_no_request() -> None:
    for version in (2, 7):
        frame, answer, rows = commit(700, 30, version)
        for row in rows[4:]:
            script = opened(play()) >> from_client(frame[:row], frame[row:]) >> from_broker(answer)
            told_right(beat(script, 701, 702, 703, 704, 705), 1, *range(700, 706))


def test_a_segment_that_begins_with_a_record_that_is_a_request_is_no_request() -> None:
    values = [heartbeat(51 + at) for at in range(20)]
    frame, answer = produce(50, values)
    for value in values:
        at = frame.index(value)
        script = opened(play()) >> from_client(frame[:at], frame[at:]) >> from_broker(answer)
        told_right(beat(script, 51, 52, 53, 54, 55), 1, *range(50, 56))


def test_a_part_of_an_offset_commit_that_is_sent_again_is_no_request() -> None:
    frame, answer, rows = commit(700, 60, 2)
    for row in rows[14:]:
        script = opened(play())
        seq = script.next_seq[CLIENT] + row
        script >> from_client(frame) >> from_client(frame[row : row + 400], seq=seq) >> from_broker(answer)
        told_right(beat(script, 701, 702, 703, 704, 705), 1, *range(700, 706))


def test_a_response_that_is_sent_again_whole_after_its_first_part_is_told_once() -> None:
    question, answer = fetch(2, [bytes(100)] * 30)
    for part in (1, 4, 8, 1448):
        script = opened(play()) >> from_client(question)
        seq = script.next_seq[BROKER]
        script >> from_broker(answer[:part], seq=seq) >> wait(0.2) >> from_broker(answer, seq=seq)
        script.next_seq[BROKER] += len(answer)
        told_right(beat(script, 3, 4, 5, 6, 7), 1, *range(2, 8))


def test_a_request_that_is_sent_again_whole_after_its_length_is_told_once() -> None:
    """A probe of a closed window is one byte, and a length may be written on its own."""
    for part in (1, 4):
        script = opened(play())
        seq = script.next_seq[CLIENT]
        script >> from_client(heartbeat(2)[:part], seq=seq) >> wait(1) >> from_client(heartbeat(2))
        script >> from_broker(response(2, pack(">h", 0)))
        told_right(beat(script, 3, 4), 1, 2, 3, 4)


def test_a_piece_of_a_fetch_response_sent_again_answers_nothing() -> None:
    """Its records hold the response that the next request waits for."""
    question, answer = fetch(2, [b"x" * 50, response(3, pack(">h", 35)), b"y" * 50])
    inside = answer.index(response(3, pack(">h", 35)))
    script = opened(play()) >> from_client(question)
    seq = script.next_seq[BROKER]
    script >> from_broker(answer[:inside], answer[inside:]) >> from_client(heartbeat(3))
    script >> from_broker(answer[inside : inside + 10], seq=seq + inside)
    script >> from_broker(response(3, pack(">h", 0)))
    told_right(beat(script, 4, 5), 1, 2, 3, 4, 5)


def test_correlation_ids_that_do_not_rise_in_packets_captured_twice_are_told_once() -> None:
    """Java clients number requests when they are made, not when they are sent."""
    frames, answers = [heartbeat(11), heartbeat(10)], [response(ident, pack(">h", 0)) for ident in (11, 10)]
    for at_once in (False, True):
        script = opened(play(), 1)
        for side, pieces in ((CLIENT, frames), (BROKER, answers)):
            start = script.next_seq[side]
            places = [(start, pieces[0]), (start + len(pieces[0]), pieces[1])]
            twice = [place for place in places for _ in range(2)] if at_once else places * 2
            for seq, data in twice:
                script.send(side, data, seq=seq)
            script.next_seq[side] = start + sum(map(len, pieces))
        told_right(beat(script, 12, 13, 14, 15), 1, *range(10, 16))


def test_the_second_of_two_requests_without_a_client_id_sent_again_alone_is_told_once() -> None:
    first, second = request(12, 0, 2, HEARTBEAT, None), request(12, 0, 3, HEARTBEAT, None)
    for pieces in ((first + second,), (first, second)):
        for answered in (False, True):
            script = opened(play()) >> from_client(*pieces)
            again = from_client(second, seq=script.next_seq[CLIENT] - len(second))
            script = script if answered else script >> again
            script >> from_broker(response(2, pack(">h", 0)), response(3, pack(">h", 0)))
            script = script >> again if answered else script
            told_right(beat(script, 4), 1, 2, 3, 4)


SENT = 1001 + len(API_VERSIONS) + len(heartbeat(2))
"""The client's next sequence number in `goes_on`."""


def goes_on(*acts: Act) -> None:
    """A connection in which something comes while a request waits for its answer."""
    script = opened(play()) >> from_client(heartbeat(2))
    assert script.next_seq[CLIENT] == SENT
    for act in acts:
        script >> act
    script >> wait(2) >> from_broker(response(2, pack(">h", 0)))
    told_right(beat(script, 3, 4, 5, 6, 7), *range(1, 8))
    assert [row["closed_by"] for row in script.events() if row["event"] == "connection"] == [None]


@pytest.mark.parametrize("off", [1_000_000_000, -100_000, 200_000])
def test_a_reset_outside_the_window_ends_nothing(off: int) -> None:
    """RFC 9293, section 3.10.7.4: it is dropped."""
    goes_on(from_client(b"", flags=RST, seq=SENT + off))


@pytest.mark.parametrize(("flags", "off"), [(RST, 1000), (SYN, 5), (SYN, 70_000), (SYN, 1 << 30)])
def test_a_reset_not_at_the_next_byte_ends_nothing_and_a_syn_begins_nothing(flags: int, off: int) -> None:
    """RFC 5961, sections 3.2 and 4.2: they are challenged, a SYN whatever its sequence number."""
    goes_on(from_client(b"", flags=flags, seq=SENT + off), from_broker(b""))


def reopened(script: Play, off: int) -> Play:
    """A connection on the same ports, whose numbers are near those of the last."""
    script.next_seq = [number + off for number in script.next_seq]
    return opened(script, 21)


def test_ports_used_again_where_one_fin_was_captured_carry_another_connection() -> None:
    """The other FIN, and what acknowledged it, were not captured."""
    for side in (CLIENT, BROKER):
        for off in (1, 100, 70_000, 1 << 28):
            script = beat(opened(play()), 2) >> fin(side) >> wait(5)
            told_right(beat(reopened(script, off), 22, 23), 1, 2, 21, 22, 23)
            assert sum(row["event"] == "connection" for row in script.events()) == 2


def test_ports_used_again_after_both_said_that_they_are_done_carry_another_connection() -> None:
    for off in (1, 100, 70_000):
        script = beat(opened(play()), 2) >> fin(CLIENT) >> fin(BROKER)
        told_right(beat(reopened(script, off), 22, 23), 1, 2, 21, 22, 23)


def test_a_connection_that_one_end_forgot_is_followed_by_another() -> None:
    """RFC 9293, section 3.5.1, figure 9: the SYN is challenged, the challenge reset, the SYN sent again."""
    script = beat(opened(play()), 2)
    there = list(script.next_seq)
    script >> wait(5) >> from_client(b"", flags=SYN, seq=there[CLIENT] + 9999) >> from_broker(b"")
    script >> from_client(b"", flags=RST, seq=there[CLIENT]) >> wait(1)
    script.next_seq = [there[CLIENT] + 9999, there[BROKER] + 77]
    told_right(beat(opened(script, 21), 22), 1, 2, 21, 22)
    assert sum(row["event"] == "connection" for row in script.events()) == 2


def test_a_hole_is_waited_for_until_it_is_filled() -> None:
    """Nobody acknowledged what is missing, so it comes, be it late or behind a mebibyte."""
    for seconds, behind in ((40, 1), (200, 1), (1, 40)):
        question, answer = fetch(2, [bytes(60_000) for _ in range(behind)])
        script = opened(play()) >> from_client(question)
        start = script.next_seq[BROKER]
        for at in range(1000, len(answer), 60_000):
            script >> from_broker(answer[at : at + 60_000], seq=start + at)
        script >> wait(seconds) >> from_broker(answer[:1000], seq=start)
        script.next_seq[BROKER] = start + len(answer)
        told_right(beat(script, 3, 4), 1, 2, 3, 4)


def test_a_hole_is_waited_for_while_many_packets_pass() -> None:
    script = opened(play()) >> from_client(heartbeat(2))
    start = script.next_seq[CLIENT]
    frames = [heartbeat(ident) for ident in range(3, 60)]
    script.next_seq[CLIENT] += len(frames[0])
    for frame in frames[1:]:
        script >> from_client(frame) >> from_broker(b"")
        script.segments[-1] = script.segments[-1].__class__(**vars(script.segments[-1]) | {"ack": start})
    script >> from_client(frames[0], seq=start)
    for ident in range(2, 60):
        script >> from_broker(response(ident, pack(">h", 0)))
    told_right(script, 1, *range(2, 60))


def test_a_keep_alive_says_nothing_whatever_its_byte() -> None:
    """RFC 9293, section 3.8.4: it may hold a byte, which means nothing."""
    script = beat(opened(play()), 2)
    for data in (b"", b"\0", b"x"):
        script >> wait(60) >> from_client(data, seq=script.next_seq[CLIENT] - 1) >> from_broker(b"")
    told_right(beat(script, 3), 1, 2, 3)


def test_what_comes_after_one_end_is_done_belongs_to_the_connection() -> None:
    script = opened(play()) >> from_client(heartbeat(2))
    script >> from_client(heartbeat(3), flags=FIN | ACK)
    script >> from_broker(response(2, pack(">h", 0)), response(3, pack(">h", 0))) >> fin(BROKER)
    told_right(script, 1, 2, 3)


def test_two_ends_that_open_at_once_have_one_connection() -> None:
    script = play()
    script >> from_client(b"", flags=SYN) >> from_broker(b"", flags=SYN)
    starts = [number - 1 for number in script.next_seq]
    script >> from_client(b"", flags=SYN | ACK, seq=starts[CLIENT])
    script >> from_broker(b"", flags=SYN | ACK, seq=starts[BROKER])
    told_right(beat(script, 1, 2), 1, 2)


def test_data_in_a_syn_belongs_to_the_stream() -> None:
    """TCP Fast Open (RFC 7413); where the broker does not take it, it is sent again."""
    frame = request(18, 0, 1, b"")
    for again in (False, True):
        script = play() >> from_client(frame[:10], flags=SYN) >> from_broker(b"", flags=SYN | ACK)
        if again:
            script >> from_client(frame[:10], seq=script.next_seq[CLIENT] - 10)
        script >> from_client(frame[10:]) >> from_broker(response(1, pack(">hi", 0, 0)))
        told_right(beat(script, 2), 1, 2)


def test_a_replica_fetcher_on_a_port_nobody_named_is_told() -> None:
    """Large responses, of which the first is longer than what is looked at to recognise Kafka."""
    script = play() >> on_ports(50_666, 21_094) >> handshake()
    for ident in range(43):
        question, answer = fetch(ident, [bytes(5000)] * (40 if ident == 0 else 5), replica=1)
        script >> from_client(question)
        for at in range(0, len(answer), 1448):
            script >> from_broker(answer[at : at + 1448])
    told_right(script, *range(43))


def test_a_length_in_the_rest_of_a_lost_response_is_not_waited_for() -> None:
    """A response whose first packets are lost goes on with what reads as one of 16.8 MB."""
    script = beat(opened(play()), *range(240, 255)) >> from_client(heartbeat(255), heartbeat(256))
    rest = bytes.fromhex("0101090000000100") + bytes(30)
    _, answer = fetch(255, [bytes(1400)])
    script >> lost_from_broker(answer) >> from_broker(rest) >> from_broker(response(256, pack(">h", 0)))
    script = beat(script, *range(257, 290))
    answered = {
        row["correlation_id"] for row in script.events() if row["event"] == "call" and row["status"] == "ok"
    }
    assert answered == {1, *range(240, 255), *range(256, 290)}


def test_a_client_without_a_name_whose_first_answer_is_cut_is_kafka() -> None:
    script = play() >> handshake() >> from_client(request(18, 0, 1, b"", ""))
    whole = response(1, pack(">hi", 0, 49) + b"".join(pack(">hhh", key, 0, 9) for key in range(49)))
    script >> from_broker(whole[:234], length=len(whole))
    for ident in range(2, 12):
        (
            script
            >> from_client(request(12, 0, ident, HEARTBEAT, ""))
            >> from_broker(response(ident, pack(">h", 0)))
        )
    script << call(correlation_id=1, status="truncated")
    for ident in range(2, 12):
        script << call(correlation_id=ident, status="ok")


def unanswered(ident: int, value: bytes) -> bytes:
    """A Produce with acks=0 of a client that names itself with an empty text."""
    records = batch([value])
    body = text(None) + pack(">hii", 0, 1000, 1) + text("topic") + pack(">iii", 1, 0, len(records)) + records
    return request(0, 3, ident, body, "")


def test_a_client_without_a_name_that_wants_no_answers_is_kafka() -> None:
    """Its requests decode; they are told though the first answer comes late, or never, and the first may be
    longer than what is looked at to recognise others."""
    for size in (100, 200_000):
        frames = [unanswered(ident, bytes(size)) for ident in (9, 8, 7)]
        script = play() >> handshake() >> from_client(*frames)
        for ident in (9, 8, 7):
            script << call(correlation_id=ident, status="no_reply_expected")
        script.nothing_more()


def test_a_client_without_a_name_whose_first_answer_never_ends_is_kafka() -> None:
    script = play() >> handshake() >> from_client(request(12, 0, 9, HEARTBEAT, None))
    script >> from_broker(response(9, bytes(2000))[:200]) >> rst(BROKER)
    (
        script
        << call(api="Heartbeat", correlation_id=9, status="truncated", closed_by="broker_rst")
        << anomaly("frame_incomplete")
    ).nothing_more()


def test_a_response_that_ends_inside_its_header_is_incomplete_and_not_malformed() -> None:
    for part in (4, 5, 7):
        script = opened(play()) >> from_client(heartbeat(2)) >> from_broker(response(2, b"\0\0")[:part])
        script >> rst(BROKER)
        codes = [row["code"] for row in script.events() if row["event"] == "anomaly"]
        assert codes == ["frame_incomplete"]


def test_a_request_without_answer_that_ends_inside_is_truncated() -> None:
    """Its broker never had it: that it wants no reply says nothing then."""
    frame = unanswered(2, bytes(3000))
    script = opened(play()) >> from_client(frame[:1448]) >> rst(CLIENT)
    script << call(correlation_id=1) << call(correlation_id=2, status="truncated")
