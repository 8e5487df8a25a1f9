from __future__ import annotations

from typing import Any

import pytest

from kwsniff.analysis.trust import TrustTotals, paragraph, verdict
from kwsniff.net.packets import CaptureTotals

from .events import batch, call, event


def connection(**columns: Any) -> dict[str, Any]:
    defaults = {
        "event": "connection", "client_packets": 5, "broker_packets": 4, "client_bytes": 500,
        "broker_bytes": 700, "syn": True, "fin": True, "rst": False, "security": "plaintext", "frames": 10,
        "undecoded_frames": 0,
    }  # fmt: skip
    return event(**(defaults | columns))


def totals(*rows: dict[str, Any]) -> TrustTotals:
    made = TrustTotals()
    for row in rows:
        made.add(batch(row))
    whole = TrustTotals()
    whole.add(batch(*rows))
    assert whole == made
    return made


def test_a_clean_capture_is_told_in_one_paragraph() -> None:
    text = paragraph(totals(connection(), call()), CaptureTotals(packets=1234, bytes=2_350_000, files=1))
    assert text == (
        "Trust: high (nothing is missing). 1,234 packets, 2.35 MB, from 1 file. 1 connection: 1 complete. "
        "No gaps. 10 frames decoded, 0 not. 1 call: 1 paired."
    )


def test_of_a_run_that_was_left_only_what_is_known_is_told() -> None:
    text = paragraph(totals(call()), CaptureTotals(packets=12, bytes=2_000, files=1), whole=False)
    assert text == (
        "Trust: limited (stopped before the end). 12 packets, 2 kB, from 1 file. 1 call: 1 paired. "
        "Stopped before the end, so nothing is known of connections and gaps."
    )


def test_everything_that_shakes_trust_is_named() -> None:
    unanswered = call(latency=None, status="unanswered", unanswered_because="connection_reset")
    orphan = call(status="orphan", request_time=None, request_end_time=None)
    rows = [
        connection(syn=False, fin=False, client_missing_bytes=1000, resynchronisations=1, skipped_bytes=30),
        connection(fin=False, rst=True, broker_missing_bytes=1500, undecoded_frames=2),
        connection(client_bytes=0, fin=False),
        connection(security="tls", frames=None, undecoded_frames=None, syn=None),
        *(call(), unanswered, orphan, call(latency=None, status="no_reply_expected")),
    ]
    codes = ("gap", "gap", "capture_cut_short", "capture_damaged")
    seen = totals(*rows, *(event(event="anomaly", code=code) for code in codes))
    odd = {"non_ip": 1, "non_tcp": 2, "malformed": 3, "dropped": 4, "own_dropped": 2}
    assert paragraph(seen, CaptureTotals(packets=9, bytes=900, files=2, **odd)) == (
        "Trust: low (40 % of the packets were dropped; 37 % of the bytes are missing). "
        "9 packets, 900 bytes, from 2 files (1 not IP, 2 not TCP). "
        "4 connections: 1 complete, 2 joined mid-stream, 1 whose end was not seen; 1 with bytes in one "
        "direction only; 1 encrypted with TLS. "
        "2 gaps, 2.5 kB missing, 1 resynchronisation, 30 bytes skipped. "
        "28 frames decoded, 2 not. "
        "4 calls: 1 paired, 1 no reply expected, 1 unanswered, 1 orphan. "
        "Damaged input: 1 file cut short, 1 damaged place passed over, 3 malformed packets, "
        "4 packets (26.7%) dropped by the capturing kernel, "
        "2 packets (13.3%) dropped by kwsniff, which did not keep up."
    )
    assert seen.damaged


def test_without_capture_totals_packets_are_those_of_the_connections() -> None:
    seen = totals(connection(), connection())
    assert paragraph(seen).startswith(
        "Trust: high (nothing is missing). 18 packets with 2.4 kB of payload. 2 connections: 2 complete"
    )
    assert not seen.damaged


