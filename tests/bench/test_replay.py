"""What the bench of live sessions reads of what they say is what they say."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from kwsniff.cli.live import Warnings
from kwsniff.live.session import Health

sys.path.insert(0, str(Path(__file__).parent))

import replay


@pytest.mark.parametrize(("kernel", "own"), [(0, 0), (1_234, 0), (0, 56_789), (1_234, 56_789), (600, 160)])
def test_drops_of_a_live_session_are_read(kernel: int, own: int, capsys: pytest.CaptureFixture[str]) -> None:
    warnings = Warnings()
    warnings.tick(Health(("lo",), 0, 1, packets=500, came=70_000, kernel_dropped=min(kernel, 7)))
    warnings.tick(Health(("lo",), 0, 1, packets=500, came=70_000, kernel_dropped=kernel, own_dropped=own))
    said = capsys.readouterr().err + "1,500 packets, 2 MB. 1 connection.\n"
    assert replay.counted("kwsniff live", said) == (1500, kernel + own)
