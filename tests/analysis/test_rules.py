"""Single rules on rows made by hand: thresholds from both sides, and the columns that sources fill later."""

from __future__ import annotations

from typing import Any

import pytest

from kwsniff.analysis.findings import facts
from kwsniff.analysis.rule import CRITICAL, NOT_SHOWN, NOTICE, OK, WARNING
from tests.analysis.wide import codes, connection, fetch, found, row, taken

SECOND = 1_000_000


def severity(code: str, *rows: dict[str, Any]) -> str:
    return next(each.severity for each in taken(*rows).found() if each.code == code)


def own(microseconds: float) -> dict[str, float]:
    """The broker's own time, all of it certain."""
    return {"broker_us": microseconds, "broker_least_us": microseconds}


def test_an_empty_input_shows_nothing_and_is_no_praise() -> None:
    assert {each.severity for each in taken().found()} == {NOT_SHOWN}


@pytest.mark.parametrize("code", ["retransmissions", "zero_windows", "slow_queue", "consumer_falls_behind"])
def test_a_rule_whose_columns_are_null_says_that_the_capture_does_not_show_it(code: str) -> None:
    assert severity(code, row(), connection()) == NOT_SHOWN


def test_a_queue_is_told_from_a_slow_broker() -> None:
    calls = [row(at, queued_us=150_000.0, **own(900.0)) for at in range(30)]
    (queue,) = found(*calls)
    assert (queue.code, queue.subject) == ("slow_queue", "app@10.0.0.1")
    assert queue.sentence.startswith("app@10.0.0.1 queues on one connection: up to ")
    assert "in line (30 of 30 calls to 10.0.0.9:9092 had to wait)" in queue.sentence
    calls = [row(at, queued_us=900.0, **own(150_000.0)) for at in range(30)]
    (broker,) = found(*calls)
    assert (broker.code, broker.severity) == ("slow_broker", WARNING)
    assert broker.numbers["p50_us"] == pytest.approx(150_000, rel=0.025)


def test_too_few_slow_calls_prove_nothing() -> None:
    assert codes(*(row(at, **own(500_000.0)) for at in range(19))) == []
    assert codes(*(row(at, **own(500_000.0)) for at in range(20))) == ["slow_broker"]


def test_a_broker_that_was_sent_packets_again_is_neither_blamed_nor_praised() -> None:
    again = connection(client_packets=500, client_retransmissions=50)
    slow, quick = ([row(at, **own(each)) for at in range(20)] for each in (500_000.0, 900.0))
    (speed,) = (each for each in taken(*slow, again).found() if each.code == "slow_broker")
    assert speed.severity == NOT_SHOWN
    assert "(clients sent packets to 10.0.0.9:9092 again)" in speed.sentence
    assert severity("slow_broker", *quick, again) == OK


def test_waiting_for_data_does_not_make_a_broker_slow() -> None:
    """Without the broker's own time, calls that may wait, and those behind others, are left out."""
    waiting = [row(at, 500_000.0, api_key=1, api="Fetch", max_wait_ms=500) for at in range(50)]
    behind = [row(at, 500_000.0, api_key=2, api="ListOffsets", in_flight=3) for at in range(50)]
    assert codes(*waiting, *behind) == []


def test_a_consumer_falls_behind_when_the_distance_to_the_end_grows() -> None:
    growing = [fetch(number * SECOND, 10 * number, 500 * number) for number in range(1, 8)]
    (behind,) = found(*growing)
    assert behind.code == "consumer_falls_behind"
    assert (behind.numbers["lag_first"], behind.numbers["lag_last"]) == (490, 3430)
    assert "lags: orders[0] 3,430 records, growing (490 records 6 s before)" in behind.sentence


