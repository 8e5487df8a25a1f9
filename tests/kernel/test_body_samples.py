"""Every body of the recorded samples, and every call they make, by the kernels as by `tests.oracle`."""

from __future__ import annotations

from collections import Counter

import pytest
from body_machine import Machine
from samples import CAPTURES, Sample
from test_bodies import check, oracle
from test_body_calls import call, calls, expected

from kwsniff.kernel import packing
from kwsniff.kernel.numbers import OK
from tests.messages import Said, all_of
from tests.oracle.bodies import Body

NAMES = sorted(path.stem for path in (CAPTURES / "expected").glob("*.json"))


def read(said: Said) -> Body:
    body = oracle(*said, 0, len(said.data))
    assert isinstance(body, Body)
    return body


@pytest.mark.one_of(5)
@pytest.mark.parametrize("name", NAMES)
def test_bodies_and_calls_of_a_sample_say_what_they_said(name: str) -> None:
    listener, machine = all_of(Sample(name).paths), Machine()
    assert listener.bodies
    seen: Counter[tuple[int, int, str]] = Counter()
    for said in listener.bodies:
        seen[said[:3]] += 1
        if seen[said[:3]] <= 30:
            check(machine, *said)
    assert listener.pairs
    for asked, answer in listener.pairs[:400]:
        machine.read(*asked, 0, len(asked.data))
        assert machine.call(packing.keep, 0) == OK
        machine.row("facts", 1).clean = 0
        if answer is not None:
            machine.read(*answer, 0, len(answer.data))
        store = machine.row("store")
        store.call_names = store.call_rows = store.call_resources = 0
        assert machine.call(calls.join, 0, 0) == OK
        packing.forget(machine.t, 0)
        assert call(machine, 0) == expected(read(asked), None if answer is None else read(answer)), asked
    assert machine.row("store").words_live == 0
