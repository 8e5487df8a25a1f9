"""One machine of checked kernels that takes case after case: making tables anew, and Arrow of what comes out,
take a hundred times as long as the kernels do.

Tables are put back from a copy before each case. They may be as small as can be, so that kernels meet full
ones. Programs of all versions are in there from the start.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any
from unittest.mock import patch

import numpy as np

from kwsniff.config import Config
from kwsniff.engine import machine as tables
from kwsniff.engine.analyze import Engine
from kwsniff.engine.drained import LISTS
from kwsniff.engine.notes import BAD_BODY, CODES
from kwsniff.engine.tables import FINISH, FOLLOW, POOLS, Tables
from kwsniff.spec.load import catalog
from tests.playbook import Segment

SMALL = {
    "conns": 2, "sides": 4, "slots": 4, "pieces": 16, "requests": 4, "asked": 8, "early": 2, "texts": 16,
    "text_bytes": 4096, "text_slots": 64, "words": 256, "places": 64, "marks": 4, "lefts": 4,
    "rows": 16, "names": 16, "brokers": 4, "resources": 4,
}  # fmt: skip
"""Rows that tables have at first, as few as can be."""
ROOMY = {
    "conns": 8, "sides": 16, "slots": 32, "pieces": 256, "requests": 256, "asked": 512, "early": 64,
    "texts": 128, "text_bytes": 65_536, "text_slots": 512, "words": 4096, "places": 512, "rows": 256,
}  # fmt: skip
"""As many as hardly any case needs."""
TOLD = {
    "calls": ("calls", 256), "notes": ("notes", 2048), "ends": ("ends", 64), "bodies": ("bodies", 512),
}  # fmt: skip
"""What comes out: the field of `run` that counts it, and rows that no case fills."""
MOST_BYTES = 1 << 16
KEPT = frozenset(
    ("code", "programs", "apis", "layouts", "ports", "calls", "notes", "ends", "call_names", "call_rows",
     "call_resources", "call_brokers", "bodies", "body_data", "arena", "keep", "text_bytes", "inline",
     "extra", "block", "segments", "registers")
)  # fmt: skip
"""Tables that need not be put back: they never change, or are written before they are read."""
Told = dict[str, bytes]
ROW, PHASE, FINISHED, ORDER = map(tables.RECORDS["run"].names.index, ("row", "phase", "finished", "order"))  # type: ignore[union-attr]


class Bench:
    """See the module's head."""

    def __init__(self, config: Config, *, small: bool) -> None:
        with patch.dict(
            tables.ROWS, (SMALL if small else ROOMY) | {name: rows for name, (_, rows) in TOLD.items()}
        ):
            machine = Engine(config, compiled=True).machine
        for api in catalog().apis.values():
            for version in range(api.min_version, api.max_version + 1):
                if (
                    machine.t.layouts[int(machine.t.apis[api.key].first) + version - api.min_version].request
                    < 0
                ):
                    machine.learn(api.key, version)
        machine.grow("segments", 64)
        machine.replace("block", np.zeros(MOST_BYTES, np.uint8))
        machine.t.limits[0].seed = 0x1234_5678_9ABC
        self._machine = machine
        self._tables = machine.t
        self._run = np.asarray(machine.t.run).view(np.int64)
        self._fresh = [
            (each.view(np.uint8), each.view(np.uint8).copy())  # records are copied a field at a time
            for each in (np.asarray(getattr(machine.t, name)) for name in Tables._fields if name not in KEPT)
            if len(each)
        ]
        rows = np.asarray(machine.t.segments)
        self._segments = rows.view(np.int64).reshape(len(rows), -1)
        self._fields = [rows.dtype.names.index(name) for name in FIELDS]  # type: ignore[union-attr]
        list(machine.act(FOLLOW, 0))
        self._places: Any = machine._places

    def run(self, script: Sequence[Segment], cuts: Iterable[int] = ()) -> Told | None:
        """What a script led to, in batches that end at `cuts`. None if a table of what is told became full:
        then it would have to be emptied on the way."""
        machine = self._machine
        machine.t, machine._places = self._tables, self._places
        for table, fresh in self._fresh:
            table[...] = fresh
        edges = [0, *cuts, len(script)]
        for first, end in pairwise(edges):
            self._put(script[first:end])
            self._run[ROW], self._run[PHASE] = 0, 0
            if any(True for _ in machine.act(FOLLOW, end - first)):
                return None
        self._run[FINISHED] = self._run[ORDER]
        if any(True for _ in machine.act(FINISH)):
            return None
        return self._told()

    def _put(self, script: Sequence[Segment]) -> None:
        """Let segments stand in the table, and their bytes in a buffer which held others before."""
        data = b"".join(each.data for each in script)
        block = self._machine.t.block
        block[len(data) : len(data) + 64] = 0xA5
        block[: len(data)] = np.frombuffer(data, np.uint8)
        rows, at = [], 0
        for each in script:
            source, target = each.side, 1 - each.side
            rows.append(
                (each.packet, each.time, 0, each.hosts[source] | 0xFFFF00000000, 0,
                 each.hosts[target] | 0xFFFF00000000, each.ports[source], each.ports[target], each.seq,
                 each.ack, each.flags, each.length, len(each.data), 1, at)
            )  # fmt: skip
            at += len(each.data)
        if rows:
            self._segments[: len(rows)] = 0
            self._segments[: len(rows), self._fields] = rows

    def _told(self) -> Told:
        """What stands in the tables; and that nothing else is left there."""
        t = self._machine.t
        run, store = (dict(zip(tables.RECORDS[name].names or (), row.item(), strict=True)) for name, row in (
            ("run", np.asarray(t.run)[0]), ("store", np.asarray(t.store)[0])
        ))  # fmt: skip
        left = {
            "connections": run["followed"], "in flight": run["waiting"], "arena": run["arena_live"],
            "words": store["words_live"],
        } | dict(zip(POOLS, np.asarray(t.pools)["live"].tolist(), strict=True))  # fmt: skip
        assert not any(left.values()), left
        counts = {name: run[count] for name, (count, _) in TOLD.items()}
        counts |= {name: store[name] for name in (*LISTS, "text_bytes")}
        found = {name: np.asarray(getattr(t, name))[:count] for name, count in counts.items()}
        codes = found["notes"]["code"]
        assert ((codes >= 0) & (codes % BAD_BODY < len(CODES))).all(), codes
        return {name: rows.tobytes() for name, rows in found.items()}


FIELDS = (
    "packet", "time", "src_hi", "src_lo", "dst_hi", "dst_lo", "src_port", "dst_port", "seq", "ack", "flags",
    "length", "captured", "buffer", "start",
)  # fmt: skip


def differing(one: Told, other: Told) -> str:
    """Which fields of which rows are not the same."""
    for name, rows in one.items():
        if rows != other[name] and name in tables.RECORDS:
            kind = tables.RECORDS[name]
            a, b = (np.frombuffer(each, kind) for each in (rows, other[name]))
            if len(a) != len(b):
                return f"{name}: {len(a)} rows, {len(b)} rows"
            fields = [field for field in kind.names or () if (a[field] != b[field]).any()]
            return f"{name}: {[(field, a[field], b[field]) for field in fields]}"
    return "texts"