def test_a_group_falls_behind_when_more_comes_than_it_commits() -> None:
    """The end is told by what producers wrote and what others fetch, by name or by uuid."""

    def commit(at: int, offset: int) -> dict[str, Any]:
        part = {"topic": "orders", "partition": 0, "committed_offset": offset, "error_code": 0}
        return row(at * SECOND, api_key=8, api="OffsetCommit", group_id="reports", partitions=[part])

    def produce(at: int, offset: int) -> dict[str, Any]:
        part = {"topic_id": "u-1", "partition": 0, "base_offset": offset, "records": 10, "error_code": 0}
        return row(at * SECOND, api_key=0, api="Produce", partitions=[part])

    names = row(topics=["orders"], topic_ids=["u-1"])
    rows = [names, produce(0, 0), commit(1, 10), produce(5, 2490), commit(9, 400)]
    (behind,) = found(*rows)
    assert (behind.code, behind.subject, behind.numbers["lag_last"]) == (
        "consumer_falls_behind",
        "reports",
        2100,
    )
    assert behind.sentence == (
        "Group reports lags: orders[0] 2,100 records, growing (390 of 2,490 new records committed in 8 s)."
    )
    assert codes(names, produce(0, 0), commit(1, 10), produce(5, 2490), commit(9, 2400)) == []
    stands = [names, produce(0, 5000), commit(1, 10), produce(5, 5000), commit(9, 3000)]
    assert codes(*stands) == []  # it catches up


def test_a_group_that_commits_now_and_then_is_not_behind_by_what_came_since() -> None:
    """1,000 records a second, committed whole every five seconds; the capture ends just before a commit."""

    def commit(at: int, offset: int) -> dict[str, Any]:
        part = {"topic": "orders", "partition": 0, "committed_offset": offset, "error_code": 0}
        return row(at * SECOND, api_key=8, api="OffsetCommit", group_id="lake", partitions=[part])

    def produce(at: int) -> dict[str, Any]:
        base = 1000 * at
        part = {"topic": "orders", "partition": 0, "base_offset": base, "records": 0, "error_code": 0}
        return row(at * SECOND, api_key=0, api="Produce", partitions=[part])

    steady = [*map(produce, range(10)), commit(5, 5000), produce(19)]
    assert codes(*steady) == []
    assert codes(*steady, commit(10, 10_000)) == []
    assert codes(*steady, commit(10, 6_000)) == ["consumer_falls_behind"]


@pytest.mark.parametrize("split", [1, 2, 3, None])
def test_rows_need_not_come_in_the_order_of_time_to_tell_the_first_reading_from_the_last(
    split: int | None,
) -> None:
    """A row comes when its call is complete: with a Fetch that had to wait those come before it that a
    consumer sent later, on another connection."""
    rows = [fetch(at * SECOND, 10 * at, 500 * at) for at in (4, 7, 1, 3, 2, 6, 5)]
    same = [fetch(at * SECOND, 10 * at, 500 * at - 5) for at in (1, 7)]
    (behind,) = found(*rows[:4], *same, *rows[4:], split=split)
    assert (behind.numbers["lag_first"], behind.numbers["lag_last"]) == (485, 3430)
    assert behind.numbers["span_s"] == 6
    (other,) = found(*same, *rows, split=split)
    assert other == behind


def test_a_consumer_that_catches_up_or_stays_close_is_left_alone() -> None:
    catching_up = [fetch(number * SECOND, 5000 * number, 40_000) for number in range(8)]
    close = [fetch(number * SECOND, 500 * number, 500 * number + 900) for number in range(8)]
    assert codes(*catching_up) == []
    assert codes(*close) == []


def test_a_group_of_the_new_protocol_that_changes_all_the_time_is_found_by_its_epochs() -> None:
    beats = [
        row(number * SECOND, api_key=68, api="ConsumerGroupHeartbeat", group_id="billing", generation=number)
        for number in range(1, 9)
    ]
    (group,) = found(*beats)
    assert (group.code, group.numbers["rebalances"]) == ("rebalances", 7)
    assert "epoch 1 to 8" in group.sentence


def test_a_member_that_does_not_poll_in_time_is_named_with_its_reason() -> None:
    leave = row(api_key=13, api="LeaveGroup", group_id="g", reason="consumer poll timeout has expired.")
    beat = row(api_key=12, api="Heartbeat", group_id="g")
    (late,) = found(beat, leave)
    assert late.code == "member_expelled"
    assert "gave up its place in group g once: it did not poll in time" in late.sentence


