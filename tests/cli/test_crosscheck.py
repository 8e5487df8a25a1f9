"""Beside Wireshark's dissector: what agrees, what differs, who is right, and what is missing."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kwsniff.cli.crosscheck import Answered, Place, SeenMessage, _compared, crosscheck, lines
from kwsniff.cli.problem import CommandError
from kwsniff.config import Config
from tests.samples import sample

PLACE: Place = ("response", 7, 1)
US = SeenMessage(3, 13, 0, frozenset({"orders"}), "")


def test_messages_that_say_the_same_agree() -> None:
    result = _compared({PLACE: [US]}, {PLACE: [US]})
    assert (result.tallies[3, 13].both, result.tallies[3, 13].agreed, result.differences) == (1, 1, [])


def test_another_topic_or_error_is_a_finding() -> None:
    for other in (US._replace(error=3), US._replace(topics=frozenset({"payments"}))):
        result = _compared({PLACE: [US]}, {PLACE: [other]})
        assert [each.packet for each in result.findings] == [7]


def test_the_word_of_tshark_does_not_count_where_it_says_so_itself() -> None:
    lost = US._replace(error=-12_021, doubt="tshark does not know this version")
    result = _compared({PLACE: [US]}, {PLACE: [lost]})
    assert (result.findings, [each.right for each in result.differences]) == ([], ["kwsniff"])


def test_its_word_counts_for_the_header_all_the_same() -> None:
    lost = US._replace(version=12, doubt="tshark does not know this version")
    assert _compared({PLACE: [US]}, {PLACE: [lost]}).findings


def test_a_response_to_a_request_that_was_answered_before_is_taken_wrongly() -> None:
    us = US._replace(answered=(Answered(4, 0, 28, 40),))
    (difference,) = _compared({PLACE: [us]}, {PLACE: [US._replace(api_key=4, version=0)]}).differences
    assert difference.right == "kwsniff"
    assert "request of packet 28, which packet 40 answered" in difference.what
    assert _compared({PLACE: [us]}, {PLACE: [US._replace(api_key=5, version=0)]}).findings


def test_a_message_that_only_tshark_saw_is_a_finding_and_one_only_we_saw_is_not() -> None:
    assert _compared({}, {PLACE: [US]}).findings
    assert not _compared({PLACE: [US]}, {}).findings
    assert _compared({PLACE: [US]}, {}).tallies[3, 13].only_us == 1


def test_without_tshark_it_says_what_to_install(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "kwsniff", "crosscheck", "captures/kafka-0.10.pcap"],
        env=os.environ | {"PATH": str(tmp_path)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (
        2,
        "kwsniff: tshark is not installed; on Debian or Ubuntu: apt install tshark\n",
    )


def test_without_pyshark_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: "/usr/bin/tshark")
    monkeypatch.setitem(sys.modules, "pyshark", None)
    with pytest.raises(CommandError, match=r"kwsniff\[crosscheck\]"):
        crosscheck("captures/kafka-0.10.pcap", Config())


@pytest.mark.tshark
@pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not installed")
def test_tshark_agrees_on_every_message_of_versions_it_knows() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "kwsniff", "crosscheck", "captures/kafka-0.10.pcap"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0
    rows = [line.rsplit(None, 4) for line in done.stdout.splitlines()[2:] if line]
    assert len(rows) > 10
    assert all(both == agreed for _, both, agreed, _, _ in rows)


def test_the_report_names_the_packets_of_findings() -> None:
    result = _compared({PLACE: [US]}, {PLACE: [US._replace(error=3)]})
    text = "\n".join(lines("x.pcap", result))
    assert "packet 7: Metadata 13 response #1: error 0, tshark 3" in text


@pytest.mark.tshark
def test_correlation_ids_that_are_used_again_are_no_findings() -> None:
    recorded = sample("kafka-0.8")
    result = crosscheck(recorded.paths[0], Config(ports=tuple(recorded.note["ports"])))
    assert (len(result.differences), result.findings) == (23, [])


@pytest.mark.tshark
def test_a_comparison_after_an_event_loop_was_closed() -> None:
    asyncio.run(asyncio.sleep(0))
    recorded = sample("kafka-0.8")
    result = crosscheck(recorded.paths[0], Config(ports=tuple(recorded.note["ports"])))
    assert result.findings == []
