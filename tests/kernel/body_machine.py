"""Runs the kernels of bodies by themselves, interpreted."""

from __future__ import annotations

from typing import Any

from kwsniff.config import MAX_ELEMENTS
from kwsniff.engine import bodies, calls, packing, texts
from kwsniff.engine.programs import api_rows, code_rows, program_row, programs_of
from kwsniff.engine.tables import ARRAYS, SPECS, WANTS, Stopped, Tables
from kwsniff.native.rowcopies import NONE
from kwsniff.spec import instructions as i
from kwsniff.spec.batches import CODEC_NAMES
from kwsniff.spec.codegen import uuid_text

SMALL = 4
"""Rows that tables have at first, so that growing them is tested too."""
SINGLE = {
    "run": 1,
    "limits": 1,
    "store": 1,
    "facts": 2,
    "word_bins": packing.WORD_BINS,
    "pools": 4,
    "reading": 1,
}
LIST_NAMES = ("names", "rows", "brokers", "resources", "call_names", "call_rows", "call_resources")


def empty(name: str, count: int) -> Any:
    """A table of so many rows, or an array."""
    if name in ARRAYS:
        return bytearray(count) if ARRAYS[name] == "bytes" else [0] * count
    spec = next(spec for spec in SPECS if spec.name == name)
    return [spec.row() for _ in range(count)]


def larger(name: str, table: Any, count: int) -> Any:
    """The same table with room for so many rows."""
    grown = empty(name, count)
    grown[: len(table)] = table
    return grown


