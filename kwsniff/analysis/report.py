"""Statistics of events and their presentation.

`Report.from_events` makes one pass over EVENTS batches; the tables then are Arrow's, pandas frames for who
asks for those, and go to a terminal, to CSV files or to JSON. What the tables hold is declared in
`kwsniff.analysis.statistics`.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta, tzinfo
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    from rich.console import Console

    from kwsniff.count.spans import Coverage
    from kwsniff.count.spool import Spool
    from kwsniff.count.store import CallStore, Takes

DEFAULT_BY = ("api", "error", "client")
"""Tables printed if none are asked for."""
OF_TOPICS = frozenset(("topic", "error"))
"""Tables that take what is counted by topic."""


@dataclass
class Report:
    """Statistics of the calls of one input."""

    arrow: dict[str, pa.Table]
    """`api`, `client`, `topic`, `broker` and `error` with the columns of
    `kwsniff.analysis.statistics.TABLES`."""
    covered_s: float
    """Seconds the input covers: from first to last byte of each capture, overlaps counted once."""
    first_time: datetime | None
    """When the input begins, and"""
    last_time: datetime | None
    """when it ends; None if it holds no call and no connection."""
    topic_names: dict[str, str] = field(default_factory=dict)
    """Topics by uuid, as far as the input names them; none if nothing was asked by topic."""
    percentile_error: float = 0.0
    """How far a percentile may be from the true one, as a part of it; 0 if they are exact."""
    uses: pd.DataFrame | None = None
    """If asked for: `calls`, `errors`, `records` and `record_bytes` by client, topic and API."""
    latency_us: Mapping[str, float | None] = field(default_factory=dict)
    """Percentiles `p50` and `p95` of `latency_us` of all answered calls that did not wait on purpose."""
    kept: Spool | None = None
    """The calls on disk, if they were to be kept."""

    @cached_property
    def tables(self) -> dict[str, pd.DataFrame]:
        """The tables as pandas frames, Arrow-backed."""
        import pandas as pd

        return {name: table.to_pandas(types_mapper=pd.ArrowDtype) for name, table in self.arrow.items()}

    @classmethod
    def from_events(
        cls,
        batches: Iterable[pa.RecordBatch],
        *,
        errors: Mapping[int, tuple[str, bool]] | None = None,
        keep_calls: bool = False,
        only: Collection[str] | None = None,
        samples: int | None = None,
        uses: bool = False,
        others: Sequence[Takes] = (),
        coverage: Coverage | None = None,
    ) -> Report:
        """Read all batches (EVENTS) once.

        `errors` gives name and retriability of each error code; without it names are those the events have
        and `retriable` is null. `keep_calls` keeps the calls on disk, so that `write_csv` writes calls.csv.
        `only` these tables are made, if given. `samples` are the calls, and topics of calls, up to which
        percentiles are exact (None: always, which takes 28 bytes for each call and topic); beyond it they
        are within `percentile_error`. `uses`: also count by client and topic. `others` take the batches,
        too, and share what is made of them. `coverage`: what the input covers, where `batches` are not all of
        it; it has to be complete when they end.
        """
        from kwsniff.count.spool import Spool
        from kwsniff.count.store import CallStore

        topics = uses or only is None or not OF_TOPICS.isdisjoint(only)
        store = CallStore(samples, topics=topics, coverage=coverage)
        spool = Spool("call") if keep_calls else None
        store.add_all(spool.tee(batches) if spool else batches, others)
        return replace(cls.from_store(store, errors=errors, only=only, uses=uses), kept=spool)

    @classmethod
    def from_store(
        cls,
        store: CallStore,
        *,
        errors: Mapping[int, tuple[str, bool]] | None = None,
        only: Collection[str] | None = None,
        uses: bool = False,
    ) -> Report:
        """The statistics of what a store took so far; it is finished by this."""
        from kwsniff.analysis.statistics import Statistics

        store.finish()
        statistics = Statistics(store, errors)
        spans = store.coverage.spans
        return cls(
            arrow=statistics.tables(only),
            covered_s=statistics.seconds,
            first_time=_time(min((first for first, _ in spans), default=None)),
            last_time=_time(max((last for _, last in spans), default=None)),
            topic_names=store.names.names,
            percentile_error=store.error,
            uses=statistics.uses() if uses else None,
            latency_us=statistics.latency(),
        )

    @property
    def note(self) -> str:
        """What whoever reads the tables has to know, if there is anything."""
        if not self.percentile_error:
            return ""
        return (
            f"Percentiles are approximate, within {100 * self.percentile_error:.1f} %: so many calls would "
            "need more memory (--max-memory)"
        )

    def total(self, name: str) -> int:
        """The sum of a column over all APIs: `calls`, `errors`."""
        return sum(value for key, value in self._by_api(name) if key is None or key >= 0)

    @property
    def exchanges(self) -> int:
        """What is estimated to be calls of TLS connections without keys, which the tables count, too."""
        return sum(value for key, value in self._by_api("calls") if key is not None and key < 0)

    def _by_api(self, name: str) -> Iterable[tuple[int | None, int]]:
        table = self.arrow["api"]
        return zip(table["api_key"].to_pylist(), table[name].to_pylist(), strict=True)

    def write_csv(self, directory: str | Path) -> list[Path]:
        """Write `<table>.csv` for every table, and calls.csv if the calls were kept, into `directory`, which
        is made if it isn't there. Returns the files. Raises OSError if one cannot be written."""
        from kwsniff.analysis.stored import write_calls
        from kwsniff.output.writers import write_table

        directory = Path(directory)
        directory.mkdir(parents=True, exist_ok=True)
        paths = [directory / f"{name}.csv" for name in self.arrow]
        for path, table in zip(paths, self.arrow.values(), strict=True):
            write_table(path, table)
        if self.kept is not None:
            paths.append(directory / "calls.csv")
            write_calls(paths[-1], self.kept.read(), self.topic_names)
        return paths

    def to_json(self, more: Mapping[str, list[dict[str, Any]]] | None = None) -> str:
        """The whole report as one JSON object: `summary`, and each table as an array of objects with the
        columns as in CSV; times are ISO 8601 in UTC, what is not known is null. The summary has
        `percentile_error` only if percentiles are not exact. `more` are further arrays by name, which come
        right after the summary."""
        summary: dict[str, Any] = {
            "first_time": self.first_time,
            "last_time": self.last_time,
            "covered_s": self.covered_s,
            "calls": self.total("calls"),
            "exchanges": self.exchanges,
            "errors": self.total("errors"),
            "unanswered": self.total("unanswered"),
            **{f"latency_{name}_us": value for name, value in self.latency_us.items()},
        }
        if self.percentile_error:
            summary["percentile_error"] = self.percentile_error
        from kwsniff.output.text import json_printable

        tables = {name: table.to_pylist() for name, table in self.arrow.items()}
        whole = {"summary": summary, **(more or {}), **tables}
        return json_printable(json.dumps(whole, default=_iso, ensure_ascii=False, allow_nan=False))

    def print(
        self,
        console: Console | None = None,
        by: Iterable[str] = DEFAULT_BY,
        *,
        wide: bool = False,
        zone: tzinfo = UTC,
    ) -> None:
        """Print the tables named in `by` on `console` (default: stdout), as tables if it is a terminal and as
        aligned text otherwise: with the columns that fit the terminal, or `PIPED_WIDTH`, or all of them if
        `wide`; with times in `zone`. Raises ValueError for a table that isn't there."""
        from rich.console import Console

        from kwsniff.analysis.terminal import print_tables

        by = list(by)
        for name in by:
            if name not in self.arrow:
                raise ValueError(f"no table {name!r}; there are {', '.join(self.arrow)}")
        console = console or Console()
        print_tables(console, self.tables, by, wide=wide, zone=zone)
        if self.note:
            console.print(f"\n{self.note}", highlight=False, soft_wrap=True)

    def _repr_html_(self) -> str:
        """As a notebook shows it: the first rows of the tables by API, client and error."""
        from kwsniff.analysis.terminal import shown

        return "".join(shown(name, self.tables[name]) for name in DEFAULT_BY if name in self.arrow)


def _time(microseconds: int | None) -> datetime | None:
    since = timedelta(microseconds=microseconds or 0)
    return None if microseconds is None else datetime.fromtimestamp(0, UTC) + since


def _iso(value: object) -> str:
    if isinstance(value, datetime):
        return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    raise TypeError(f"no JSON for {type(value).__name__}")
