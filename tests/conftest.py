"""How the tests are run: how many of them, on which worker, and what is done before the first.

With `-n`, a worker of pytest-xdist takes all tests of a file, so that what they share is made once.
"""

from __future__ import annotations

import gc
import os
import re
import subprocess
import sys
from collections.abc import Generator, Iterator
from typing import Any

import pytest
from hypothesis import settings

from tests.leftovers import leftovers
from tests.strength import ALL, examples

# Here and in the commands that tests start: see `kwsniff.cli.main`.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# pytest-xdist tells its workers a width, which is that of no terminal.
os.environ.pop("COLUMNS", None)
# How long an example takes says nothing on a busy machine.
settings.register_profile("kwsniff", deadline=None, max_examples=examples(100))
settings.load_profile("kwsniff")

GROUPS = (
    r"tests/test_wheel\.py",
    r"tests/spark/test_cluster\.py",
    r"tests/spark/test_following\.py",
    r"tests/spark/",
    r"tests/conformance/test_releases\.py",
    r"tests/kernel/test_checked\.py",
)
"""Patterns of tests of several files, or of some of a file, that share what takes longer to make than to
use: a wheel, a cluster, a Spark session, kernels compiled with checks, or what only one may use at a time: a
Maven repository. They take long, so they begin before all others."""
SINGLE = r"tests/(parts|hostile|damage)/"
"""Tests that share nothing and take long, each by itself: they end the run, so that no worker is left with
a long file."""

LEFT: list[str] = []
"""What earlier tests were blamed for already."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="accept what the samples yield now as the golden events, after reading the difference",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Workers find the kernels compiled, as those have them who installed kwsniff, rather than compile them
    each for itself. Tests of single kernels interpret them all the same."""
    from kwsniff.native.code import fitting, functions

    if os.environ.get("KWSNIFF_KERNELS") != "interpreted" and fitting() is None:
        subprocess.run([sys.executable, "-m", "kwsniff.engine.build"], check=True, stdout=subprocess.DEVNULL)
        functions.cache_clear()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """By file and by our groups, in the order of the items: the marks that pytest-xdist has for it
    (`xdist_group`) do nothing from pytest 9.2 on."""
    from xdist.scheduler import LoadScopeScheduling

    class Grouped(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            place = _place(nodeid)
            if place < len(GROUPS):
                return GROUPS[place]
            return nodeid if re.match(SINGLE, nodeid) else nodeid.split("::")[0]

    config.option.loadscopereorder = False
    return Grouped(config, log)


def _place(nodeid: str) -> int:
    """Where a test stands in the order in which workers take them."""
    patterns = (*GROUPS, f"(?!{SINGLE})")
    return next((place for place, each in enumerate(patterns) if re.match(each, nodeid)), len(patterns))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, Any, Any]:
    """Collecting makes a few hundred thousand objects that stay: the garbage collector need not look through
    them again and again, neither while they are made nor afterwards."""
    gc.disable()
    collected = yield
    gc.freeze()
    gc.enable()
    return collected


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out cases of tests marked `one_of`, unless everything or one case by its name is asked for."""
    named = any("[" in argument for argument in config.invocation_params.args)
    left_out = [] if ALL or named else [item for item in items if not _is_chosen(item)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if _is_chosen(item)]


@pytest.hookimpl(trylast=True, specname="pytest_collection_modifyitems")
def pytest_order(items: list[pytest.Item]) -> None:
    """What takes long comes first, and what can be divided best last, in whatever order they were else."""
    items.sort(key=lambda item: _place(item.nodeid))


def _is_chosen(item: pytest.Item) -> bool:
    """Whether it is one of the cases that run by default: spread so that each value of each parameter is
    among them, if the others have enough values."""
    marker = item.get_closest_marker("one_of")
    if marker is None or not isinstance(item, pytest.Function):
        return True
    case = next(iter(item.callspec.indices.values()))  # counted through all parameters, the last one fastest
    places = 0
    for parameters in reversed([*item.iter_markers("parametrize")]):
        case, place = divmod(case, len(parameters.args[1]))
        places += place
    return places % int(marker.args[0]) == 0


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    """A test that leaves something behind fails, rather than one that runs after it in the same worker."""
    yield
    if "monkeypatch" in getattr(item, "fixturenames", ()):
        new = [each for each in leftovers() if each not in LEFT]
        LEFT.extend(new)
        assert not new, f"left behind in this process: {new}"
