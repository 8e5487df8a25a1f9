"""The tables of the report, and how they come from what a store counted."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kwsniff.analysis.tabular import AnswerField as Field
from kwsniff.count.codes import combined
from kwsniff.count.eventrows import BROKER_LEAST, PARTS, address
from kwsniff.count.keyed import GREATEST, NEVER, Array, Columns, folded
from kwsniff.count.percentiles import QUANTILES, Samples, percentiles
from kwsniff.count.store import MEASURES, CallStore
from kwsniff.rows.columns import Ints, Mask

if TYPE_CHECKING:
    import pandas as pd

Table = dict[str, Any]
"""The columns of a table to be: arrays, with NaN for what is not known, or lists."""

# The tables of the report: their columns in order, each with its unit and meaning. Columns are added, never
# renamed. docs/report.md lists them from here, and a test compares.
#
# Units are in the name: `_us` microseconds, `_ms` milliseconds, `_s` seconds, `_bytes` bytes, `_per_s` each
# second, `_ratio` a part of 1.


def _percentiles(prefix: str, heading: str, ranks: tuple[int, ...], what: str) -> Iterator[Field]:
    for (name, quantile), rank in zip(QUANTILES.items(), ranks, strict=True):
        meaning = f"greatest {what}" if quantile == 1 else f"percentile {100 * quantile:g} of {what}"
        shown = f"{heading}{'p99.9' if name == 'p999' else name} ms"
        yield Field(f"{prefix}_{name}_us", "duration", shown, meaning, rank)


def _sum_of(name: str) -> Field:
    meaning = f"sum of `{name}` of all calls; empty where none has it"
    return Field(f"{name[:-3]}_sum_us", "duration", "", meaning)


FIGURES = (
    Field(
        "calls",
        "count",
        "calls",
        "calls of any status; a request, or a response whose request is not captured",
    ),
    Field("calls_per_s", "number", "calls/s", "calls per second of covered time", 4),
    Field("request_bytes", "bytes", "sent", "bytes of the requests, with their 4 length bytes", 6),
    Field("response_bytes", "bytes", "received", "bytes of the responses, with their 4 length bytes", 6),
    Field("records", "count", "records", "records in them by their batch headers", 2),
    Field("record_bytes", "bytes", "record data", "bytes of record data in them, as sent, compressed", 2),
    *_percentiles(
        "latency", "", (0, 8, 5, 0, 7, 1), "`latency_us` of answered calls that did not wait on purpose"
    ),
    *_percentiles("duration", "dur ", (10, 11, 11, 10, 11, 10), "`duration_us` of the same calls"),
    Field("waited_calls", "count", "", "answered calls that waited on purpose, see Waiting"),
    *_percentiles("waited", "", (0,) * 6, "`latency_us` of calls that waited on purpose"),
    Field(
        "wait_overrun_max_us",
        "duration",
        "",
        "greatest `broker_us` of a Fetch that waited: by so much it came late",
    ),
    Field(
        "duration_sum_us",
        "duration",
        "",
        "sum of `duration_us` of answered calls that did not wait on purpose",
    ),
    Field("duration_waited_sum_us", "duration", "", "sum of `duration_us` of calls that waited on purpose"),
    *map(_sum_of, (*PARTS, BROKER_LEAST)),
    Field("errors", "count", "errors", "calls with a non-zero error code"),
    Field("error_ratio", "ratio", "", "errors / calls"),
    Field("error_codes", "count", "", "non-zero error codes; a call of several partitions may have several"),
    Field(
        "errors_by_name",
        "text",
        "errors by name",
        "`NAME=calls (part of the row's calls)`, most frequent first, joined by `; `",
        7,
    ),
    Field(
        "throttled_calls", "count", "throttled", "calls whose response says that the client is throttled", 3
    ),
    Field("throttle_ms", "count", "throttle ms", "sum of the throttle times those responses name", 8),
    Field("throttle_max_ms", "count", "", "greatest of them"),
    Field("no_reply_expected", "count", "", "calls by status: Produce with acks=0, which is not answered"),
    Field("unanswered", "count", "unanswered", "calls by status: no response captured", 2),
    Field("orphan", "count", "orphan", "calls by status: response without captured request", 9),
    Field("undecoded", "count", "undecoded", "calls by status: paired, but a body could not be decoded", 9),
    Field("truncated", "count", "truncated", "calls by status: bytes of request or response not captured", 9),
    Field(
        "in_flight_max",
        "count",
        "in flight",
        "most requests a connection had outstanding when one of these was sent",
        8,
    ),
    Field("first_time", "time", "first", "first byte of the first of these calls", 6),
    Field("last_time", "time", "last", "last byte of the last of these calls", 7),
)

STATUS_COLUMNS = ("no_reply_expected", "unanswered", "orphan", "undecoded", "truncated")

API = Field("api", "text", "API", "name of the API; `key N` for a key without known name, empty if unknown")

TABLES: dict[str, tuple[Field, ...]] = {
    "api": (API, Field("api_key", "count", "", "its number"), *FIGURES),
    "client": (
        Field("client_id", "text", "client", "as the client calls itself"),
        Field("client_ip", "text", "address", "address it sends from"),
        Field(
            "software",
            "text",
            "software",
            "client libraries with version (ApiVersions, KIP-511), joined by `;`",
            9,
        ),
        *FIGURES,
    ),
    "topic": (
        Field("topic", "text", "topic", "name of the topic, or its uuid if no message named it"),
        Field("partitions_seen", "count", "partitions", "different partitions of it in data calls", 8),
        *FIGURES,
    ),
    "broker": (
        Field("broker", "text", "broker", "address and port; an IPv6 address in brackets"),
        *FIGURES,
    ),
    "error": (
        Field("error", "text", "error", "name of the error, `ERROR_N` if it is not known"),
        Field("error_code", "count", "code", "its number", 3),
        Field("retriable", "flag", "retriable", "clients may try again; empty if the error is not known", 4),
        API,
        Field("api_call_ratio", "ratio", "of API", "these calls / all calls of the API", 1),
        Field("topics_affected", "count", "topics", "topics of these calls to which the error belongs", 2),
        Field(
            "topics", "text", "topic names", "their names, at most 20 in alphabetical order, joined by `;`", 8
        ),
        Field("clients_affected", "count", "clients", "clients, by client id and address, that got it", 2),
        Field(
            "clients", "text", "client names", "at most 20 of them as `client_id@address`, joined by `;`", 8
        ),
        *(column for column in FIGURES if column.name not in {"errors", "error_ratio", "errors_by_name"}),
    ),
}


def typed(name: str, columns: Mapping[str, Any]) -> pa.Table:
    """Columns (arrays with NaN for what is not known, Arrow's, or lists) as table `name`, in its order."""
    arrays = [_array(columns[column.name], column.type) for column in TABLES[name]]
    return pa.Table.from_arrays(arrays, names=[column.name for column in TABLES[name]])


def ordered(table: pa.Table, names: Sequence[str]) -> pa.Table:
    """The rows with the most calls first, those with as many by `names`."""
    columns = [table[name].to_pylist() for name in names]
    keys = [[(text is None, text or "") for text in texts] for texts in zip(*columns, strict=True)]
    calls = table["calls"].to_pylist()
    return table.take(
        pa.array(sorted(range(len(calls)), key=lambda row: (-calls[row], keys[row])), pa.int64())
    )


def _array(values: Any, kind: pa.DataType) -> pa.Array:
    if isinstance(values, list):
        return pa.array(values, kind)
    if isinstance(values, np.ndarray) and values.dtype.kind == "f":
        values = pa.array(values, mask=np.isnan(values))
    return (values if isinstance(values, pa.Array) else pa.array(values)).cast(kind)


# From the store's cubes to the tables: grouping only, no presentation.
#
# Every table is the same summary over another grouping of cells: `group` numbers the rows of the table to be,
# one number for each cell, negative for cells that are not part of it.

LISTED = 20
"""Names shown of the topics and clients an error affects."""


class Statistics:
    """All tables of one finished store. `errors`: name of each error code, and whether it is retriable."""

    def __init__(self, store: CallStore, errors: Mapping[int, tuple[str, bool]] | None = None) -> None:
        self.store = store
        self.errors = errors or {}
        self.seconds = store.coverage.seconds
        numbers = [code or 0 for code in self._values("error_code", store.cells["error_code"])]
        status = self._values("status", store.cells["status"])
        self.cells: Columns = {
            **store.cells,
            "error_number": np.array(numbers, np.int64),
            "status": np.array(status, np.object_),
        }

    def tables(self, only: Collection[str] | None = None) -> dict[str, pa.Table]:
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
        return {name: made[name] for name in wanted}

    def api(self) -> pa.Table:
        table = self._by("api_key")
        table["api"] = [self._api_name(key) for key in table["api_key"]]
        return ordered(typed("api", table), ["api"])

    def client(self) -> pa.Table:
        table = self._by("client_id", "client_ip")
        clients = zip(table["client_id"], table["client_ip"], strict=True)
        table["software"] = [";".join(sorted(self.store.software.get(key, ()))) or None for key in clients]
        return ordered(typed("client", table), ["client_id", "client_ip"])

    def broker(self) -> pa.Table:
        table = self._by("broker_ip", "broker_port")
        pairs = zip(table["broker_ip"], table["broker_port"], strict=True)
        table["broker"] = [address(*pair) for pair in pairs]
        return ordered(typed("broker", table), ["broker"])

    def topic(self) -> pa.Table:
        topics = self.store.topics
        frame = {
            **topics.cells,
            **taken({name: self.cells[name] for name in ("status", "waited")}, topics.cells["cell"]),
            "error_number": topics.cells["topic_error"],
        }
        group, rows = combined([frame["topic"]], [len(topics.codes)])
        numbers = frame["topic"][rows]
        of_topic = np.full(len(topics.codes), -1, dtype=np.int32)
        of_topic[numbers] = np.arange(len(numbers))
        codes = np.repeat(of_topic * 2, 2)
        codes[1::2] += 1
        table = self._summary(frame, group, self.store.topic_samples, codes)
        table["topic"] = [topics.codes.values[number] for number in numbers]
        table["partitions_seen"] = topics.partitions[numbers]
        return ordered(typed("topic", table), ["topic"])

    def uses(self) -> pd.DataFrame:
        """Calls, errors, records and their bytes by client, topic and API, the most bytes first."""
        import pandas as pd

        cells = self.store.topics.cells
        keys = ("client_id", "client_ip", "api_key")
        frame = pd.DataFrame(taken({name: self.cells[name] for name in keys}, cells["cell"]))
        for name in ("topic", "calls", "records", "record_bytes"):
            frame[name] = cells[name]
        frame["errors"] = cells["calls"] * (cells["topic_error"] != 0)
        table = frame.groupby([*keys, "topic"], sort=False).sum().reset_index()
        for name in keys:
            table[name] = self._values(name, table[name])
        # pandas turns whole numbers into floats where one is missing, as that of a response without request
        apis = [None if pd.isna(key) else int(key) for key in table.pop("api_key")]
        table["api"] = [self._api_name(key) for key in apis]
        table["topic"] = [self.store.topics.codes.values[number] for number in table["topic"]]
        names = ["topic", "client_id", "client_ip", "api"]
        return table.sort_values(
            ["record_bytes", "calls", *names], ascending=[False, False, *[True] * 4], ignore_index=True
        )

    def error(self) -> pa.Table:
        cells = self.cells
        failed = np.flatnonzero(cells["error_number"])
        kinds, rows = self._combined(taken({name: cells[name] for name in ("error_code", "api_key")}, failed))
        group = np.full(len(cells["calls"]), -1)
        group[failed] = kinds
        table = self._per_call(group)
        codes = cells["error_number"][failed[rows]].tolist()
        apis = cells["api_key"][failed[rows]]
        of_api = _sums(cells["calls"], cells["api_key"], len(self.store.codes["api_key"]))
        table["error_code"] = codes
        table["api_call_ratio"] = table["calls"] / of_api[apis]
        table["api"] = [self._api_name(key) for key in self._values("api_key", apis)]
        table["error"] = [self._error_name(code) for code in codes]
        table["retriable"] = [self.errors.get(code, (None, None))[1] for code in codes]
        _list_names(table, "clients", self._clients_of(group))
        _list_names(table, "topics", self._topics_of(codes, apis.tolist()))
        return ordered(typed("error", table), ["error", "api"])

    def latency(self) -> dict[str, float | None]:
        """Percentiles of `latency_us` of all answered calls that did not wait on purpose."""
        found = percentiles(self.store.samples, self.cells["waited"], 1)
        named = {name: float(found[f"latency_{name}_us"][0]) for name in ("p50", "p95")}
        return {name: None if np.isnan(value) else value for name, value in named.items()}

    def _by(self, *keys: str) -> Table:
        """Summary of all calls by columns of the cells; the key columns hold values, not numbers."""
        group, rows = self._combined({key: self.cells[key] for key in keys})
        table = self._per_call(group)
        for key in keys:
            table[key] = self._values(key, self.cells[key][rows])
        return table

    def _combined(self, keys: Mapping[str, Ints]) -> tuple[Ints, Ints]:
        return combined(list(keys.values()), [len(self.store.codes[name]) for name in keys])

    def _per_call(self, group: Ints) -> Table:
        codes = group * 2 + self.cells["waited"]
        return self._summary(self.cells, group, self.store.samples, codes)

    def _summary(
        self, cells: Columns, group: Ints, samples: Samples, codes: npt.NDArray[np.integer]
    ) -> Table:
        """FIGURES of each group of cells, one row each in the order of group numbers."""
        inside = group >= 0
        names = (*MEASURES, "status", "waited", "error_number")
        cells, group = taken({name: cells[name] for name in names}, inside), group[inside]
        size = int(group.max(initial=-1)) + 1
        table: Table = folded(MEASURES, cells, group, size)
        table |= percentiles(samples, codes, size)
        calls, waited, failed = table["calls"], cells["waited"] == 1, cells["error_number"] != 0
        table["calls_per_s"] = calls / self.seconds if self.seconds else np.full(size, np.nan)
        table["waited_calls"] = _sums(cells["calls"] * waited, group, size)
        table["duration_sum_us"] = _sums(cells["duration_us"] * ~waited, group, size)
        table["duration_waited_sum_us"] = _sums(cells["duration_us"] * waited, group, size)
        for name in (*PARTS, BROKER_LEAST):
            table[f"{name[:-3]}_sum_us"] = np.where(table["parted_calls"] > 0, table[name], np.nan)
        for status in STATUS_COLUMNS:
            table[status] = _sums(cells["calls"] * (cells["status"] == status), group, size)
        table["errors"] = _sums(cells["calls"] * failed, group, size)
        table["error_ratio"] = table["errors"] / calls
        table["errors_by_name"] = self._errors_by_name(taken(cells, failed), group[failed], calls)
        table["wait_overrun_max_us"] = np.maximum(table["overrun_us"], 0)
        for name, column in (("first_time", table["first_us"]), ("last_time", table["last_us"])):
            table[name] = _known(column, (column > 0) & (column < NEVER))
        for name in (name for name, measure in MEASURES.items() if measure is GREATEST):
            table[name] = _known(table[name], table[name] >= 0)
        return table

    def _errors_by_name(self, cells: Columns, group: Ints, calls: Ints) -> list[str | None]:
        """What `errors_by_name` says of each row; `cells` are those that failed, `calls` those of all."""
        counts: dict[tuple[int, int], int] = {}
        kinds = zip(group.tolist(), cells["error_number"].tolist(), strict=True)
        for kind, count in zip(kinds, cells["calls"].tolist(), strict=True):
            counts[kind] = counts.get(kind, 0) + count
        texts: dict[int, list[str]] = {}
        for (row, code), count in sorted(
            counts.items(), key=lambda item: (-item[1], self._error_name(item[0][1]), item[0])
        ):
            text = f"{self._error_name(code)}={count} ({100 * count / calls[row]:.3g}%)"
            texts.setdefault(row, []).append(text)
        return ["; ".join(texts[row]) if row in texts else None for row in range(len(calls))]

    def _clients_of(self, group: Ints) -> dict[int, set[str]]:
        """Clients of the cells of each group."""
        pairs = zip(
            self._values("client_id", self.cells["client_id"]),
            self._values("client_ip", self.cells["client_ip"]),
            strict=True,
        )
        clients: dict[int, set[str]] = {}
        for row, (name, ip) in zip(group.tolist(), pairs, strict=True):
            clients.setdefault(row, set()).add(f"{name or ''}@{ip or ''}")
        return clients

    def _topics_of(self, errors: Iterable[int], apis: Iterable[int]) -> dict[int, set[str]]:
        """Topics that failed with each error in calls of each API (numbered by the store)."""
        topics = self.store.topics
        failed = topics.cells["topic_error"] != 0
        frame = taken({name: topics.cells[name] for name in ("cell", "topic", "topic_error")}, failed)
        apis_of = self.cells["api_key"][frame["cell"]].tolist()
        rows = {pair: row for row, pair in enumerate(zip(errors, apis, strict=True))}
        found: dict[int, set[str]] = {}
        pairs = zip(frame["topic_error"].tolist(), apis_of, strict=True)
        for pair, topic in zip(pairs, frame["topic"].tolist(), strict=True):
            if pair in rows:
                found.setdefault(rows[pair], set()).add(topics.codes.values[topic])
        return found

    def _values(self, key: str, codes: Iterable[int]) -> list[Any]:
        values = self.store.codes[key].values
        return [values[code] for code in codes]

    def _api_name(self, key: int | None) -> str | None:
        return None if key is None else self.store.api_names.get(key, f"key {key}")

    def _error_name(self, code: int) -> str:
        known = self.errors[code][0] if code in self.errors else self.store.error_names.get(code)
        return known or f"ERROR_{code}"


def taken(columns: Columns, rows: Any) -> dict[str, Array]:
    """Some rows of columns."""
    return {name: column[rows] for name, column in columns.items()}


def _sums(values: npt.NDArray[Any], group: Ints, size: int) -> npt.NDArray[Any]:
    """Values summed by group."""
    found = np.zeros(size, values.dtype)
    np.add.at(found, group, values)
    return found


def _known(values: Ints, known: Mask) -> pa.Array:
    """Whole numbers, null where they are not known."""
    return pa.array(values, mask=~known)


def _list_names(table: Table, column: str, names: Mapping[int, set[str]]) -> None:
    """Add `column`, the first LISTED names of each row, and how many there are."""
    listed = [sorted(names.get(row, ())) for row in range(len(table["calls"]))]
    table[f"{column}_affected"] = [len(row) for row in listed]
    table[column] = [";".join(row[:LISTED]) or None for row in listed]
