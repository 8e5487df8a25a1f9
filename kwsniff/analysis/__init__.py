"""Answers to operators' questions, from EVENTS alone: the same for captures, live sessions and stored events.

An answer takes EVENTS batches in their order and then gives tables. It keeps what its tables need and
nothing a row, so that its memory grows with what is told apart (clients, topics, groups) and not with the
input; what it cannot tell, because a column is empty, it says in its notes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import pyarrow as pa

    from kwsniff.analysis.tabular import AnswerTable


class Answer(Protocol):
    """What every answer has."""

    needs: frozenset[str]
    """Columns of EVENTS it looks at."""

    def take(self, batch: pa.RecordBatch) -> None:
        """Take one batch of EVENTS."""

    def tables(self) -> list[AnswerTable]:
        """What was found, the most important table first."""

    def notes(self) -> list[str]:
        """What has to be known beside the tables, a line each."""
