"""How requests and responses become calls."""

from dataclasses import replace
from struct import pack

import pytest

from tests.playbook import (
    BROKER,
    CLIENT,
    Act,
    ack,
    anomaly,
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
    on_ports,
    play,
    request,
    response,
    rst,
    wait,
)  # fmt: skip

PRODUCE_V0_ACKS_0 = pack(">hii", 0, 1000, 0)
PRODUCE_V0_ACKS_1 = pack(">hii", 1, 1000, 0)
PRODUCE_V0_ANSWER = pack(">i", 0)


def test_a_request_and_its_response_are_one_call_with_latency() -> None:
    (
        play() >> handshake() >> request(corr=7) >> wait(0.25) >> response(corr=7)
        << call(
            api="Metadata", api_key=3, api_version=0, correlation_id=7, client_id="tester", status="ok",
            client_ip="10.0.0.1", client_port=50_000, broker_ip="10.0.0.2", broker_port=9092,
            latency_us=251_000.0, duration_us=251_000.0, request_packet=4, response_packet=5,
            request_bytes=24, response_bytes=16, in_flight=0,
        )
    ).nothing_more()  # fmt: skip


def test_first_and_last_byte_times_tell_latency_from_duration() -> None:
    data, answer = kafka_request(3, 0, 1, pack(">i", 0)), kafka_response(1, pack(">ii", 0, 0))
    (
        play()
        >> handshake()
        >> from_client(data[:3], data[3:])
        >> from_broker(answer[:2], answer[2:10], answer[10:])
        << call(latency_us=1000.0, duration_us=4000.0, request_packet=5, response_packet=8)
    ).nothing_more()


def test_pipelined_requests_are_paired_by_correlation_id() -> None:
    (
        play() >> handshake() >> request(corr=1) >> request(corr=2) >> request(corr=3)
        >> response(corr=1) >> response(corr=2) >> response(corr=3)
        << call(correlation_id=1, in_flight=0, request_packet=4, response_packet=7)
        << call(correlation_id=2, in_flight=1, request_packet=5, response_packet=8)
        << call(correlation_id=3, in_flight=2, request_packet=6, response_packet=9)
    ).nothing_more()  # fmt: skip


@pytest.mark.parametrize("asked", [(5, 3, 6), (7, 3, 6), (5, 8, 3, 6), (5, 3, 6, 7), (9, 3, 5, 2, 6)])
@pytest.mark.parametrize("ordered", [False, True])
def test_pipelined_requests_whose_correlation_ids_do_not_rise_are_paired(
    asked: tuple[int, ...], ordered: bool
) -> None:
    """Answered in the order in which they came, or in that of their ids."""
    answered = sorted(asked) if ordered else list(asked)
    script = play() >> handshake()
    for corr in asked:
        script >> request(corr=corr)
    for corr in answered:
        script >> response(corr=corr)
    first, behind = len(script.segments) - 2 * len(asked) + 1, len(asked)
    for at, corr in enumerate(answered):
        sent = asked.index(corr)
        script << call(
            correlation_id=corr, status="ok", in_flight=sent,
            request_packet=first + sent, response_packet=first + behind + at,
        )  # fmt: skip
    odd = {row["code"] for row in script.events() if row["event"] == "anomaly"}
    assert odd == ({"response_out_of_order"} if ordered else set())


def test_a_response_that_overtakes_is_paired_and_reported() -> None:
    (
        play()
        >> handshake()
        >> request(corr=1)
        >> request(corr=2)
        >> response(corr=2)
        >> response(corr=1)
        << call(correlation_id=2, status="ok")
        << call(correlation_id=1, status="ok")
        << anomaly("response_out_of_order", packet=6)
    ).nothing_more()


def test_a_repeated_correlation_id_in_flight_is_answered_first_in_first_out() -> None:
    (
        play() >> handshake() >> request(corr=1) >> request(api=18, corr=1) >> response(corr=1)
        >> response(api=18, corr=1)
        << anomaly("correlation_id_reused", packet=5)
        << call(api="Metadata", request_packet=4) << call(api="ApiVersions", request_packet=5)
    ).nothing_more()  # fmt: skip


def test_produce_with_acks_0_expects_no_reply() -> None:
    (
        play() >> handshake() >> request(api=0, corr=1, body=PRODUCE_V0_ACKS_0) >> request(corr=2)
        >> response(corr=2)
        << call(api="Produce", status="no_reply_expected", acks=0, response_bytes=None)
        << call(correlation_id=2, in_flight=0, status="ok")
    ).nothing_more()  # fmt: skip


