"""Which events a command takes, and how they are told: what `--where`, `--since`, `--until`, `--tz` and
`--topic-ids` mean, the same for all commands."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from kwsniff.cli.problem import CommandError, suggestion
from kwsniff.where import zone

if TYPE_CHECKING:
    from kwsniff.report.topics import TopicNames
    from kwsniff.where.predicate import Predicate, Window

COLOURS = ("auto", "always", "never")


@dataclass(frozen=True)
class Choice:
    """What the user chose."""

    where: str | None = None
    since: str | None = None
    until: str | None = None
    tz: str = "UTC"
    topic_ids: str | None = None
    """A file that names topics."""
    color: str = "auto"

    def checked(self) -> Choice:
        """The same. Raises CommandError or WhereError for what can be seen to be wrong before anything is
        read."""
        if self.color not in COLOURS:
            near = suggestion(self.color, COLOURS)
            raise CommandError(f"--color: {self.color!r} is none of {', '.join(COLOURS)}{near}")
        self.predicate()
        _ = self.names
        return self

    def predicate(self) -> Predicate | None:
        """Which events are wanted; None for all. Raises WhereError."""
        if self.where is None and self.since is None and self.until is None:
            zone(self.tz)
            return None
        from kwsniff.where.predicate import compile_where  # which loads the language

        return compile_where(self.where, since=self.since, until=self.until, tz=self.tz)

    def window(self) -> Window | None:
        """The time that is wanted, None for all; to be asked for once it is `checked`."""
        if self.since is None and self.until is None:
            return None
        from kwsniff.where.predicate import Window  # which loads the language

        return Window(self.since, self.until, self.tz)

    @property
    def columns(self) -> frozenset[str]:
        """The columns of EVENTS that choosing takes."""
        if self.where is None:
            return frozenset()
        from kwsniff.where.predicate import columns_in

        return columns_in(self.where)

    @property
    def limits(self) -> str:
        """The options that leave something out."""
        given = (("--where", self.where), ("--since", self.since), ("--until", self.until))
        return " and ".join(name for name, value in given if value is not None)

    @property
    def options(self) -> list[str]:
        """What was chosen but for `--where`, as options of a command."""
        given = [("--since", self.since), ("--until", self.until), ("--topic-ids", self.topic_ids)]
        zone = [("--tz", self.tz)] if self.tz != "UTC" else []
        return [part for name, value in (*given, *zone) if value is not None for part in (name, value)]

    @property
    def zone(self) -> ZoneInfo:
        """The time zone that people are told times in."""
        return zone(self.tz)

    @cached_property
    def names(self) -> dict[str, str]:
        """Topics by uuid, as the user's file names them. Raises CommandError."""
        if self.topic_ids is None:
            return {}
        from kwsniff.report.topics import TopicFileError, read_names

        try:
            return read_names(self.topic_ids)
        except TopicFileError as error:
            raise CommandError(f"--topic-ids: {error}") from None

    def learner(self) -> TopicNames:
        """Learns names of topics, beginning with those of the user's file. Raises CommandError."""
        from kwsniff.report.topics import TopicNames

        return TopicNames(self.names)

    def colour(self, terminal: bool, environment: str | None) -> bool:
        """Whether text is coloured; `environment` is NO_COLOR."""
        return {"always": True, "never": False}.get(self.color, terminal and not environment)