@pytest.mark.parametrize(("pause", "expected"), [(9, []), (11, ["consumer_stands_still"])])
def test_a_member_stands_still_that_only_beats(pause: int, expected: list[str]) -> None:
    def beat(at: int) -> dict[str, Any]:
        return row(at * SECOND, api_key=12, api="Heartbeat", group_id="g")

    first = row(0, api_key=1, api="Fetch")
    again = row(pause * SECOND, api_key=8, api="OffsetCommit", group_id="g")
    beats = [beat(at) for at in range(pause + 2)]
    assert codes(first, *beats, again) == expected


def test_packets_show_from_when_to_when_a_member_stood_still() -> None:
    beats = [
        row(at * SECOND, api_key=12, api="Heartbeat", group_id="g", response_packet=100 + at)
        for at in range(14)
    ]
    first = row(SECOND, api_key=1, api="Fetch", response_packet=7)
    again = row(13 * SECOND, api_key=8, api="OffsetCommit", group_id="g", response_packet=300)
    (whole,) = found(first, *beats, again)
    assert [each.number for each in whole.evidence] == [7, 300]
    (whole,) = found(first, *beats)
    assert [each.number for each in whole.evidence] == [7, 113]
    one, other = taken(first, *beats[::2]), taken(*beats[1::2], again)
    one.merge(other)
    (merged,) = (each for each in one.found() if each.code == "consumer_stands_still")
    assert [each.number for each in merged.evidence] == [7, 300]


def test_a_member_that_never_fetched_is_not_said_to_have_stopped() -> None:
    beats = [row(at * SECOND, api_key=12, api="Heartbeat", group_id="g") for at in range(60)]
    assert codes(*beats) == []


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ({"closed_by": "client FIN", "waited_open_us": 2000.0}, []),
        ({"closed_by": "broker RST", "waited_open_us": 2000.0}, ["unanswered"]),
        ({"closed_by": "client FIN", "waited_open_us": 31e6}, ["unanswered"]),
    ],
)
def test_who_closed_decides_whether_an_unanswered_call_matters(
    columns: dict[str, Any], expected: list[str]
) -> None:
    lost = {"status": "unanswered", "unanswered_because": "connection_closed", "error_code": None}
    assert codes(row(), row(latency=None, **lost, **columns)) == expected


def test_long_polls_that_a_leaving_client_drops_are_no_finding() -> None:
    lost = {"status": "unanswered", "unanswered_because": "connection_closed", "api_key": 1, "api": "Fetch"}
    poll = row(latency=None, max_wait_ms=500, waited_open_us=400_000.0, closed_by="client FIN", **lost)
    stuck = row(latency=None, max_wait_ms=500, waited_open_us=9e6, closed_by="broker RST", **lost)
    assert codes(row(), poll) == []
    assert codes(row(), stuck) == ["unanswered"]


def test_a_request_open_at_the_end_of_the_capture_counts_after_half_a_minute() -> None:
    lost = {"status": "unanswered", "unanswered_because": "capture_ended", "latency": None}
    assert codes(row(), row(**lost, waited_open_us=20e6)) == []
    assert codes(row(), row(**lost, waited_open_us=31e6)) == ["unanswered"]


def test_an_address_that_a_broker_advertises_and_nobody_answers_at_is_critical() -> None:
    broker = [{"node_id": 1, "host": "10.9.9.9", "port": 9092}]
    nothing = {"client_bytes": 0, "broker_bytes": 0, "handshake_us": None, "broker_ip": "10.9.9.9"}
    tries = [connection(at, **nothing, broker_packets=0, fin=False) for at in range(3)]
    (lost,) = found(row(advertised=broker), *tries)
    assert (lost.code, lost.severity, lost.subject) == ("unreachable", CRITICAL, "10.9.9.9:9092")
    assert "10.0.0.9:9092 names that address to clients: its advertised.listeners is wrong" in lost.sentence
    assert "unanswered" in lost.sentence