def test_a_reply_to_acks_0_is_reported_and_is_no_orphan() -> None:
    (
        play() >> handshake() >> request(api=0, corr=1, body=PRODUCE_V0_ACKS_0)
        >> response(corr=1, body=PRODUCE_V0_ANSWER)
        << call(api="Produce", status="no_reply_expected") << anomaly("reply_to_acks_0", packet=5)
    ).nothing_more()  # fmt: skip


def test_a_response_captured_before_its_request_finds_it() -> None:
    script = play() >> handshake() >> request(corr=1) >> request(corr=2) >> response(corr=1)
    sent = script.segments
    captured = [*sent[:3], sent[5], *sent[3:5]]
    script.segments = [replace(s, packet=t.packet, time=t.time) for s, t in zip(captured, sent, strict=True)]
    script << call(correlation_id=1, status="ok", request_packet=5, response_packet=4, latency_us=None)
    script << anomaly("response_before_request")


def test_a_lost_request_costs_no_other_call_its_response() -> None:
    script = play() >> handshake() >> request(corr=1) >> response(corr=1)
    script >> lost_from_client(kafka_request(3, 0, 2, pack(">i", 0))) >> response(corr=2)
    for corr in range(3, 30):
        script >> request(corr=corr) >> response(corr=corr) >> wait(0.2)
    calls = [row for row in script.events() if row["event"] == "call"]
    assert [row["correlation_id"] for row in calls if row["status"] == "orphan"] == [2]
    assert sorted(row["correlation_id"] for row in calls if row["status"] == "ok") == [1, *range(3, 30)]
    script << anomaly("gap") << anomaly("resynchronised")
    assert not [row for row in script.events() if row["code"] == "response_before_request"]


def test_a_response_without_request_is_an_orphan() -> None:
    (
        play() >> handshake() >> request(corr=1) >> response(corr=9) >> response(corr=1)
        << call(status="orphan", correlation_id=9, api=None, response_packet=5)
        << call(status="ok", correlation_id=1)
    )  # fmt: skip


def test_unanswered_calls_say_why() -> None:
    base = [handshake(), request(corr=1)]

    def script(*acts):  # type: ignore[no-untyped-def]
        result = play()
        for act in (*base, *acts):
            result >> act
        return result

    script() << call(status="unanswered", unanswered_because="capture_ended")
    script(rst(BROKER)) << call(status="unanswered", unanswered_because="connection_reset")
    script(fin(CLIENT), fin(BROKER)) << call(status="unanswered", unanswered_because="connection_closed")
    silent = play(idle_timeout=600) >> handshake() >> request(corr=1) >> wait(700) >> request(corr=2)
    silent << call(correlation_id=1, unanswered_because="connection_closed")
    lost = script(
        lost_from_broker(kafka_response(1, b"12345678")),
        request(corr=2),
        response(corr=2),
        wait(2),
        ack(CLIENT),
    )
    lost << call(correlation_id=1, status="unanswered", unanswered_because="gap_in_responses")
    lost << call(correlation_id=2, status="ok") << anomaly("gap") << anomaly("resynchronised")


def test_a_fin_says_that_the_response_before_it_was_lost() -> None:
    """Nothing acknowledged the response: the FIN's sequence number alone tells that it was sent."""
    answer = kafka_response(1, b"12345678")
    script = play() >> handshake() >> request(corr=1) >> lost_from_broker(answer) >> fin(BROKER)
    script << call(status="unanswered", unanswered_because="gap_in_responses", closed_by="broker_fin")
    script << connection(broker_missing_bytes=len(answer))


def test_a_fin_far_off_says_nothing() -> None:
    script = play() >> handshake() >> request(corr=1)
    script.send(BROKER, b"", 1 | 16, seq=script.next_seq[BROKER] + (1 << 25))
    script << call(status="unanswered", unanswered_because="capture_ended")
    script << connection(broker_missing_bytes=0)


def test_a_response_that_an_rst_overtook_on_the_way_to_the_capture_counts() -> None:
    script = play() >> handshake() >> request(corr=1) >> response(corr=1)
    script.send(CLIENT, b"", 4 | 16)
    script.segments[-2:] = script.segments[:-3:-1]
    script << call(status="ok") << connection(rst=True)
    script.nothing_more()


def test_a_reply_to_acks_0_captured_before_its_request_is_no_orphan() -> None:
    script = play() >> handshake() >> request(corr=5) >> response(corr=5)
    script >> request(api=0, corr=6, body=PRODUCE_V0_ACKS_0) >> response(corr=6, body=PRODUCE_V0_ANSWER)
    script.segments[-2:] = script.segments[:-3:-1]
    script << call(correlation_id=5) << call(status="no_reply_expected") << anomaly("reply_to_acks_0")
    script.nothing_more()


