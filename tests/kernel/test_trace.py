"""What a trace says was decided, for each kind of decision, over scripts that leave no other choice."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kwsniff.capture.source import segments
from kwsniff.config import Config
from kwsniff.engine import details
from kwsniff.engine.analyze import Engine
from kwsniff.engine.notes import DECISIONS
from kwsniff.net.segments import segment_columns
from kwsniff.run.offline import events
from tests.playbook import (
    BROKER,
    CLIENT,
    Play,
    ack,
    batch,
    fin,
    from_broker,
    from_client,
    handshake,
    kafka_request,
    kafka_response,
    lost_from_broker,
    on_ports,
    play,
    request,
    response,
    rst,
    wait,
)
from tests.samples import CAPTURES, sample

METADATA = kafka_response(2, bytes(8))


def said(script: Play) -> list[str]:
    """The decisions on a script, each with its end, without those that only name segments."""
    engine = Engine(script.config, compiled=False)
    traced = engine.trace()
    for _ in engine.feed(segment_columns(batch(script.segments))):
        pass
    for _ in engine.finish():
        pass
    return [
        f"{each.end} {each.what}".strip() for each in traced.take() if not each.what.startswith("segment of")
    ]


def test_a_plain_call() -> None:
    found = said(play() >> handshake() >> request() >> response() >> fin(CLIENT) >> fin(BROKER))
    assert found == [
        "new between 10.0.0.1 port 50000 and 10.0.0.2 port 9092: a Kafka port is known",
        "client held until the connection is judged, 24 bytes by now",
        "client accepted as Kafka, this end is the client: content proved it",
        "client request Metadata v0, correlation id 1 waits for its response",
        "broker response 1 paired with its request",
        "closed, connection_closed: a FIN, a new SYN or silence ended the connection first",
    ]


def test_a_gap_is_given_up_because_its_bytes_were_acknowledged() -> None:
    script = play() >> handshake() >> request() >> response() >> request(corr=2) >> request(corr=3)
    script >> lost_from_broker(METADATA) >> ack(CLIENT) >> response(corr=3) >> ack(CLIENT) >> wait(2)
    found = said(script >> request(corr=4) >> response(corr=4))
    size = len(METADATA)
    at = found.index(f"broker waits behind a hole of {size} bytes")
    given_up = f"gap of {size} bytes given up: the receiver acknowledged them, so the capture lost them"
    assert f"broker {given_up}" in found[at:]
    assert f"broker framing lost: {size} missing bytes may hold a length" in found[at:]
    assert (
        "request 2 told as unanswered: gap_in_responses: bytes are missing from the response stream, the "
        "response may have been among them" in found[at:]
    )
    assert "broker response 3 paired with its request" in found[at:]


def test_a_response_that_was_captured_first_waits_for_its_request() -> None:
    script = play() >> handshake() >> request() >> response()
    found = said(script >> response(corr=2) >> request(corr=2))
    at = found.index("broker response 2 came before its request: it waits")
    assert found[at + 1 : at + 3] == [
        "client request Metadata v0, correlation id 2 waits for its response",
        "broker response 2, captured before its request, paired with it",
    ]


def test_a_response_whose_request_never_comes_is_an_orphan() -> None:
    script = play() >> handshake() >> request() >> response() >> response(corr=2) >> request(corr=3)
    assert "response 2 told as orphan: its request did not come" in said(script)


def test_what_is_no_kafka_is_refused() -> None:
    script = (
        play() >> handshake() >> from_client(b"GET / HTTP/1.1\r\n\r\n") >> from_broker(b"HTTP/1.1 200 OK\r\n")
    )
    assert "refused: it is no Kafka that can be read" in said(script)


def test_tls_is_left_alone() -> None:
    hello = bytes.fromhex("160301004001") + bytes(59)
    assert "it is TLS: its records are cut" in said(play() >> handshake() >> from_client(hello))


def test_the_proof_turns_round_what_a_port_says() -> None:
    script = (
        play() >> on_ports(9092, 50_000) >> request() >> response() >> request(corr=2) >> response(corr=2)
    )
    found = said(script)
    turned = "client content says that this end is the client, against SYN or port: turned round"
    at = found.index(turned)
    assert found[at + 1] == "client accepted as Kafka, this end is the client: content proved it"


def test_bytes_seen_before_and_out_of_every_window() -> None:
    script = play() >> handshake() >> request() >> response()
    script.send(CLIENT, kafka_request(3, 0, 1, bytes(4)), seq=1001)
    script.send(CLIENT, b"x" * 10, seq=1001 + (5 << 28))
    found = said(script)
    assert f"client {len(kafka_request(3, 0, 1, bytes(4)))} bytes were seen before" in found
    assert any("no receiver takes it" in each for each in found)


def test_a_length_that_no_frame_has_loses_the_framing() -> None:
    script = play() >> handshake() >> request() >> response() >> from_client(b"\xff" * 8) >> request(corr=2)
    found = said(script >> response(corr=2))
    at = found.index("client framing lost: no frame has a length of -1")
    assert "client framing found, 8 bytes skipped" in found[at:]


def test_a_reset_says_why_requests_got_no_answer() -> None:
    found = said(play() >> handshake() >> request() >> rst(BROKER) >> wait(5))
    assert found[-2:] == [
        "closed, connection_reset: an RST ended the connection first",
        "request 1 told as unanswered: connection_reset: an RST ended the connection first",
    ]


def test_a_limit_of_the_run_is_named() -> None:
    script = play(max_outstanding_total=5) >> handshake() >> request() >> response()
    for corr in range(2, 10):
        script = script >> request(corr=corr)
    assert "6 requests in flight given up to keep within a limit of the run" in said(script)


def test_every_kind_of_decision_has_words() -> None:
    assert {*DECISIONS} - {"opened"} == {*details.WORDS}
    assert {*DECISIONS} >= details.OF_NO_END


@pytest.mark.parametrize("name", ["librdkafka-groups", "midstream"])
def test_tracing_changes_no_event_and_names_every_call(name: str) -> None:
    config = Config(kernels="never")
    engine = Engine(config)
    traced, found, rows = engine.trace(), [], []
    for each in segments(sample(name).paths, config):
        rows += [row for made in engine.feed(segment_columns(each)) for row in made.to_pylist()]
        found += traced.take()
    rows += [row for made in engine.finish() for row in made.to_pylist()]
    found += traced.take()
    plain = [row for made in events(sample(name).paths, config) for row in made.to_pylist()]
    assert rows == plain
    paired = {(each.connection, each.packet) for each in found if "paired with" in each.what}
    for row in plain:
        if row["event"] == "call" and row["status"] == "ok":
            assert any(at == row["connection"] for at, _ in paired)
    count = sum("paired with" in each.what for each in found)
    answered = ("ok", "error", "undecoded", "truncated")
    assert count == sum(row["status"] in answered and row["request_packet"] is not None
                        and row["response_packet"] is not None for row in plain)  # fmt: skip


def traced(*arguments: str, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    around = {**os.environ, "KWSNIFF_KERNELS": "interpreted"}
    command = [sys.executable, "-m", "kwsniff", "decode", *arguments]
    return subprocess.run(command, env=around, capture_output=True, text=True, check=False, cwd=tmp_path)


def test_the_command_writes_the_decisions_on_one_connection(tmp_path: Path) -> None:
    path = str(CAPTURES / "midstream.pcap")
    ids = {row["connection"] for row in sample("midstream").events(kernels="never") if row["connection"]}
    chosen = sorted(ids)[0]
    ended = traced(path, "--trace", chosen[:12], tmp_path=tmp_path)
    assert ended.returncode == 0, ended.stderr
    lines = ended.stdout.splitlines()
    assert len(lines) > 10
    assert all(chosen in line for line in lines)
    assert "new between" in lines[0]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--trace", "xyz"), "'xyz' is no id of a connection"),
        (("--trace", "0123456789abcdef"), "no connection has an id that begins with 0123456789abcdef"),
        (("--trace", "0", "-f", "csv"), "--trace goes with none of the options"),
    ],
)
def test_one_line_says_what_is_wrong(arguments: tuple[str, ...], said: str, tmp_path: Path) -> None:
    ended = traced(str(CAPTURES / "midstream.pcap"), *arguments, tmp_path=tmp_path)
    assert ended.returncode == 2
    assert said in ended.stderr
    assert ended.stderr.count("\n") == 1
    assert ended.stdout == ""