def test_an_address_that_nobody_tries_any_more_is_a_notice() -> None:
    nothing = {"client_bytes": 0, "broker_bytes": 0, "handshake_us": None, "broker_ip": "10.9.9.9"}
    tries = [connection(at, **nothing, broker_packets=0, fin=False) for at in range(3)]
    (lost,) = found(*tries, connection(30 * SECOND))
    assert (lost.severity, lost.subject) == (NOTICE, "10.9.9.9:9092")
    assert lost.sentence.endswith("Nobody tried it later.")
    (lost,) = found(*tries, connection(9 * SECOND))
    assert lost.severity == CRITICAL


def test_answers_that_the_capture_may_have_lost_are_no_finding() -> None:
    left = {"status": "unanswered", "unanswered_because": "connection_closed", "latency": None}
    calls = [row(at, **left, closed_by="broker_fin", waited_open_us=5e6) for at in range(6)]
    (missing,) = found(row(), *calls)
    assert missing.numbers["calls"] == 6
    lossy = [connection(at, broker_missing_bytes=50, client_missing_bytes=0) for at in range(6)]
    assert codes(row(), *calls, *lossy) == []
    assert codes(row(), *calls, *lossy[:5]) == ["unanswered"]


def test_many_unanswered_requests_are_critical_and_come_first() -> None:
    """20 of 2,000 are one of a hundred; the broker is slow with all, which is the greater share."""
    left = {"status": "unanswered", "unanswered_because": "connection_closed", "latency": None, "acks": -1}
    left |= {"closed_by": "client_fin", "waited_open_us": 61e6, "api_key": 0, "api": "Produce"}
    lost = [row(at, **left, client_id=f"app-{at % 3}") for at in range(20)]
    answered = [row(at, client_id=f"app-{at % 3}", api_key=2, **own(150_000.0)) for at in range(1980)]
    first, second = found(*answered, *lost)
    assert (first.code, first.severity, first.share) == ("unanswered", CRITICAL, 0.01)
    assert first.sentence == (
        "3 clients (app-0@10.0.0.1, app-1@10.0.0.1 and app-2@10.0.0.1) gave up on 20 Produce requests to "
        "10.0.0.9:9092 after up to 61 s, 1 % of those that expect an answer. Their records may be lost or "
        "written twice."
    )
    assert (second.code, second.severity) == ("slow_broker", WARNING)
    assert {each.severity for each in found(*answered, *lost[:19])} == {WARNING}
    assert found(*answered, *lost, row(latency=None, status="no_reply_expected"))[0].severity == CRITICAL
    assert severity("unanswered", *answered, row(), *lost) == WARNING


def test_findings_of_one_rule_are_one_fact_and_facts_come_by_severity_and_share() -> None:
    throttled = [row(at, client_id=f"c-{at}", throttle_ms=2000 - 500 * at) for at in range(3)]
    slow = [row(at, client_id="c-0", **own(150_000.0)) for at in range(30)]
    made = facts(taken(*throttled, *slow).found())
    assert [(each.severity, len(each.found)) for each in made] == [(WARNING, 1), (WARNING, 3)]
    assert made[0].sentence == made[0].found[0].sentence
    assert made[1].sentence == (
        "3 clients are throttled: 3 answers told them to wait, up to 2 s. They exceed a quota."
    )
    assert [each.subject for each in made[1].found] == [f"c-{at}@10.0.0.1" for at in range(3)]
    where = 'throttle_ms > 0 and client_id in ("c-0", "c-1", "c-2")'
    assert made[1].command == f"kwsniff slow FILE --where '{where}'"
    assert made[1].found[0].brief == "1 answer told it to wait, 2 s in all, up to 2 s (Metadata 1)"


def test_a_produce_whose_acks_are_not_known_may_want_no_reply() -> None:
    left = {"status": "unanswered", "unanswered_because": "connection_closed", "latency": None}
    left |= {"closed_by": "client_fin", "waited_open_us": 5e6, "api_key": 0, "api": "Produce"}
    assert codes(row(), row(**left, acks=None)) == []
    assert codes(row(), row(**left, acks=1)) == ["unanswered"]


