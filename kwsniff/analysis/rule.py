"""What a rule is: it takes EVENTS batches, merges with what another instance of it took, and says what it
found.

A rule keeps its state in parts (`Tally`, `Histogram`, ...) that are bounded and merge; so does it. Rules
pickle, so that parts of an input may be taken in different processes and brought together.

Invariant: taking two batches one after the other is the same as taking each with its own instance and
merging.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, Self

from kwsniff.analysis.finding import Finding
from kwsniff.analysis.thresholds import Thresholds
from kwsniff.count.codes import OTHERS
from kwsniff.count.eventrows import EventBatch
from kwsniff.output.units import in_unit, many

METADATA_ID, CLUSTER_METADATA = "00000000-0000-0000-0000-000000000001", "__cluster_metadata"
"""The topic of KRaft's log has the same uuid everywhere (KIP-595)."""


@dataclass
class Context:
    """What the whole input says that single rules need for their words."""

    names: Mapping[str, str] = field(default_factory=dict)
    """Topics by uuid."""
    errors: Mapping[int, tuple[str, bool]] = field(default_factory=dict)
    """Name of each error code, and whether clients may try again."""
    clients: Mapping[str, list[str]] = field(default_factory=dict)
    """Client ids by address."""
    calls: int = 0
    connections: int = 0

    def of_calls(self, count: float) -> float:
        """The share of all calls."""
        return count / max(self.calls, 1)

    def of_connections(self, count: float) -> float:
        """The share of all connections."""
        return count / max(self.connections, 1)

    def of_clients(self, count: float = 1) -> float:
        """The share of all clients."""
        return count / max(sum(map(len, self.clients.values())), 1)

    def topic(self, key: str | None) -> str:
        """The name of a topic that goes by name or uuid."""
        return CLUSTER_METADATA if key == METADATA_ID else self.names.get(key or "", key or "(unnamed)")

    def error(self, code: int | None) -> str:
        """The name of an error code; None stands for several."""
        if code is None:
            return OTHERS
        return self.errors[code][0] if code in self.errors else f"ERROR_{code}"

    def retriable(self, code: int | None) -> bool | None:
        """Whether clients may try again, None if that is not known."""
        return None if code is None or code not in self.errors else self.errors[code][1]


class Shown(NamedTuple):
    """A figure, written in the unit that its name ends with."""

    name: str
    value: float

    def __format__(self, noun: str) -> str:
        return many(self.value, noun) if noun else in_unit(self.name, self.value)


class Rule(ABC):
    """One rule. Its docstring is its documentation in docs/findings.md: what it means and what to do."""

    code: ClassVar[str]
    about: ClassVar[str]
    """What it looks at, in a word or two: `throttling`."""
    needs: ClassVar[frozenset[str]] = frozenset()
    """Columns of EVENTS it reads beside those of every rule."""
    several: ClassVar[str]
    """The sentence of several findings: `{count}` of them, `{x}` is the sum of their figures `x`, `{max_x}`
    the greatest, in the unit that the name ends with; `{x:call}` says `2 calls`."""
    missing: ClassVar[str] = ""
    """What a capture lacks in which the rule finds nothing to look at: `no consumer groups`."""

    def __init__(self, thresholds: Thresholds) -> None:
        self.thresholds = thresholds
        self.looked = 0
        """Rows it could judge by; 0: the capture does not show what it looks at."""

    @abstractmethod
    def take(self, batch: EventBatch) -> None:
        """Take one batch."""

    @abstractmethod
    def findings(self, context: Context) -> list[Finding]:
        """What was found so far."""

    @classmethod
    def headline(cls, found: Sequence[Finding]) -> str:
        """What several of its findings say together."""
        figures: dict[str, Any] = {"count": Shown("count", len(found))}
        for name in found[0].numbers:
            column = [each.numbers.get(name, 0) for each in found]
            figures[name], figures[f"max_{name}"] = Shown(name, sum(column)), Shown(name, max(column))
        return cls.several.format_map(figures)

    def unjudged(self) -> str:
        """Why finding nothing is no praise: what it looked at and could not judge. Empty if it could."""
        return ""

    def merge(self, other: Self) -> None:
        """Take what another instance took."""
        self.looked += other.looked
        for name, part in vars(self).items():
            merge: Any = getattr(part, "merge", None)
            if merge is not None:
                merge(getattr(other, name))
