"""Whole connections of the recordings, told as an independent reading has them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.intact.comparison import compare
from tests.samples import CAPTURES

FILES = sorted(path for path in CAPTURES.rglob("*.pcap*") if "expected" not in path.parts)
NOTHING_WHOLE = {"midstream.pcap", "snaplen-128.pcap", "tls.pcapng", "tls-failures.pcapng.zst"}
"""Recordings that have no whole connection in the clear, which is what they are for."""


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_recording_is_told_as_the_independent_reading_has_it(path: Path) -> None:
    found = compare(str(path))
    assert bool(found.calls) == (path.name not in NOTHING_WHOLE), found.judged_not
    assert found.right, (found.untold, found.invented, found.anomalies)
