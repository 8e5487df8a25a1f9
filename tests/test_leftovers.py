"""A test that leaves a stand-in in a module of kwsniff, or another environment, is named itself."""

from __future__ import annotations

import pytest

import kwsniff.run.offline
from tests.cli import stand_in
from tests.leftovers import leftovers


def test_nothing_is_left_at_first() -> None:
    assert leftovers() == []


def test_a_stand_in_that_a_module_keeps_is_found() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kwsniff.run.offline, "events", stand_in.events)
        assert leftovers() == ["kwsniff.run.offline.events"]


def test_a_module_of_the_tests_in_place_of_one_is_found() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kwsniff.api.decoded.offline", stand_in)
        assert leftovers() == ["kwsniff.api.decoded.offline"]


def test_variables_that_were_left_are_found() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KWSNIFF_KERNELS", "something")
        (found,) = leftovers()
        assert "something" in found
