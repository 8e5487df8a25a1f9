"""What a session says of packets that were lost, beside how many were sent."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from kwsniff.cli.live import Warnings
from kwsniff.live.session import Health
from tests.live.test_end_to_end import scenario


def test_packets_that_wait_to_be_decoded_have_come(capsys: pytest.CaptureFixture[str]) -> None:
    Warnings().tick(Health(("lo",), 0, 10**9, packets=500, came=2000, kernel_dropped=600, own_dropped=160))
    assert capsys.readouterr().err == (
        "kwsniff: 760 packets dropped, so far 600 by the kernel and 160 by kwsniff, 38.0% of those that "
        "came; what they carried is missing\n"
    )


@pytest.mark.parametrize(("who", "word"), [("kernel_dropped", "the kernel"), ("own_dropped", "kwsniff")])
def test_only_who_dropped_packets_is_named(who: str, word: str, capsys: pytest.CaptureFixture[str]) -> None:
    lost = {who: 1000}
    Warnings().tick(Health(("lo",), 0, 10**9, packets=3000, came=4000, **lost))
    assert f"so far 1,000 by {word}, 25.0% of" in capsys.readouterr().err


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="a network namespace needs root")
@pytest.mark.parametrize("interface", ["lo", "any"])
def test_the_share_is_that_of_the_packets_sent(interface: str, tmp_path: Path) -> None:
    told = scenario(tmp_path, 4000, "-i", interface, "--buffer=512K", what="flood")
    assert told == {"sent": 6000, "exit": 0}
    said = (tmp_path / "live.err").read_text()
    decoded = int(re.search(r"([\d,]+) packets, ", said)[1].replace(",", ""))  # type: ignore[index]
    dropped, share = re.search(  # type: ignore[misc]
        r"Damaged input: ([\d,]+) packets \(([\d.]+)%\) dropped by the capturing kernel", said
    ).groups()  # type: ignore[union-attr]
    lost = told["sent"] - decoded
    assert int(dropped.replace(",", "")) == pytest.approx(lost, rel=0.02)
    assert float(share) == pytest.approx(100 * lost / told["sent"], rel=0.02)
    first = re.search(r"so far ([\d,]+) by the kernel, ([\d.]+)%", said)
    assert first is not None
    assert float(first[2]) == pytest.approx(100 * int(first[1].replace(",", "")) / 4000, rel=0.03)
