"""How the tests are run: how many of them, on which worker, and what is done before the first.

With `-n`, pytest-xdist gives every worker single tests, but those of one `xdist_group` to one worker.
"""

from __future__ import annotations

import pytest
from hypothesis import settings

from tests.strength import ALL, examples

# How long an example takes says nothing on a busy machine.
settings.register_profile("kwsniff", deadline=None, max_examples=examples(100))
settings.load_profile("kwsniff")

SHARED = {"spark", "master", "installed"}
"""Fixtures that a worker makes once and keeps: a Spark session, a cluster, an unpacked wheel."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="accept what the samples yield now as the golden events, after reading the difference",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Workers find the kernels compiled, rather than compile them each for itself."""
    if getattr(config.option, "numprocesses", None):
        from kwsniff.engine.bulk.rehearsal import compile_apart

        compile_apart()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out cases of tests marked `one_of`, unless everything or one case by its name is asked for, and
    puts tests that share what takes long to make on one worker."""
    named = any("[" in argument for argument in config.invocation_params.args)
    left_out = [] if ALL or named else [item for item in items if not _is_chosen(item)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if _is_chosen(item)]
    for item in items:
        for shared in SHARED.intersection(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.xdist_group(shared))


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