def test_a_few_requests_of_a_client_that_was_never_answered_may_be_none() -> None:
    """Bytes that look like a request after a gap."""
    left = {"status": "unanswered", "unanswered_because": "connection_closed", "latency": None}
    left |= {"closed_by": "client_fin", "waited_open_us": 5e6, "client_id": "V"}
    assert codes(row(), row(**left)) == []
    assert codes(row(), *[row(at, **left) for at in range(5)]) == ["unanswered"]


def test_retransmissions_are_found_by_direction() -> None:
    (again,) = found(connection(client_packets=500, client_retransmissions=50, broker_retransmissions=0))
    assert (again.code, again.severity) == ("retransmissions", WARNING)
    assert again.sentence.startswith("10.0.0.1 sent 50 packets again to 10.0.0.9:9092, 10 % of all")
    assert severity("retransmissions", connection(client_retransmissions=0)) == OK


def test_the_command_of_a_retransmission_asks_for_the_side_that_sent_again() -> None:
    rows = [connection(broker_packets=500, broker_retransmissions=50, client_retransmissions=0), connection()]
    (again,) = found(*rows)
    assert again.subject == "10.0.0.9:9092"
    assert "broker_retransmissions > 0" in again.command
    assert "client_ret" not in again.command
    assert "10.0.0.9:9092 sent 50 packets again to 10.0.0.1" in again.sentence


def test_a_receiver_that_closes_its_window_is_named() -> None:
    (closed,) = found(connection(client_zero_windows=3, broker_zero_windows=0))
    assert closed.sentence.startswith("10.0.0.1 stops reading (TCP zero window, 3 times)")


def test_a_broker_that_closes_its_windows_is_one_finding_whoever_sends() -> None:
    names = ("one", "two", "three", "four")
    rows = [connection(client_id=name, broker_zero_windows=2, client_zero_windows=0) for name in names]
    (closed,) = found(*rows)
    assert closed.sentence.startswith("10.0.0.9:9092 stops reading (TCP zero window, 8 times): ")
    assert "and 2 more send faster than it reads" in closed.sentence
    assert "broker_zero_windows > 0" in closed.command


def test_a_broker_that_is_slow_with_everything_is_one_finding() -> None:
    calls = [row(at, **own(200_000.0)) for at in range(30)]
    more = [row(at, api_key=8, api="OffsetCommit", **own(150_000.0)) for at in range(25)]
    (slow,) = found(*calls, *more)
    assert "; it is slow with OffsetCommit, too." in slow.sentence
    assert slow.numbers["apis"] == 2
    assert "broker == " in slow.command
    assert "api ==" not in slow.command
    assert "api == " in found(*calls)[0].command


def test_a_tls_alert_on_a_plaintext_connection_is_a_client_at_the_wrong_port() -> None:
    (wrong,) = found(connection(tls_alert="fatal unexpected_message (10)"))
    assert (wrong.code, wrong.severity) == ("plaintext_on_tls", CRITICAL)


@pytest.mark.parametrize(
    ("length", "alert"), [(352518400, True), (352518912, True), (352519424, False), (2147483647, False)]
)
def test_bytes_of_a_tls_alert_are_told_from_other_broken_lengths(length: int, alert: bool) -> None:
    """15 03 01 00 and 15 03 03 00 begin an alert of TLS 1.0 and 1.2; 15 03 05 does not begin any."""
    detail = f"length {length} of the response stream"
    odd = row() | {"event": "anomaly", "status": None, "code": "frame_size_invalid", "detail": detail}
    assert ("plaintext_on_tls" in codes(odd)) == alert


def test_tls_connections_that_get_answers_are_fine_and_a_lonely_silent_one_proves_nothing() -> None:
    silent = connection(security="tls", broker_bytes=0)
    assert codes(silent, silent) == []
    assert codes(*[silent] * 3) == ["tls_on_plaintext"]
    assert codes(*[silent] * 3, connection(security="tls")) == []
    assert codes(silent, connection()) == ["tls_on_plaintext"]


