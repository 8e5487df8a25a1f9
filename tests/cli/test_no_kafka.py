"""A capture without Kafka says so, with what is there instead and what to try."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.analysis.conftest import Ended, kwsniff
from tests.capture.files import START, frame, pcap

__all__ = ["kwsniff"]

WEB = (8080).to_bytes(2, "big")


@pytest.fixture
def web(tmp_path: Path) -> str:
    """A request to a web server on port 8080."""
    sent = frame(1, b"GET / HTTP/1.1\r\n\r\n")
    path = tmp_path / "web.pcap"
    path.write_bytes(pcap([(START + at, sent[:36] + WEB + sent[38:]) for at in range(5)]))
    return str(path)


@pytest.mark.parametrize("command", ["report", "slow", "clients", "decode"])
def test_it_says_that_there_is_no_kafka(kwsniff: Callable[..., Ended], web: str, command: str) -> None:
    ended = kwsniff(command, web)
    told = " ".join((ended.out + ended.err).split())
    assert ended.code == 0
    assert "No Kafka was found. Instead: TCP on port 8080 (HTTP, 5 packets)." in told
    assert "--port 8080" in told
    assert "No gaps" not in told
    assert "Nothing was found that somebody should look into" not in told


def test_nothing_is_praised_in_quiet_either(kwsniff: Callable[..., Ended], web: str) -> None:
    assert "There are no Kafka calls in it" in kwsniff("report", "-q", web).out


def test_a_capture_of_nothing_asks_for_the_interface(kwsniff: Callable[..., Ended], tmp_path: Path) -> None:
    path = tmp_path / "empty.pcap"
    path.write_bytes(pcap([]))
    assert "It holds no TCP: was the right interface captured" in kwsniff("slow", str(path)).err
