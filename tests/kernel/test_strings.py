"""Texts of a run as Arrow strings: which, and how much memory that takes."""

from __future__ import annotations

import tracemalloc
from uuid import UUID

import numpy as np
import pyarrow as pa
import pytest

from kwsniff.engine.drained import Texts
from kwsniff.engine.machine import RECORDS, Machine

PLAIN, ID = 0, 1


def filled(compiled: bool, texts: list[bytes], kind: int = PLAIN) -> Machine:
    """A machine that holds these texts, as the kernels leave them: one behind the other."""
    machine = Machine(compiled=compiled)
    ends = np.cumsum([0, *map(len, texts)])
    machine.grow("texts", len(texts))
    machine.grow("text_bytes", int(ends[-1]))
    rows = np.zeros(len(texts), RECORDS["texts"])
    rows["at"], rows["size"], rows["kind"] = ends[:-1], np.diff(ends), kind
    machine.write("texts", slice(0, len(texts)), rows)
    memoryview(machine.t.text_bytes)[: int(ends[-1])] = b"".join(texts)
    machine.t.store[0].texts, machine.t.store[0].text_bytes = len(texts), int(ends[-1])
    return machine


@pytest.mark.parametrize("compiled", [False, True])
def test_texts_are_found_by_number_and_negative_ones_are_null(compiled: bool) -> None:
    texts = Texts(filled(compiled, [b"orders", b"", "grüße".encode()]))
    assert texts.now().chosen(np.array([2, -1, 0, 1, 0])).to_pylist() == [
        "grüße",
        None,
        "orders",
        "",
        "orders",
    ]
    assert texts.now().chosen(np.array([-1, -2])).to_pylist() == [None, None]


@pytest.mark.parametrize("compiled", [False, True])
def test_what_is_no_utf8_is_replaced_and_nothing_else(compiled: bool) -> None:
    texts = Texts(filled(compiled, [b"a\xffb", b"ok"]))
    assert texts.now().chosen(np.array([1, 0, -1])).to_pylist() == ["ok", "a\ufffdb", None]


@pytest.mark.parametrize("compiled", [False, True])
def test_long_texts_are_cut_to_characters(compiled: bool) -> None:
    texts = Texts(filled(compiled, ["ü".encode() * 9, b"abc"]))
    assert texts.now().chosen(np.array([0, 1, -1, 0]), 4).to_pylist() == ["üüüü", "abc", None, "üüüü"]


@pytest.mark.parametrize("compiled", [False, True])
def test_uuids_are_written_with_hyphens(compiled: bool) -> None:
    ids = [UUID(int=at * 0x0123456789ABCDEF) for at in range(1, 4)]
    texts = Texts(filled(compiled, [each.bytes for each in ids], ID))
    assert texts.now().uuids(np.array([2, -1, 0])).to_pylist() == [str(ids[2]), None, str(ids[0])]


@pytest.mark.parametrize("compiled", [False, True])
def test_tables_may_grow_between_two_calls(compiled: bool) -> None:
    machine = filled(compiled, [b"one", b"two"])
    texts = Texts(machine)
    assert texts.now().chosen(np.array([1])).to_pylist() == ["two"]
    machine.grow("text_bytes", 1 << 20)
    machine.grow("texts", 5000)
    assert texts.now().chosen(np.array([0])).to_pylist() == ["one"]


@pytest.mark.parametrize("limit", [0, 249])
def test_taking_a_few_of_many_long_texts_costs_those_few(limit: int) -> None:
    size, count = 32_000, 500  # 16 MB
    texts = Texts(filled(True, [b"%08d" % at + b"t" * (size - 8) for at in range(count)]))
    pool = pa.proxy_memory_pool(pa.system_memory_pool())
    usual = pa.default_memory_pool()
    tracemalloc.start()
    pa.set_memory_pool(pool)
    try:
        found = [len(each) for each in texts.now().chosen(np.array([7, 7, 400]), limit).to_pylist()]
        python = tracemalloc.get_traced_memory()[1]
    finally:
        pa.set_memory_pool(usual)
        tracemalloc.stop()
    assert found == [limit or size] * 3
    assert pool.max_memory() < 10 * size
    assert python < 10 * size


def test_texts_at_hand_stay_as_they_are_while_the_kernels_go_on() -> None:
    machine = filled(True, [b"orders", b"payments", b"clicks"])
    now = Texts(machine).now()
    machine.compact_texts()  # nothing refers to any of them
    assert not machine.t.store[0].texts
    memoryview(machine.t.text_bytes)[:9] = b"something"
    assert now.chosen(np.array([2, 0, 1, -1])).to_pylist() == ["clicks", "orders", "payments", None]