def test_throttling_below_a_second_is_a_notice_and_says_how_long_the_client_was_held() -> None:
    (mild,) = found(row(throttle_ms=300), row(throttle_ms=0, throttled_us=290_000.0))
    assert (mild.severity, mild.numbers["throttled_us"]) == (NOTICE, 290_000)
    assert "300 ms in all" in mild.sentence


def test_an_old_client_breaks_only_if_it_would_not_negotiate() -> None:
    old = row(api_key=1, api="Fetch", api_version=3)
    asks = row(api_key=18, api="ApiVersions", api_version=3)
    other = row(api_key=1, api="Fetch", api_version=12, client_id="modern")
    begun = connection(client_id="app")
    assert codes(old, asks, begun) == []
    assert severity("old_client", old, asks, begun) == NOT_SHOWN  # bodies tell what the broker offers
    assert codes(old, begun) == ["old_client"]
    assert codes(old, begun, connection(client_id="app", syn=False)) == []  # it may have asked before
    assert codes(old, asks, other, begun) == ["old_client"]


def test_errors_that_belong_to_a_protocol_are_left_out() -> None:
    normal = {79: "MEMBER_ID_REQUIRED", 27: "REBALANCE_IN_PROGRESS", 70: "FETCH_SESSION_ID_NOT_FOUND"}
    failed = {"status": "error", "error_count": 1, "api_key": 12, "api": "Heartbeat"}
    rows = [row(error_code=code, error=name, **failed) for code, name in normal.items()]
    assert codes(*rows * 40) == []


def test_asking_for_a_newer_api_versions_is_no_error_but_any_other_unsupported_version_is() -> None:
    failed = {"status": "error", "error_code": 35, "error_count": 1}
    assert codes(row(api_key=18, api="ApiVersions", **failed)) == []
    assert codes(row(**failed)) == ["errors"]


def test_names_from_the_wire_do_not_break_commands_or_sentences() -> None:
    name = 'x\'; rm -rf "$HOME" \x1b[2J' + "y" * 500
    (throttled,) = found(row(throttle_ms=5000, client_id=name))
    assert "\x1b" not in throttled.sentence + throttled.command
    assert len(throttled.sentence) < 300
    import shlex

    words = shlex.split(throttled.command)
    assert words[:4] == ["kwsniff", "slow", "FILE", "--where"]
    assert len(words) == 5


def test_a_fetch_that_may_have_waited_for_data_does_not_make_a_broker_slow() -> None:
    """As those of KRaft's followers: answered with data that came in the meantime, within `max_wait_ms`."""
    fetch = {"api_key": 1, "api": "Fetch", "max_wait_ms": 500, "broker_us": 450_000.0}
    assert codes(*(row(at, broker_least_us=0.0, **fetch) for at in range(50))) == []
    assert codes(*(row(at, broker_least_us=200_000.0, **fetch) for at in range(50))) == ["slow_broker"]


def test_a_hot_partition_is_one_whether_producers_say_its_name_or_its_uuid() -> None:
    """From version 13 on a Produce names topics by uuid, and older clients go on with names."""

    def produce(partition: int, size: int, **topic: str) -> dict[str, Any]:
        part = {**topic, "partition": partition, "bytes": size, "records": 1, "error_code": 0}
        return row(api_key=0, api="Produce", partitions=[part])

    names = row(api_key=3, api="Metadata", topics=["orders"], topic_ids=["u-1"])
    rows = [produce(number, 10_000, topic="orders") for number in range(4)]
    rows += [produce(3, 300_000, topic_id="u-1"), produce(3, 200_000, topic="orders"), names]
    (finding,) = (each for each in found(*rows) if each.code == "hot_partition")
    assert finding.subject == "orders[3]"
    assert finding.numbers["bytes"] == 510_000
    assert finding.numbers["topic_bytes"] == 540_000
    assert finding.numbers["partitions"] == 4
