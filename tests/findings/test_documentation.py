from __future__ import annotations

import dataclasses
import inspect
from pathlib import Path

import pytest

from kwsniff.analysis.findings import RULES, Rule, page, thresholds
from kwsniff.analysis.thresholds import Thresholds

DOCS = Path(__file__).parents[2] / "docs"


def test_the_page_of_findings_is_what_the_rules_say() -> None:
    run = "run python -m kwsniff.analysis.findings > docs/findings.md"
    assert (DOCS / "findings.md").read_text(encoding="utf-8") == page() + "\n", run


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
def test_every_rule_says_what_it_means_and_what_to_do(rule: type[Rule]) -> None:
    assert len(inspect.getdoc(rule) or "") > 80
    assert rule.missing
    assert rule.several.endswith(".")
    assert len(rule.about) <= 20


def test_every_threshold_is_documented_and_codes_are_unique() -> None:
    assert list(thresholds()) == [field.name for field in dataclasses.fields(Thresholds)]
    assert len({rule.code for rule in RULES}) == len({rule.about for rule in RULES}) == len(RULES)
