"""How the tests are run: how many of them, on which worker, and what is done before the first.

pytest-xdist gives every worker (`-n`) single tests, but those of one `xdist_group` to one worker: the tests
that share a Spark session, which takes longer to start than most of them take.
"""

from __future__ import annotations

import pytest
from hypothesis import settings

from tests.strength import ALL, examples

# How long an example takes says nothing on a busy machine.
settings.register_profile("kwsniff", deadline=None, max_examples=examples(100))
settings.load_profile("kwsniff")


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


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out cases of tests marked `one_of`, unless everything or one case by its name is asked for."""
    named = any("[" in argument for argument in config.invocation_params.args)
    left_out = [] if ALL or named else [item for item in items if not _is_chosen(item)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if _is_chosen(item)]


def _is_chosen(item: pytest.Item) -> bool:
    """Whether it is one of the cases that run by default: spread so that each value of each parameter is
    among them, if the others have enough values."""
    marker = item.get_closest_marker("one_of")
    if marker is None or not isinstance(item, pytest.Function):
        return True
    place = 0
    for parameters in item.iter_markers("parametrize"):
        names = parameters.args[0]
        first = names.split(",")[0].strip() if isinstance(names, str) else names[0]
        place += item.callspec.indices[first]
    return place % int(marker.args[0]) == 0