def test_an_unknown_version_still_has_its_latency() -> None:
    (
        play()
        >> handshake()
        >> request(api=3, version=99, corr=1, body=b"??")
        >> response(corr=1, body=b"??")
        << call(status="undecoded", api="Metadata", api_version=99, latency_us=1000.0, client_id="tester")
        << anomaly("unknown_version", packet=4)
    ).nothing_more()


def test_a_broken_body_costs_only_the_decoding() -> None:
    (
        play() >> handshake() >> request(corr=1, body=b"\x7f\xff\xff\xff") >> response(corr=1)
        >> request(corr=2) >> response(corr=2)
        << call(correlation_id=1, status="undecoded", latency_us=1000.0)
        << call(correlation_id=2, status="ok") << anomaly("array_too_long", packet=4)
    ).nothing_more()  # fmt: skip


def test_an_old_broker_answers_an_unknown_api_versions_request_with_version_0() -> None:
    request_v3 = b"\0" + b"\x05java" + b"\x041.0" + b"\0"  # header tags, software name and version, tags
    answer_v0 = pack(">hihhh", 35, 1, 18, 0, 2)
    (
        play() >> handshake() >> request(api=18, version=3, corr=1, body=request_v3)
        >> response(corr=1, body=answer_v0)
        << call(api="ApiVersions", status="error", error="UNSUPPORTED_VERSION", software_name="java",
                software_version="1.0")
    ).nothing_more()  # fmt: skip


def test_tokens_after_sasl_handshake_v0_are_no_messages() -> None:
    token = b"\0alice\0not-shown"
    script = (
        play() >> handshake() >> request(api=17, corr=1) >> response(api=17, corr=1)
        >> from_client(pack(">i", len(token)) + token) >> from_broker(pack(">i", 0))
        >> request(corr=2) >> response(corr=2) >> fin(CLIENT) >> fin(BROKER)
        << call(api="SaslHandshake", status="ok") << call(api="Metadata", status="ok")
        << connection(sasl_mechanism="PLAIN", user="alice", security="plaintext")
    ).nothing_more()  # fmt: skip
    assert "not-shown" not in str(script.events())


def test_a_gssapi_token_may_open_a_connection() -> None:
    token = b"\x60\x82\x01" + b"x" * 40
    (
        play()
        >> handshake()
        >> from_client(pack(">i", len(token)) + token)
        >> from_broker(pack(">i", 3) + b"abc")
        >> request(corr=2)
        >> response(corr=2)
        << call(api="Metadata", status="ok", correlation_id=2)
    ).nothing_more()


def test_find_coordinator_v0_may_be_answered_with_correlation_id_0() -> None:
    (
        play() >> handshake() >> request(api=10, corr=5, body=pack(">h1s", 1, b"g"))
        >> response(corr=0, body=pack(">hih4si", 0, 1, 4, b"host", 9092))
        << call(api="FindCoordinator", correlation_id=5, status="ok", group_id="g", transactional_id=None)
    ).nothing_more()  # fmt: skip


def test_a_coordinator_is_looked_for_by_group_or_by_transactional_id() -> None:
    answer = pack(">ihhih4si", 0, 0, -1, 0, 4, b"host", 9092)
    for kind, named in ((0, {"group_id": "x", "transactional_id": None}), (1, {"transactional_id": "x"})):
        asked = pack(">h1sb", 1, b"x", kind)
        script = play() >> handshake() >> request(api=10, version=1, corr=5, body=asked)
        script >> response(corr=5, body=answer) << call(api="FindCoordinator", status="ok", **named)
        script.nothing_more()


def test_ports_of_both_ends_may_be_kafka_ports() -> None:
    (
        play()
        >> on_ports(9092, 9093)
        >> request(corr=1)
        >> response(corr=1)
        << call(client_port=9092, broker_port=9093, status="ok")
    ).nothing_more()


def test_kafka_on_another_port_needs_agreement() -> None:
    lone = play() >> on_ports(50_000, 19_092) >> handshake() >> request(corr=1)
    (lone << anomaly("not_kafka")).nothing_more()
    (
        play()
        >> on_ports(50_000, 19_092)
        >> handshake()
        >> request(corr=1)
        >> response(corr=1)
        << call(broker_port=19_092, status="ok")
    ).nothing_more()
    one_way = play() >> on_ports(50_000, 19_092) >> handshake() >> request(corr=1) >> request(corr=2)
    one_way << call(correlation_id=1, status="unanswered") << call(correlation_id=2, status="unanswered")