class Machine:
    """Tables, and the kernels over them; grows what is full."""

    def __init__(self, *, verify: bool = True, lists: bool = True, elements: int = MAX_ELEMENTS) -> None:
        self.t = Tables(*(empty(name, SINGLE.get(name, SMALL)) for name in Tables._fields))
        limits = self.row("limits")
        limits.max_elements, limits.verify_crc, limits.lists = elements, int(verify), int(lists)
        limits.seed = 0x0123456789ABCDEF
        packing.reset_words(self.t)
        apis, layouts = api_rows()
        self._fill("apis", apis)
        self._fill("layouts", layouts)
        self.loaded: dict[tuple[int, int], int] = {}

    def row(self, table: str, at: int = 0) -> Any:
        """A row with fields to read and to set."""
        return getattr(self.t, table)[at]

    def _fill(self, name: str, rows: list[dict[str, int]]) -> None:
        self.t = self.t._replace(**{name: empty(name, len(rows))})
        for at, row in enumerate(rows):
            self._set(name, at, row)

    def _set(self, name: str, at: int, values: dict[str, int]) -> None:
        row = self.row(name, at)
        for field, value in values.items():
            setattr(row, field, value)

    def layout(self, key: int, version: int) -> int:
        """The row of layouts of a version, with its programs loaded."""
        api = self.row("apis", key)
        row = int(api.first) + version - int(api.low)
        if self.row("layouts", row).request < 0:
            for name, program in zip(("request", "response"), programs_of(key, version), strict=True):
                self._set("layouts", row, {name: self._load(program)})
        return row

    def _load(self, program: i.Program) -> int:
        store = self.row("store")
        start, entry = int(store.code), int(store.programs)
        while start + len(program.code) > len(self.t.code):
            self.grow("code", 2 * len(self.t.code))
        if entry >= len(self.t.programs):
            self.grow("programs", 2 * len(self.t.programs))
        for at, words in enumerate(code_rows(program, start), start):
            self._set("code", at, dict(zip(["op", "a", "b", "c", "d"], words, strict=True)))
        self._set("programs", entry, program_row(program, start))
        store.code, store.programs = start + len(program.code), entry + 1
        return entry

    def grow(self, name: str, room: int) -> None:
        """Give a table at least `room` rows."""
        table = getattr(self.t, name)
        count = len(table)
        while count < max(room, 2 * len(table)):
            count *= 2
        fresh = empty(name, count) if name in ("text_slots", "places") else larger(name, table, count)
        self.t = self.t._replace(**{name: fresh})
        if name == "text_slots":
            texts.rehash(self.t)

    def call(self, kernel: Any, *args: Any) -> Any:
        """Call a kernel until no table is full."""
        for _ in range(200):
            try:
                return kernel(self.t, *args)
            except Stopped:
                run = self.row("run")
                self.grow(WANTS[run.want], int(run.room))
        raise AssertionError(f"{WANTS[self.row('run').want]} grows without end")

    def read(self, key: int, version: int, direction: str, data: bytes, pos: int, end: int) -> bool:
        """Read a body as the engine does: whether it could be read."""
        layout = self.layout(key, version)
        is_request = direction == "request"
        if is_request:
            entry = int(self.row("layouts", layout).request)
            return bool(self.call(bodies.read, data, pos, end, entry, True))
        chosen = int(bodies.downgraded(self.t, data, pos, end, layout))
        self.layout(key, int(self.row("layouts", chosen).version))
        good = self.call(bodies.read, data, pos, end, int(self.row("layouts", chosen).response), False)
        if not good and chosen != layout:
            bodies.unsupported(self.t)
            return True
        return bool(good)

    def skim(self, key: int, version: int, direction: str, data: bytes, pos: int, end: int) -> bool:
        """Whether it would be read."""
        layout = self.row("layouts", self.layout(key, version))
        entry = int(layout.request if direction == "request" else layout.response)
        return bool(self.call(bodies.skim, data, pos, end, entry, direction == "request"))

    # What tables say

    def text(self, number: int) -> str | None:
        """A text, or a uuid as text."""
        if number < 0:
            return None
        row = self.row("texts", number)
        raw = bytes(self.t.text_bytes[row.at : row.at + row.size])
        return uuid_text(raw) if row.kind else raw.decode()

    def rows(self, table: str, first: int, count: int) -> list[dict[str, int]]:
        """Rows of a table as dicts."""
        names = next(spec.names for spec in SPECS if spec.name == table)
        chosen = [self.row(table, at) for at in range(first, first + count)]
        return [{name: int(getattr(row, name)) for name in names} for row in chosen]

    def facts(self, side: int) -> dict[str, Any]:
        """A row of facts, in the form of `Facts` and the sums of `tests.oracle.bodies.Body`."""
        (fact,) = self.rows("facts", side, 1)
        extra: dict[str, Any] = {}
        for role in (
            "software_name", "software_version", "mechanism", "session_id", "session_epoch", "protocol_type",
            "coordinator_key", "coordinator_type",
        ):  # fmt: skip
            value = self.text(fact[role]) if role in i.TEXTS else number(fact[role])
            if value is not None:
                extra[role] = value
        if fact["token"] != NONE:
            extra["auth_bytes"] = (fact["token"], fact["token_end"])
        brokers = self.rows("brokers", 0, fact["brokers"])
        if brokers:
            extra["brokers"] = [(row["node"], self.text(row["host"]), row["port"]) for row in brokers]
        names = self.rows("names", 0, fact["names"])
        return {
            "error_code": number(fact["error"]),
            "error_count": fact["errors"],
            "throttle_ms": number(fact["throttle"]),
            "acks": number(fact["acks"]),
            "max_wait_ms": number(fact["max_wait"]),
            "min_bytes": number(fact["min_bytes"]),
            "group_id": self.text(fact["group"]),
            "member_id": self.text(fact["member"]),
            "transactional_id": self.text(fact["transactional_id"]),
            "topics": [self.text(row["name"]) for row in names],
            "topic_ids": [self.text(row["uuid"]) for row in names] if fact["flags"] & i.HAS_TOPIC_ID else [],
            "partitions": [self.partition(row) for row in self.rows("rows", 0, fact["rows"])],
            "extra": extra,
            "records": number(fact["records"]),
            "record_bytes": number(fact["record_bytes"]),
            "trailing": fact["trailing"],
        }

    def partition(self, row: dict[str, int]) -> tuple[Any, ...]:
        """A row of `rows` or `call_rows` as `PartitionRow`."""
        return (
            self.text(row["name"]), self.text(row["uuid"]), row["partition"], number(row["error"]),
            number(row["base_offset"]), number(row["records"]), number(row["bytes"]), codecs(row["codecs"]),
        )  # fmt: skip


def number(value: int) -> int | None:
    """None where the tables have NONE."""
    return None if value == NONE else value


def codecs(packed: int) -> str | None:
    """Names of codecs as columns have them."""
    found = []
    while packed:
        found.append(CODEC_NAMES[(packed & 15) - 1])
        packed >>= 4
    return "+".join(found) or None


__all__ = ["Machine", "calls", "codecs", "number"]
