"""Columns by their distinct values, and several columns by the combinations that occur."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

from kwsniff.count.codes import Coded, Joint, distinct

COLUMNS = {
    "one text": ["ok"] * 50,
    "one text and nulls": [None, "ok", None, *["ok"] * 50, None],
    "texts as long as each other": [f"client-{place % 10}" for place in range(100)],
    "another one late": [*["ok"] * 60, "no", "ok"],
    "as long together as if they were one": ["aa", "aaa", "a", "aa"] * 30,
    "empty ones beside longer ones": ["", "aaaa", "aa", "aa"] * 30,
    "empty": [""] * 40,
    "null": [None] * 40,
    "letters of several bytes": ["größe"] * 40,
    "one row": ["ok"],
    "no row": [],
}


@pytest.mark.parametrize("name", COLUMNS)
def test_distinct_values_and_places_give_the_column_again(name: str) -> None:
    whole = pa.array(COLUMNS[name], pa.string())
    for column in (whole, whole.slice(1), whole.slice(2, 7), whole.dictionary_encode()):
        values, codes = distinct(column)
        assert [values[code] for code in codes.tolist()] == column.to_pylist()
        assert len(set(values)) == len(values)
        assert pa.types.is_dictionary(column.type) or (None in values) == (column.null_count > 0)


def test_a_null_may_have_bytes_of_a_text_beneath_it() -> None:
    texts = pa.array(["ok", "ok", "", "ok"])
    _, offsets, data = texts.buffers()
    valid = pa.py_buffer(np.packbits([1, 0, 1, 1], bitorder="little"))
    column = pa.Array.from_buffers(pa.string(), 4, [valid, offsets, data])
    values, codes = distinct(column)
    assert [values[code] for code in codes.tolist()] == ["ok", None, "", "ok"]


def test_columns_joined_are_the_combinations_that_occur() -> None:
    chance = random.Random(2)
    rows = [(chance.choice("abc"), chance.choice([1, None])) for _ in range(60)]
    columns = [Coded(*distinct(pa.array(each))) for each in zip(*rows, strict=True)]
    both = Joint.of(*columns)
    assert both.size == len(set(rows))
    some = np.array([3, 50, 7])
    assert list(zip(*both.at(some).named(both.codes[some].tolist()), strict=True)) == [
        rows[at] for at in some
    ]
    plain = [[each.values[code] for code in each.codes.tolist()] for each in both.at(some).plain]
    assert list(zip(*plain, strict=True)) == [rows[at] for at in some]
