"""The dissectors against what releases of Kafka say themselves."""

from __future__ import annotations

from pathlib import Path

import pytest

from kwsniff.spec.releases import releases
from tests.conformance import check, jars

RELEASES = ("2.8.2", "3.3.2", "3.9.2", "4.1.2", "4.3.1", "4.4.0")

pytestmark = pytest.mark.maven


@pytest.mark.parametrize("version", RELEASES)
def test_a_release_says_nothing_that_the_dissectors_lack_or_say_otherwise(
    version: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = check.release(version, tmp_path)
    with capsys.disabled():
        print(f"\n{result}")
    assert result.findings == []
    # So that nothing is not what was compared: 2.8 has the fewest.
    assert result.versions >= 499
    assert result.errors >= 106


def test_the_newest_release_is_the_last_of_the_table(tmp_path: Path) -> None:
    """Whoever sees this fail finds with `make conformance` what there is to add."""
    newest = jars.release(jars.fetch(f"[{jars.FIRST},)", tmp_path))
    assert releases().find(newest) == releases().names[-1]


def test_a_release_that_is_not_there_is_said_to_be_so(tmp_path: Path) -> None:
    with pytest.raises(jars.NoSuchReleaseError, match=r"4\.99\.0"):
        jars.fetch("4.99.0", tmp_path)