@pytest.mark.parametrize("code", ["capture_cut_short", "capture_damaged", "packet_malformed"])
def test_unreadable_input_counts_as_damage(code: str) -> None:
    assert totals(event(event="anomaly", code=code)).damaged


def test_nothing_seen_is_said_too() -> None:
    nothing = "No Kafka was found."
    assert paragraph(TrustTotals(), CaptureTotals(files=1)) == f"0 packets, 0 bytes, from 1 file. {nothing}"
    assert paragraph(TrustTotals(), CaptureTotals()) == f"0 packets, 0 bytes. {nothing}", "a live interface"


def test_bytes_cut_by_the_snap_length_are_missing_without_a_gap() -> None:
    text = paragraph(totals(connection(client_missing_bytes=0, broker_missing_bytes=1500)))
    assert "No gaps; 1.5 kB missing at the end of streams. " in text
    whole = totals(connection(client_missing_bytes=0, broker_missing_bytes=1500))
    assert "No gaps; 1.5 kB missing, cut off by the snap length. " in paragraph(
        whole, CaptureTotals(payloads_cut=9)
    )


def test_packets_cut_inside_their_headers_are_told() -> None:
    text = paragraph(totals(connection()), CaptureTotals(packets=9, headers_cut=4))
    assert text.partition(". ")[2].startswith("9 packets, 0 bytes (4 cut inside their headers). ")


def test_packets_that_were_captured_twice_are_told_with_their_share() -> None:
    text = paragraph(totals(connection()), CaptureTotals(packets=1000, segments=900, duplicates=450))
    assert text.partition(". ")[2].startswith("1,000 packets, 0 bytes (450 captured twice, 50.0% of TCP). ")


@pytest.mark.parametrize(
    ("rows", "packets", "told"),
    [
        ([connection(broker_missing_bytes=1)], {}, ("high", [])),
        ([connection(broker_missing_bytes=2)], {}, ("limited", ["0.166 % of the bytes are missing"])),
        ([connection(broker_missing_bytes=64)], {}, ("low", ["5.06 % of the bytes are missing"])),
        ([connection()], {"packets": 999, "dropped": 1}, ("limited", ["0.1 % of the packets were dropped"])),
        ([connection()], {"packets": 98, "own_dropped": 2}, ("low", ["2 % of the packets were dropped"])),
        ([connection(undecoded_frames=1)], {}, ("low", ["10 % of the frames were not decoded"])),
        (
            [connection(), connection(security="tls")],
            {},
            ("low", ["50 % of the connections are encrypted (TLS)"]),
        ),
        (
            [connection(syn=False)],
            {},
            ("limited", ["100 % of the connections were joined mid-stream"]),
        ),
        (
            [event(event="anomaly", code="capture_cut_short")],
            {},
            ("limited", ["part of the input could not be read"]),
        ),
        ([event(event="anomaly", code="reorder_limit")], {}, ("limited", ["limits of kwsniff were reached"])),
        (
            [call()] * 9 + [call(status="unanswered", latency=None, unanswered_because="gap_in_responses")],
            {},
            ("low", ["10 % of the calls lack their request, response or part of it"]),
        ),
        ([call(status="unanswered", latency=None, unanswered_because="connection_closed")], {}, ("high", [])),
    ],
)  # fmt: skip
def test_the_verdict_follows_from_what_the_capture_lacks(
    rows: list[dict[str, Any]], packets: dict[str, int], told: tuple[str, list[str]]
) -> None:
    assert verdict(totals(*rows), CaptureTotals(**packets)) == told


def test_the_gravest_reason_comes_first_and_in_a_window_gaps_stand_for_bytes() -> None:
    gap = event(event="anomaly", code="gap")
    rows = [connection(broker_missing_bytes=40, syn=False), gap, *[call()] * 99]
    whole, window = verdict(totals(*rows)), verdict(totals(*rows), window=True)
    assert [each.split(" ")[0] for each in whole[1]] == ["3.23", "100"]
    assert "1.01 % as many gaps as calls" in window[1]
