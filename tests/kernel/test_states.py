"""The table of a connection's states and steps is the whole truth, and what the design draws."""

from __future__ import annotations

from typing import Any

import pytest

from kwsniff.config import Config
from kwsniff.engine import closing, connections, records, roles
from kwsniff.engine.tables import KAFKA, OTHER, PROBING, TLS
from kwsniff.run.offline import events
from tests.samples import CAPTURES, sample

NAMES = {PROBING: "PROBING", KAFKA: "KAFKA", TLS: "TLS", OTHER: "OTHER"}
STEPS = ("OPEN", "FLUSHING", "JUDGING", "FINISHING", "GIVING_UP", "CLOSED_")


@pytest.mark.parametrize("name", ["tls", "midstream", "connection-churn", "kafkajs-kafka"])
def test_nothing_else_is_ever_tried(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: set[tuple[int, int]] = set()
    steps: set[tuple[int, int]] = set()

    def become(t: Any, c: int, state: int) -> None:
        taken.add((t.conns[c].state, state))
        connections.become(t, c, state)

    def advance_to(t: Any, c: int, step: int) -> None:
        steps.add((t.conns[c].step, step))
        connections.advance_to(t, c, step)

    for module in (closing, records, roles):
        monkeypatch.setattr(module, "become", become)
    monkeypatch.setattr(closing, "advance_to", advance_to)
    for _ in events(sample(name).paths, Config(kernels="never")):
        pass
    assert taken
    assert taken <= {*connections.TRANSITIONS}
    assert steps == {*connections.STEPS}


def test_the_design_draws_every_state_and_step() -> None:
    design = (CAPTURES.parent / "docs" / "design.md").read_text()
    drawn = design[design.index("## The life of a connection") : design.index("## Decisions")]
    assert all(name in drawn for name in NAMES.values())
    places = [drawn.index(f"{step} ──►") for step in STEPS]
    assert places == sorted(places)
