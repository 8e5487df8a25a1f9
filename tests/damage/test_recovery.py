"""Of a damaged capture, no fewer requests than tshark finds in it, of the API versions that it knows."""

from __future__ import annotations

import shutil

import pytest

from tests.damage.recovery import recovered


@pytest.mark.tshark
@pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not installed")
@pytest.mark.parametrize("name", ["ipv6", "librdkafka-admin", "mock-errors", "tls"])
def test_no_fewer_requests_are_found_than_tshark_finds(name: str) -> None:
    """But where bytes are wrong, which TCP's checksum prevents on a network: there a connection whose first
    messages are damaged proves nothing, and tells no calls (docs/reliability.md)."""
    tallies = recovered([name], tshark=True)
    less = {damage for damage, tally in tallies.items() if tally.less}
    assert all("bytes wrong" in damage for damage in less), less
    assert sum(tally.theirs for tally in tallies.values()) > 0
