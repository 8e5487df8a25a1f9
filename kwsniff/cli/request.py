"""What the user asked of a command: one request, with the options that several commands share.

What `--where`, `--since`, `--until`, `--tz` and `--topic-ids` mean is the same for all of them.
"""

from __future__ import annotations

import os
import re
import stat
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self, TypeVar
from zoneinfo import ZoneInfo

from kwsniff.cli.problem import CommandError, suggestion
from kwsniff.config import LEAST_MEMORY, Config, bytes_of, key_log, ports_of
from kwsniff.count.where import zone

if TYPE_CHECKING:
    from kwsniff.count.topics import TopicNames
    from kwsniff.count.where.period import Window
    from kwsniff.count.where.predicate import Predicate

COLOURS = ("auto", "always", "never")
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Request:
    """What these options say, each by the name of the option. Commands with many of their own have a kind of
    request of their own."""

    paths: Sequence[str]
    config: Config
    """How the input is decoded: of `--port`, `--keylog`, `--max-memory`, `--full`, `--records` and
    `--threshold`."""
    port: str | None = None
    """`--port` as it was written."""
    keylog: str | None = None
    """`--keylog` as it was written."""
    form: str | None = None
    where: str | None = None
    since: str | None = None
    until: str | None = None
    tz: str = "UTC"
    topic_ids: str | None = None
    """A file that names topics."""
    top: int | None = None
    sort: str | None = None
    table: str | None = None
    columns: str | None = None
    count: int | None = None
    color: str = "auto"
    wide: bool = False
    quiet: bool = False
    jobs: int | None = None

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> tuple[Self, dict[str, Any]]:
        """The request that the values of options make, and the values that it has no field for. Raises
        CommandError."""
        left = dict(values)
        config = _config(left)
        for name in ("memory", "full", "threshold"):
            left.pop(name, None)
        paths = left.pop("files", ())
        paths = [paths] if isinstance(paths, str) else [*paths]
        if left.pop("recursive", False):
            if left.get("follow"):
                raise CommandError("--recursive does not go with --follow")
            paths = _deeper(paths)
        names = {each.name for each in fields(cls)}
        known = {name: left.pop(name) for name in [*left] if name in names}
        return cls(paths=paths, config=config, **known), left

    def checked(self) -> Self:
        """The same. Raises CommandError or WhereError for what can be seen to be wrong before anything is
        read."""
        if self.color not in COLOURS:
            near = suggestion(self.color, COLOURS)
            raise CommandError(f"--color: {self.color!r} is none of {', '.join(COLOURS)}{near}")
        _ = self.predicate, self.names
        return self

    @cached_property
    def predicate(self) -> Predicate | None:
        """Which events are wanted; None for all. Raises WhereError."""
        if self.where is None and self.since is None and self.until is None:
            zone(self.tz)
            return None
        from kwsniff.count.where.predicate import compile_where  # which loads the language

        return compile_where(self.where, since=self.since, until=self.until, tz=self.tz)

    def bounds(self) -> Window | None:
        """The time that is wanted, None for all; to be asked for once it is `checked`."""
        if self.since is None and self.until is None:
            return None
        from kwsniff.count.where.period import Window  # which loads the language

        return Window(self.since, self.until, self.tz)

    @property
    def chosen_by(self) -> frozenset[str]:
        """The columns of EVENTS that `--where` looks at."""
        if self.where is None:
            return frozenset()
        from kwsniff.count.where.predicate import columns_in

        return columns_in(self.where)

    @property
    def limits(self) -> str:
        """The options that leave something out."""
        given = (("--where", self.where), ("--since", self.since), ("--until", self.until))
        return " and ".join(name for name, value in given if value is not None)

    @property
    def again(self) -> list[str]:
        """Options, but for `--where`, with which another command takes what this one does."""
        ports = self.config.ports
        port = None if ports == Config().ports else ",".join(map(str, ports))
        zone = None if self.tz == "UTC" else self.tz
        given = {"--port": port, "--keylog": self.keylog, "--since": self.since, "--until": self.until}
        given |= {"--topic-ids": self.topic_ids, "--tz": zone}
        return [part for name, value in given.items() if value is not None for part in (name, value)]

    @property
    def zone(self) -> ZoneInfo:
        """The time zone that people are told times in."""
        return zone(self.tz)

    @cached_property
    def names(self) -> dict[str, str]:
        """Topics by uuid, as the user's file names them. Raises CommandError."""
        if self.topic_ids is None:
            return {}
        from kwsniff.count.topics import TopicFileError, read_names

        try:
            return read_names(self.topic_ids)
        except TopicFileError as error:
            raise CommandError(f"--topic-ids: {error}") from None

    def learner(self) -> TopicNames:
        """Learns names of topics, beginning with those of the user's file. Raises CommandError."""
        from kwsniff.count.topics import TopicNames

        return TopicNames(self.names)

    def colour(self, terminal: bool) -> bool:
        """Whether text is coloured; by itself on a terminal, unless NO_COLOR is set."""
        wanted = {"always": True, "never": False}.get(self.color)
        return terminal and not os.environ.get("NO_COLOR") if wanted is None else wanted


