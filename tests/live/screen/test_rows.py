from __future__ import annotations

import numpy as np

from kwsniff.live.screen.screenrows import OTHER, ROWS, ScreenRows, ScreenWindow


class Table:
    """Rows and their window, all in one slot."""

    def __init__(self) -> None:
        self.rows, self.window = ScreenRows(), ScreenWindow(ROWS + 1)

    def count(self, names: dict[str, int]) -> None:
        keys = [(name, "") for name in names]
        counts = np.array(list(names.values()), np.int64)
        rows = np.repeat(self.rows.numbers(keys, counts), counts)
        self.window.count(rows, np.zeros(len(rows), np.int64), {"calls": np.ones(len(rows), np.int64)})

    def renew(self) -> None:
        self.rows.renew(self.window, 5)

    def calls(self) -> dict[str, int]:
        shown = {
            key[0]: int(self.window.totals["calls"][row]) for row, key in enumerate(self.rows.keys) if key
        }
        return {name or "": count for name, count in shown.items()}

    @property
    def others(self) -> int:
        return int(self.window.totals["calls"][OTHER])


def full(table: Table, calls: int) -> None:
    table.count({f"usual-{number}": calls for number in range(ROWS)})


def test_names_without_a_row_count_as_others() -> None:
    table = Table()
    full(table, 2)
    table.count({"late": 3, "later": 1})
    assert table.others == 4
    assert "late" not in table.calls()


def test_a_silent_row_is_given_to_the_next_name() -> None:
    table = Table()
    full(table, 1)
    table.window.forget(0)
    table.renew()
    assert table.calls() == {}
    table.count({"new": 1})
    assert table.calls() == {"new": 1}


def test_a_busy_newcomer_takes_the_row_of_the_least_busy() -> None:
    table = Table()
    full(table, 30)
    table.count({"usual-0": 10, "usual-1": 20})
    whole = 30 * ROWS + 30
    table.count({"busy": 500})
    table.renew()
    table.count({"busy": 7})
    calls = table.calls()
    assert calls["busy"] == 7
    assert {"usual-0", "usual-1"} <= calls.keys()
    assert len(calls) == ROWS
    assert sum(calls.values()) + table.others == whole + 507


def test_names_used_once_never_push_out_a_row() -> None:
    table = Table()
    full(table, 1)
    for slot in range(20):
        table.count({f"once-{slot}-{number}": 1 for number in range(5000)})
        table.renew()
    assert all(name.startswith("usual-") for name in table.calls())
    assert table.others == 20 * 5000


def test_a_busy_name_gets_a_row_amid_names_used_once() -> None:
    table = Table()
    table.count({f"once-{number}": 1 for number in range(5000)})
    for slot in range(3):
        table.count({f"once-{slot}-{number}": 1 for number in range(5000)} | {"busy": 40})
        table.renew()
    assert table.calls()["busy"] == 80


def test_a_busier_name_comes_first_when_few_rows_are_left() -> None:
    table = Table()
    table.count({f"usual-{number}": 1 for number in range(ROWS - 1)})
    table.count({f"rare-{number}": 1 for number in range(1000)} | {"busy": 9})
    assert table.calls()["busy"] == 9


def test_the_owner_of_a_row_changes_with_its_name() -> None:
    table = Table()
    table.count({"a": 1})
    before = int(table.rows.owners.max())
    table.window.forget(0)
    table.renew()
    assert table.rows.owners.max() == 0
    table.count({"b": 1})
    assert table.rows.owners.max() > before
