"""What a traced run decided, in words: rows of `decisions` as lines that a person reads.

`kwsniff.engine.trace` says what is noted and when. A connection has an id only once both ends and its first
packet are known, so each OPENED row names them, and the others bear its number.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from kwsniff.engine import trace
from kwsniff.engine.eventcolumns import connection_id
from kwsniff.engine.machine import Machine
from kwsniff.engine.tables import OTHER, TLS
from kwsniff.net.address import text
from kwsniff.rows.events import UNANSWERED_REASONS
from kwsniff.spec.load import catalog

FLAGS = ((2, "SYN"), (1, "FIN"), (4, "RST"))
HOLES = (
    "", "the receiver acknowledged them, so the capture lost them", "nothing was captured of the receiver",
    "too much waits behind them", "the connection ends or its content has to be settled",
)  # fmt: skip
"""Why a hole is given up, in the order of `kwsniff.engine.streams`."""
REASONS = (
    "", "connection_closed", "connection_reset", "capture_ended", "gap_in_responses", "limit", "timeout",
)  # fmt: skip
"""UNANSWERED_REASONS in the order of `kwsniff.engine.tables`."""


class Decision(NamedTuple):
    """One line of a trace."""

    connection: str
    """Id of the connection."""
    packet: int
    """Number of the packet at which it was decided: the connection's latest."""
    time: int
    """Its time, in nanoseconds since 1970."""
    end: str
    """`client`, `broker`, or, while that is not known, `end a` or `end b`, a being the lower address."""
    what: str
    """The decision and its reason."""


class Decisions:
    """Takes the decisions of a run out of its tables."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._ids: dict[int, str] = {}
        machine.t.limits[0].trace = 1

    def take(self) -> list[Decision]:
        """What was decided since the last time."""
        run = self._machine.t.run[0]
        rows = self._machine.array("decisions", int(run.decisions)).tolist()
        names = self._machine.dtype("decisions").names or ()
        found = [self._decision(dict(zip(names, row, strict=True))) for row in rows]
        if run.undecided:
            found.append(Decision("", -1, -1, "", f"{int(run.undecided):,} decisions more, not noted"))
        run.decisions = run.undecided = 0
        return found

    def _decision(self, row: dict[str, int]) -> Decision:
        number = row["number"]
        if row["what"] == trace.OPENED:
            ends = [(row[f"{end}_hi"], row[f"{end}_lo"], row[f"{end}_port"]) for end in "ab"]
            self._ids[number] = connection_id(ends[0], ends[1], row["time"])
            said = " and ".join(f"{text(hi, lo)} port {port}" for hi, lo, port in ends)
            known = "a Kafka port is known" if row["a"] else "no port says that it is Kafka"
            return Decision(self._ids[number], row["packet"], row["time"], "", f"new between {said}: {known}")
        what = WORDS[trace.DECISIONS[row["what"]]](row["a"], row["b"])
        return Decision(self._ids.get(number, "?"), row["packet"], row["time"], _end(row), what)


def _end(row: dict[str, int]) -> str:
    if trace.DECISIONS[row["what"]] in OF_NO_END:
        return ""
    if row["client"] < 0:
        return "end a" if row["side"] == 0 else "end b"
    return "client" if row["side"] == row["client"] else "broker"


OF_NO_END = frozenset(("let_go", "refused", "orphan", "dropped", "unanswered", "limit", "closing"))
"""Decisions on the connection as a whole."""


def _flags(flags: int) -> str:
    return " ".join(name for bit, name in FLAGS if flags & bit)


def _segment(length: int, flags: int) -> str:
    said = _flags(flags)
    return f"segment of {length:,} bytes" + (f", {said}" if said else "")


def _accepted(proven: int, _: int) -> str:
    return "accepted as Kafka, this end is the client" + (
        ": content proved it" if proven else ": by its port, until content proves it"
    )


def _refused(state: int, _: int) -> str:
    return {TLS: "left alone: it is TLS", OTHER: "refused: it is no Kafka that can be read"}[state]


def _lost(size: int, invalid: int) -> str:
    why = f"no frame has a length of {size:,}" if invalid else f"{size:,} missing bytes may hold a length"
    return f"framing lost: {why}"


def _request(correlation_id: int, call: int) -> str:
    key, version = call >> 16, call & 0xFFFF
    api = catalog().apis.get(key)
    return f"{api.name if api else f'API {key}'} v{version}, correlation id {correlation_id}"


def _because(reason: int) -> str:
    name = REASONS[reason]
    return f"{name}: {UNANSWERED_REASONS[name]}"


def _paired(correlation_id: int, proven: int) -> str:
    doubt = "" if proven else "; not told, as content has not proved it to be Kafka"
    return f"response {correlation_id} paired with its request{doubt}"


def _dropped(correlation_id: int, proven: int) -> str:
    why = (
        "its id is far from those of the requests" if proven else "nothing proved the connection to be Kafka"
    )
    return f"response {correlation_id} dropped: {why}"


def _limit(count: int, requests: int) -> str:
    what = "requests in flight" if requests == 2 else "bytes held"
    return f"{count:,} {what} given up to keep within a limit of the run"


WORDS: dict[str, Callable[[int, int], str]] = {
    "segment": _segment,
    "waits": lambda ahead, _: f"waits behind a hole of {ahead:,} bytes",
    "out_of_window": lambda ahead, _: f"{ahead:,} bytes ahead: no receiver takes it",
    "seen": lambda size, _: f"{size:,} bytes were seen before",
    "ignored": lambda flag, away: f"{_flags(flag)} {away:,} bytes from where the stream stands: ignored",
    "gap": lambda size, why: f"gap of {size:,} bytes given up: {HOLES[why]}",
    "held": lambda held, _: f"held until the connection is judged, {held:,} bytes by now",
    "let_go": lambda tries, _: f"nothing proves a direction: older half let go, for the {tries}. time",
    "accepted": _accepted,
    "refused": _refused,
    "turned": lambda *_: "content says that this end is the client, against SYN or port: turned round",
    "framing_lost": _lost,
    "framing_found": lambda skipped, _: f"framing found, {skipped:,} bytes skipped",
    "cut_short": lambda size, got: f"frame of {size:,} bytes ends after {got:,}: another begins in it",
    "request": lambda found, call: f"request {_request(found, call)} waits for its response",
    "unasked": lambda found, call: f"request {_request(found, call)} wants no response",
    "paired": _paired,
    "early": lambda found, _: f"response {found} came before its request: it waits",
    "paired_early": lambda found, _: f"response {found}, captured before its request, paired with it",
    "orphan": lambda found, _: f"response {found} told as orphan: its request did not come",
    "dropped": _dropped,
    "unanswered": lambda found, why: f"request {found} told as unanswered: {_because(why)}",
    "limit": _limit,
    "closing": lambda why, _: f"closed, {_because(why)}",
}


def matching(decisions: list[Decision], connection: str) -> list[Decision]:
    """Those of connections whose id begins so, and what is about no single connection."""
    return [each for each in decisions if not each.connection or each.connection.startswith(connection)]