# What options say


def _config(values: Mapping[str, Any]) -> Config:
    memory, port = values.get("memory", "512M"), values.get("port")
    size = parsed(bytes_of, memory, "--max-memory")
    ports = Config().ports if port is None else parsed(ports_of, port, "--port")
    try:
        full, keylog = values.get("full", False), _key_log(values)
        config = Config.within(size, ports=ports, full=full, keylog=keylog)
    except ValueError:
        raise CommandError(
            f"--max-memory: {memory} is too little, kwsniff takes {LEAST_MEMORY // 10**6}M at least"
        ) from None
    wanted = values.get("threshold")
    return replace(config, thresholds=_thresholds(wanted)) if wanted else config


def _key_log(values: Mapping[str, Any]) -> str | None:
    """The key log for a command that reads captures. Raises CommandError."""
    try:
        return key_log(values["keylog"]) if "keylog" in values else None
    except OSError as error:
        raise CommandError(f"--keylog: {values['keylog']}: {error.strerror}") from None


def _thresholds(wanted: Sequence[str]) -> tuple[tuple[str, float], ...]:
    """What `--threshold` says. Raises CommandError."""
    from kwsniff.analysis.rule import Thresholds

    found = []
    for each in wanted:
        name, _, value = each.partition("=")
        try:
            found.append((name.strip(), float(value)))
            Thresholds.of(found)
        except ValueError as error:
            reason = "is not NAME=VALUE with a number" if "convert" in str(error) else f": {error}"
            raise CommandError(f"--threshold {each!r} {reason}".replace(" : ", ": ")) from None
    return tuple(found)


def parsed(parse: Callable[[str], T], text: str, option: str) -> T:
    """What the text of an option says. Raises CommandError where `parse` raises ValueError."""
    try:
        return parse(text)
    except ValueError as error:
        raise CommandError(f"{option}: {error}") from None


def seconds_of(text: str) -> float:
    """Seconds from a number with s, m, h or d, or without. Raises ValueError if it is no time above zero."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(|s|m|h|d)", text.strip())
    seconds = float(found[1]) * {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400}[found[2]] if found else 0.0
    if seconds <= 0:
        raise ValueError(f"{text!r} is no time such as 90s, 10m or 2h")
    return seconds


def chosen_columns(request: Request, form: str, forms: str) -> list[str] | None:
    """The columns of EVENTS that `--columns` names, in that order, None for those of the format. Raises
    CommandError for a name that is unknown or given twice, and for text; `forms` are the other formats."""
    if request.columns is None:
        return None
    if form == "text":
        raise CommandError(f"--columns goes with -f {forms}")
    from kwsniff.rows.schema import EVENTS

    names = [name.strip() for name in request.columns.split(",") if name.strip()]
    if not names:
        raise CommandError("--columns names no column")
    for name in names:
        if name not in EVENTS.names:
            raise CommandError(f"--columns: unknown column {name!r}{suggestion(name, EVENTS.names)}")
        if names.count(name) > 1:
            raise CommandError(f"--columns: {name} is given twice")
    return names


# What inputs and outputs are named


def from_pipe(paths: Sequence[str]) -> bool:
    """Whether something comes through a pipe (standard input, a named pipe), so that it may still be
    written."""
    return any(map(_is_pipe, paths))


def _is_pipe(path: str) -> bool:
    try:
        mode = (os.fstat(sys.stdin.fileno()) if path == "-" else os.stat(path)).st_mode
    except (OSError, ValueError):
        return path == "-"
    return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)


PATIENCE_S = 60.0
"""Seconds after which a request counts as unanswered though its connection is open."""


def patient(config: Config) -> Config:
    """The configuration for input that tells the time, as what comes when it is captured does."""
    return replace(config, request_timeout=PATIENCE_S)


def _deeper(paths: Sequence[str]) -> list[str]:
    """The paths, each directory of captures with the directories in it; stored events are read so anyway."""
    from kwsniff.analysis.stored import is_stored
    from kwsniff.capture.place import is_directory, is_remote, local, recursive

    return [
        recursive(path)
        if not is_stored(path) and (is_directory(path) if is_remote(path) else os.path.isdir(local(path)))
        else path
        for path in paths
    ]


def refuse_overwriting(output: str | None, paths: Sequence[str]) -> None:
    """Raise CommandError if the output would replace an input."""
    if output in (None, "-"):
        return
    target = os.path.realpath(str(output))
    for path in paths:
        if path != "-" and os.path.realpath(path) == target:
            raise CommandError(f"-o {output} is one of the inputs")


def refuse_bodies(request: Request) -> None:
    """Raise CommandError if `--where` looks into bodies that are not decoded."""
    asked = sorted(request.chosen_by & {"request", "response"})
    if asked and not request.config.full:
        raise CommandError(f"--where looks into the body of the {asked[0]}, which needs --full")
