"""The examples in docstrings and in docs/notebook.md give what stands beside them."""

from __future__ import annotations

import doctest
import importlib
import re
from pathlib import Path

import pytest

from kwsniff import __all__ as public

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "notebook.md"
MODULES = ("decoded", "whole")


def failures(test: doctest.DocTest) -> str:
    """What the examples of a test give otherwise than they say; nothing if all is well."""
    said: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    result = runner.run(test, out=said.append)
    assert result.attempted > 1
    return "".join(said)


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Where the samples are, and results may be written."""
    (tmp_path / "captures").symlink_to(ROOT / "captures")
    (tmp_path / "out").mkdir()
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings(name: str) -> None:
    module = importlib.import_module(f"kwsniff.api.{name}")
    tests = [test for test in doctest.DocTestFinder().find(module) if test.examples]
    assert tests
    assert "".join(map(failures, tests)) == ""


@pytest.mark.filterwarnings("default::DeprecationWarning:matplotlib")
def test_the_notebook_page(tmp_path: Path) -> None:
    text = PAGE.read_text()
    test = doctest.DocTestParser().get_doctest(text.replace("```", "   "), {}, PAGE.name, str(PAGE), 0)
    assert failures(test) == ""
    pictures = re.findall(r"\]\((notebook-\w+\.svg)\)", text)
    assert len(pictures) == 2
    for picture in pictures:
        assert (tmp_path / "out" / picture).stat().st_size > 1000
        assert (PAGE.parent / picture).read_text().startswith("<?xml")


def test_every_public_function_has_an_example() -> None:
    import kwsniff

    without = [
        name
        for name in public
        if callable(getattr(kwsniff, name))
        and not isinstance(getattr(kwsniff, name), type)
        and ">>>" not in (getattr(kwsniff, name).__doc__ or "")
    ]
    assert without == ["use_dissectors"]  # it holds for the whole process
