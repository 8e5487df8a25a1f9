"""From the store's cubes to the tables: grouping only, no presentation.

Every table is the same summary over another grouping of cells: `group` numbers the rows of the table to be,
one number for each cell, negative for cells that are not part of it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from kwsniff.report.codes import combined
from kwsniff.report.cube import NEVER, PARTS, folded
from kwsniff.report.samples import Samples
from kwsniff.report.store import CallStore
from kwsniff.report.tables import STATUS_COLUMNS, typed

Ints = npt.NDArray[np.int64]

LISTED = 20
"""Names shown of the topics and clients an error affects."""


class Statistics:
    """All tables of one finished store. `errors`: name of each error code, and whether it is retriable."""

    def __init__(self, store: CallStore, errors: Mapping[int, tuple[str, bool]] | None = None) -> None:
        self.store = store
        self.errors = errors or {}
        self.seconds = covered_s(store.spans.values())
        self.cells = store.cells.assign(
            error_number=[code or 0 for code in self._values("error_code", store.cells["error_code"])],
            status=self._values("status", store.cells["status"]),
        )

    def tables(self, only: Collection[str] | None = None) -> dict[str, pd.DataFrame]:
        """Every table by its name, or `only` some, sorted by calls, most first, then by what its rows are
        named."""
        makers = {
            "api": self.api,
            "client": self.client,
            "topic": self.topic,
            "broker": self.broker,
            "error": self.error,
        }
        wanted = [name for name in makers if only is None or name in only]
        # The topics first: they take the most memory, and need nothing the others keep.
        made = {name: makers[name]() for name in sorted(wanted, key=lambda name: name != "topic")}
        return {name: typed(name, made[name]) for name in wanted}

    def api(self) -> pd.DataFrame:
        table = self._by("api_key")
        table["api"] = [self._api_name(key) for key in table["api_key"]]
        return _ordered(table, ["api"])

    def client(self) -> pd.DataFrame:
        table = self._by("client_id", "client_ip")
        clients = zip(table["client_id"], table["client_ip"], strict=True)
        table["software"] = [";".join(sorted(self.store.software.get(key, ()))) or None for key in clients]
        return _ordered(table, ["client_id", "client_ip"])

    def broker(self) -> pd.DataFrame:
        table = self._by("broker_ip", "broker_port")
        pairs = zip(table["broker_ip"], table["broker_port"], strict=True)
        table["broker"] = [_address(*pair) for pair in pairs]
        return _ordered(table, ["broker"])

    def topic(self) -> pd.DataFrame:
        topics, cells = self.store.topics, self.cells
        of_cell = topics.cells["cell"].to_numpy()
        own = cells[["status", "waited"]].take(of_cell).reset_index(drop=True)
        frame = topics.cells.join(own).rename(columns={"topic_error": "error_number"})
        group, rows = combined([frame["topic"].to_numpy()], [len(topics.codes)])
        numbers = frame["topic"].to_numpy()[rows]
        of_topic = np.full(len(topics.codes), -1, dtype=np.int32)
        of_topic[numbers] = np.arange(len(numbers))
        codes = np.repeat(of_topic * 2, 2)
        codes[1::2] += 1
        table = self._summary(frame, group, self.store.topic_samples, codes)
        table["topic"] = [topics.codes.values[number] for number in numbers]
        table["partitions_seen"] = topics.partitions[numbers]
        return _ordered(table, ["topic"])

    def uses(self) -> pd.DataFrame:
        """Calls, errors, records and their bytes by client, topic and API, the most bytes first."""
        cells = self.store.topics.cells
        of_cell = cells["cell"].to_numpy()
        keys = ("client_id", "client_ip", "api_key")
        frame = self.cells[list(keys)].take(of_cell).reset_index(drop=True)
        for name in ("topic", "calls", "records", "record_bytes"):
            frame[name] = cells[name].to_numpy()
        frame["errors"] = cells["calls"].to_numpy() * (cells["topic_error"].to_numpy() != 0)
        table = frame.groupby([*keys, "topic"], sort=False).sum().reset_index()
        for name in keys:
            table[name] = self._values(name, table[name])
        table["api"] = [self._api_name(key) for key in table.pop("api_key")]
        table["topic"] = [self.store.topics.codes.values[number] for number in table["topic"]]
        names = ["topic", "client_id", "client_ip", "api"]
        return table.sort_values(
            ["record_bytes", "calls", *names], ascending=[False, False, *[True] * 4], ignore_index=True
        )

    def error(self) -> pd.DataFrame:
        cells = self.cells
        failed = np.flatnonzero(cells["error_number"])
        keys = cells[["error_code", "api_key"]].take(failed)
        kinds, rows = self._combined(keys)
        group = np.full(len(cells), -1)
        group[failed] = kinds
        table = self._per_call(group)
        table["error_code"] = cells["error_number"].to_numpy()[failed[rows]]
        codes = cells["api_key"].to_numpy()
        table["api_call_ratio"] = (
            table["calls"] / cells["calls"].groupby(codes).sum()[codes[failed[rows]]].to_numpy()
        )
        table["api"] = [self._api_name(key) for key in self._values("api_key", codes[failed[rows]])]
        table["error"] = [self._error_name(code) for code in table["error_code"]]
        table["retriable"] = [self.errors.get(code, (None, None))[1] for code in table["error_code"]]
        _list_names(table, "clients", self._clients_of(group))
        _list_names(table, "topics", self._topics_of(table["error_code"], codes[failed[rows]]))
        return _ordered(table, ["error", "api"])

    def _by(self, *keys: str) -> pd.DataFrame:
        """Summary of all calls by columns of the cells; the key columns hold values, not numbers."""
        group, rows = self._combined(self.cells[list(keys)])
        table = self._per_call(group)
        for key in keys:
            table[key] = self._values(key, self.cells[key].to_numpy()[rows])
        return table

    def _combined(self, keys: pd.DataFrame) -> tuple[Ints, Ints]:
        names = [str(name) for name in keys]
        columns = [keys[name].to_numpy() for name in names]
        return combined(columns, [len(self.store.codes[name]) for name in names])

    def _per_call(self, group: Ints) -> pd.DataFrame:
        codes = group * 2 + self.cells["waited"].to_numpy()
        return self._summary(self.cells, group, self.store.samples, codes)

    def _summary(
        self, cells: pd.DataFrame, group: Ints, samples: Samples, codes: npt.NDArray[np.integer]
    ) -> pd.DataFrame:
        """FIGURES of each group of cells, one row each in the order of group numbers."""
        inside = group >= 0
        cells, group = cells[inside], group[inside]
        size = int(group.max(initial=-1)) + 1
        table = folded(cells, group).reindex(range(size))
        table = table.join(samples.percentiles(codes, size))
        table["calls_per_s"] = table["calls"] / self.seconds if self.seconds else np.nan
        table["waited_calls"] = _calls(cells, group, size, cells["waited"] == 1)
        table["duration_sum_us"] = _sums(cells, group, size, cells["waited"] == 0)
        table["duration_waited_sum_us"] = _sums(cells, group, size, cells["waited"] == 1)
        for name in PARTS:
            table[f"{name[:-3]}_sum_us"] = table[name].where(table["parted_calls"] > 0)
        for status in STATUS_COLUMNS:
            table[status] = _calls(cells, group, size, cells["status"] == status)
        table["errors"] = _calls(cells, group, size, cells["error_number"] != 0)
        table["error_ratio"] = table["errors"] / table["calls"]
        table["errors_by_name"] = self._errors_by_name(cells, group, table["calls"])
        table["wait_overrun_max_us"] = table["overrun_us"].clip(lower=0)
        table["in_flight_max"] = table["in_flight_max"].where(table["in_flight_max"] >= 0)
        table["first_time"] = _times(table["first_us"])
        table["last_time"] = _times(table["last_us"])
        return table

    def _errors_by_name(self, cells: pd.DataFrame, group: Ints, calls: pd.Series[Any]) -> list[str | None]:
        failed = (cells["error_number"] != 0).to_numpy()
        codes = cells["error_number"].to_numpy()[failed]
        counts = cells["calls"][failed].groupby([group[failed], codes]).sum()
        rows: list[tuple[int, int]] = [(int(row), int(code)) for row, code in counts.index.to_list()]
        texts: dict[int, list[str]] = {}
        for (row, code), count in sorted(
            zip(rows, counts, strict=True), key=lambda item: (-item[1], self._error_name(item[0][1]))
        ):
            text = f"{self._error_name(code)}={count} ({100 * count / calls[row]:.3g}%)"
            texts.setdefault(row, []).append(text)
        return ["; ".join(texts[row]) if row in texts else None for row in calls.index]

    def _clients_of(self, group: Ints) -> dict[int, set[str]]:
        """Clients of the cells of each group."""
        pairs = zip(
            self._values("client_id", self.cells["client_id"]),
            self._values("client_ip", self.cells["client_ip"]),
            strict=True,
        )
        clients: dict[int, set[str]] = {}
        for row, (name, address) in zip(group, pairs, strict=True):
            clients.setdefault(int(row), set()).add(f"{name or ''}@{address or ''}")
        return clients

    def _topics_of(self, errors: Iterable[int], apis: Iterable[int]) -> dict[int, set[str]]:
        """Topics that failed with each error in calls of each API (numbered by the store)."""
        topics = self.store.topics
        frame = topics.cells[["cell", "topic", "topic_error"]]
        frame = frame[frame["topic_error"] != 0]
        apis_of = self.cells["api_key"].to_numpy()[frame["cell"]]
        rows = {pair: row for row, pair in enumerate(zip(errors, apis, strict=True))}
        found: dict[int, set[str]] = {}
        for pair, topic in zip(zip(frame["topic_error"], apis_of, strict=True), frame["topic"], strict=True):
            if pair in rows:
                found.setdefault(rows[pair], set()).add(topics.codes.values[topic])
        return found

    def _values(self, key: str, codes: Iterable[int]) -> list[Any]:
        values = self.store.codes[key].values
        return [values[code] for code in codes]

    def _api_name(self, key: float | None) -> str | None:
        # pandas turns whole numbers into floats where one is missing, as that of a response without request
        if key is None or math.isnan(key):
            return None
        return self.store.api_names.get(int(key), f"key {key:.0f}")

    def _error_name(self, code: int) -> str:
        known = self.errors[code][0] if code in self.errors else self.store.error_names.get(code)
        return known or f"ERROR_{code}"


def covered_s(spans: Iterable[tuple[int, int]]) -> float:
    """Seconds in at least one of the spans of microseconds."""
    covered, end = 0, -NEVER
    for first, last in sorted(spans):
        covered += max(last - max(first, end), 0)
        end = max(end, last)
    return covered / 1e6


def _calls(cells: pd.DataFrame, group: Ints, size: int, chosen: pd.Series[bool]) -> Ints:
    """Calls of each group in the chosen cells."""
    counts = np.zeros(size, dtype=np.int64)
    mask = chosen.to_numpy()
    np.add.at(counts, group[mask], cells["calls"].to_numpy()[mask])
    return counts


def _sums(cells: pd.DataFrame, group: Ints, size: int, chosen: pd.Series[bool]) -> npt.NDArray[np.float64]:
    """Durations of each group in the chosen cells."""
    mask = chosen.to_numpy()
    found: npt.NDArray[np.float64] = np.zeros(size)
    np.add.at(found, group[mask], cells["duration_us"].to_numpy(np.float64)[mask])
    return found


def _times(microseconds: pd.Series[Any]) -> pd.Series[Any]:
    known = microseconds.where((microseconds > 0) & (microseconds < NEVER))
    return pd.to_datetime(known.astype("Int64"), unit="us", utc=True)


def _list_names(table: pd.DataFrame, column: str, names: dict[int, set[str]]) -> None:
    """Add `column`, the first LISTED names of each row, and how many there are."""
    listed = [sorted(names.get(row, ())) for row in range(len(table))]
    table[f"{column}_affected"] = np.array([len(row) for row in listed], dtype=np.int64)
    table[column] = [";".join(row[:LISTED]) or None for row in listed]


def _address(host: str | None, port: int | None) -> str | None:
    if host is None:
        return None
    host = f"[{host}]" if ":" in host else host
    return host if port is None else f"{host}:{port}"


def _ordered(table: pd.DataFrame, names: list[str]) -> pd.DataFrame:
    return table.sort_values(["calls", *names], ascending=[False] + [True] * len(names), ignore_index=True)