def test_http_on_any_port_gives_no_calls() -> None:
    get, answer = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
    other = play() >> on_ports(50_000, 8080) >> handshake() >> from_client(get) >> from_broker(answer)
    assert other.events() == []
    (
        play()
        >> handshake()
        >> from_client(get)
        >> from_broker(answer)
        << anomaly("not_kafka")
        << connection(security="unknown", frames=0)
    ).nothing_more()


def test_tls_on_a_kafka_port_is_counted_as_such() -> None:
    hello = b"\x16\x03\x01\x00\x05hello"
    (
        play()
        >> handshake()
        >> from_client(hello)
        >> from_broker(hello)
        << connection(security="tls", frames=0)
    ).nothing_more()


def test_a_new_syn_on_the_same_ports_is_a_new_connection() -> None:
    script = play() >> handshake() >> request(corr=1) >> response(corr=1)
    script.next_seq = [5_000_000, 7_000_000]
    script >> handshake() >> request(corr=1) >> response(corr=1)
    script << call(request_packet=4) << call(request_packet=9) << connection(frames=2) << connection(frames=2)
    ids = {row["connection"] for row in script.events()}
    assert len(ids) == 2


def test_a_retransmitted_syn_is_the_same_connection() -> None:
    script = play() >> handshake()
    syn = script.segments[0]
    script.send(CLIENT, b"", 2, seq=syn.seq)
    script >> request(corr=1) >> response(corr=1) << call(status="ok") << connection(syn=True)
    script.nothing_more()


def test_a_connection_tells_its_handshake_round_trip_and_how_it_ended() -> None:
    (
        play() >> handshake() >> request() >> response() >> fin(CLIENT) >> fin(BROKER) >> ack(CLIENT)
        << call(status="ok") << connection(
            handshake_us=2000.0, syn=True, fin=True, rst=False, client_packets=5, broker_packets=3,
            client_bytes=24, broker_bytes=16, client_missing_bytes=0, broker_missing_bytes=0, frames=2,
            security="plaintext",
        )
    ).nothing_more()  # fmt: skip


def test_half_a_connection_gives_what_it_can() -> None:
    requests = play() >> handshake() >> request(corr=1) >> request(corr=2)
    requests << call(status="unanswered") << call(status="unanswered")
    answers = play()
    for corr in (1, 2, 3):
        answers >> response(corr=corr)
    answers << call(status="orphan", correlation_id=1) << call(status="orphan", correlation_id=2)
    lost = (
        play() >> handshake() >> lost_from_client(kafka_request(3, 0, 1, pack(">i", 0))) >> response(corr=1)
    )
    lost >> request(corr=2) >> response(corr=2)
    # The request behind the hole is taken at once; it shows that the one before it does not come any more.
    lost << call(status="orphan", correlation_id=1) << call(status="ok", correlation_id=2)


def test_a_response_whose_header_is_malformed_is_told_as_such() -> None:
    (
        play()
        >> handshake()
        >> request(api=3, version=9, corr=1, body=b"\0\x01\0\0\0\0")
        >> response(corr=1, body=b"\xff" * 30)  # tagged fields of the header beyond its end
        << call(api="Metadata", status="undecoded", correlation_id=1)
        << anomaly("header_malformed", packet=5)
    ).nothing_more()


def naming(software: str, corr: int) -> Act:
    """An ApiVersions v3 request, with its header's tags, the client's name and its version."""
    names = b"".join(bytes([len(text) + 1]) + text for text in (software.encode(), b"1"))
    return request(18, corr, 3, b"\0" + names + b"\0")


def versions(corr: int, error: int) -> Act:
    return response(corr, body=pack(">hBiB", error, 1, 0, 0))


@pytest.mark.parametrize(("error", "kept"), [(0, "second"), (42, "first")])
def test_a_software_name_that_the_broker_refused_replaces_none(error: int, kept: str) -> None:
    script = play() >> handshake() >> naming("first", 1) >> versions(1, 0)
    script >> naming("second", 2) >> versions(2, error) >> request(corr=3) >> response(corr=3)
    names = [row["software_name"] for row in script.events() if row["event"] == "call"]
    assert names == ["first", "second", kept]


def test_a_software_name_is_that_of_the_request_which_the_broker_accepted() -> None:
    """Of two requests that wait for their answers only the first is accepted."""
    script = play() >> handshake() >> naming("first", 1) >> naming("second", 2) >> versions(1, 0)
    script >> versions(2, 42) >> request(corr=3) >> response(corr=3)
    names = [row["software_name"] for row in script.events() if row["event"] == "call"]
    assert names == ["first", "second", "first"]
