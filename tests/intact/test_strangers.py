"""Segments that belong to an earlier connection of the same ends, or to none: TCP drops them; so do we."""

from __future__ import annotations

from struct import pack

from tests.intact.conversations import response
from tests.intact.test_situations import beat, heartbeat, opened, reopened, told_right
from tests.playbook import ACK, BROKER, CLIENT, FIN, RST, SYN, Play, fin, from_broker, from_client, play, wait

OLD = 90_000
"""How far the numbers of a connection are behind those of the next one on its ports."""


def connections(script: Play) -> int:
    return sum(row["event"] == "connection" for row in script.events())


def reset_and_used_again(script: Play, between: bytes) -> Play:
    """The client resets the connection and opens the next at once; what the broker had under way comes then,
    before its SYN-ACK."""
    script >> from_client(b"", flags=RST | ACK)
    old = list(script.next_seq)
    script.next_seq = [number + OLD for number in old]
    script >> from_client(b"", flags=SYN)
    client = script.next_seq[CLIENT]
    script.next_seq[CLIENT] = old[CLIENT]
    script >> from_broker(between, seq=old[BROKER])
    script.next_seq[CLIENT] = client
    return script


def test_data_under_way_when_its_connection_was_reset_is_none_of_the_next() -> None:
    """RFC 9293, section 3.10.7.3: it acknowledges what the next connection never sent."""
    late = response(3, pack(">h", 0))
    for between in (b"", late, late[:7], late * 30):
        script = reset_and_used_again(beat(opened(play()), 2), between)
        script >> from_broker(b"", flags=SYN | ACK) >> from_client(b"")
        told_right(beat(script, 21, 22), 1, 2, 21, 22)
        assert connections(script) == 2


def test_a_syn_ack_under_way_when_its_connection_was_reset_is_none_of_the_next() -> None:
    script = beat(opened(play()), 2)
    script = reset_and_used_again(script, b"")
    script.segments[-1] = script.segments[-1].__class__(**vars(script.segments[-1]) | {"flags": SYN | ACK})
    script >> from_broker(b"", flags=SYN | ACK) >> from_client(b"")
    told_right(beat(script, 21, 22), 1, 2, 21, 22)


def test_a_reset_that_answers_no_syn_does_not_end_the_connection_it_opens() -> None:
    """RFC 9293, section 3.10.7.3: an RST without ACK is dropped while a SYN waits for its answer."""
    script = reset_and_used_again(beat(opened(play()), 2), b"")
    script >> from_broker(b"", flags=RST, seq=script.next_seq[BROKER] - OLD)
    script >> wait(2) >> from_broker(b"", flags=SYN | ACK) >> from_client(b"")
    told_right(beat(script, 21, 22), 1, 2, 21, 22)
    assert [row["rst"] for row in script.events() if row["event"] == "connection"] == [True, False]


def test_what_the_broker_sent_before_it_heard_of_a_reset_begins_no_connection() -> None:
    script = beat(opened(play()), 2) >> from_client(b"", flags=RST | ACK)
    for ident in (3, 4, 5):
        script >> wait(2) >> from_broker(response(ident, pack(">h", 0)))
    told_right(script, 1, 2)
    assert connections(script) == 1


def test_a_late_copy_of_an_ack_says_nothing_of_the_handshake() -> None:
    """It belongs to the connection before, and clocks do not differ for it."""
    script = beat(opened(play()), 2) >> fin(CLIENT) >> fin(BROKER) >> from_client(b"")
    old = list(script.next_seq)
    script.next_seq = [number + OLD for number in old]
    script >> from_client(b"", flags=SYN) >> from_client(b"", seq=old[CLIENT] - 40) >> wait(0.02)
    script >> from_broker(b"", flags=SYN | ACK) >> from_client(b"")
    told_right(beat(script, 21), 1, 2, 21)
    latest = [row["handshake_us"] for row in script.events() if row["event"] == "connection"][-1]
    assert latest == 23_000


def test_a_syn_that_is_sent_again_is_no_sign_of_clocks_that_differ() -> None:
    """The first one was not captured, but its answer was."""
    script = play()
    script.next_seq[CLIENT] += 1
    script >> from_broker(b"", flags=SYN | ACK) >> wait(1)
    script >> from_client(b"", flags=SYN, seq=script.next_seq[CLIENT] - 1)
    script >> from_broker(b"", flags=SYN | ACK, seq=script.next_seq[BROKER] - 1) >> from_client(b"")
    told_right(beat(script, 1, 2), 1, 2)


def test_bytes_and_a_fin_far_beyond_what_was_sent_are_no_part_of_the_stream() -> None:
    """Nobody acknowledges them: not even when the end acknowledges the real FIN."""
    for side in (CLIENT, BROKER):
        for flags in (ACK, ACK | FIN):
            script = beat(opened(play()), 2)
            script.send(side, heartbeat(9), flags, seq=script.next_seq[side] + (1 << 28))
            script = beat(script, 3, 4) >> fin(side)
            script.send(1 - side, b"")
            script >> wait(3)
            script.send(1 - side, b"")
            told_right(script >> fin(1 - side) >> wait(1) >> from_client(b""), 1, 2, 3, 4)


def test_ports_used_again_while_the_last_connection_is_still_reset_carry_another() -> None:
    """Each late segment of the last connection is answered with an RST of its own."""
    script = beat(opened(play()), 2) >> from_client(b"", flags=RST | ACK)
    old = list(script.next_seq)
    script = reopened(script, OLD)
    for _ in range(5):
        script >> from_client(b"", flags=RST, seq=old[CLIENT])
    told_right(beat(script, 22, 23), 1, 2, 21, 22, 23)
