"""What commands that read captures or answer a question can be asked, declared once."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, is_dataclass, replace
from typing import TYPE_CHECKING, Any

import typer

from kwsniff.cli import options
from kwsniff.cli.startup import OWN_PROCESS
from kwsniff.tuning import one_heap

if TYPE_CHECKING:
    from kwsniff.cli.choice import Choice
    from kwsniff.config import Config


@dataclass(frozen=True, slots=True)
class Asked:
    """What the user asked of any of these commands."""

    paths: Sequence[str]
    config: Config
    form: str = "text"
    where: str | None = None
    since: str | None = None
    until: str | None = None
    top: int | None = None
    sort: str | None = None
    tz: str = "UTC"
    topic_ids: str | None = None
    color: str = "auto"
    wide: bool = False
    table: str | None = None
    columns: str | None = None
    count: int | None = None
    recursive: bool = False
    """Asked for; `paths` say so already."""
    quiet: bool = False
    jobs: int | None = None

    @property
    def choice(self) -> Choice:
        """Which events are wanted, and how they are told."""
        from kwsniff.cli.choice import Choice

        return Choice(self.where, self.since, self.until, self.tz, self.topic_ids, self.color)


def _option(name: str, kind: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)


_FILES = _option("files", options.AnswerPaths, inspect.Parameter.empty)
_DECLARED = {
    each.name: each
    for each in (
        _option("full", options.Full, False),
        _option("where", options.Where, None),
        _option("since", options.Since, None),
        _option("until", options.Until, None),
        _option("threshold", options.Threshold, None),
        _option("form", options.AnswerForm, "text"),
        _option("table", options.OneTable, None),
        _option("top", options.Top, None),
        _option("sort", options.Sort, None),
        _option("tz", options.Tz, "UTC"),
        _option("topic_ids", options.TopicIds, None),
        _option("color", options.Color, "auto"),
        _option("columns", options.Columns, None),
        _option("count", options.Count, None),
        _option("wide", options.Wide, False),
        _option("quiet", options.Quiet, False),
        _option("port", options.Port, None),
        _option("recursive", options.Recursive, False),
        _option("jobs", options.Jobs, None),
        _option("memory", options.Memory, "512M"),
    )
}
_OF_ANSWERS = tuple(name for name in _DECLARED if name not in ("full", "threshold", "columns", "count"))


def asking(
    function: Callable[..., int],
    *,
    without: frozenset[str] = frozenset(),
    files: Any = None,
    order: Sequence[str] = (),
    tuning: Callable[[], None] = one_heap,
) -> Any:
    """A command that hands `function` an Asked first, then the options that are its own, one by one or all in
    a dataclass that declares them; what it returns is the exit code.

    `without`: options of answers that it doesn't have; `files`: another declaration of FILE. `order`: for
    other commands, all their options in the order of the help, those of their own among them. `tuning`: what
    is done first if the process is the command's own."""
    own, hand_over = _own(function)
    leading = [name for name, each in own.items() if each.default is inspect.Parameter.empty]
    following = order or [
        *(name for name in own if name not in leading),
        *(name for name in _OF_ANSWERS if name not in without),
    ]
    declared = [own.get(name) or _DECLARED[name] for name in (*leading, *following)]
    first = [] if "files" in without else [_FILES if files is None else _FILES.replace(annotation=files)]

    @functools.wraps(function)
    def command(context: typer.Context, **values: Any) -> None:
        if context.obj is OWN_PROCESS:
            tuning()
        mine = {name: values[name] if name in _CONFIG else values.pop(name) for name in own}
        config = _configured({name: values.pop(name) for name in _CONFIG if name in values})
        paths = values.pop("files", ())
        paths = [paths] if isinstance(paths, str) else paths
        paths = _deeper(paths) if values.get("recursive") else paths
        asked = Asked(paths, config, **values)
        raise typer.Exit(hand_over(asked, **mine))

    whose = inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
    parameters = [whose, *first, *declared]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {each.name: each.annotation for each in parameters}
    del command.__wrapped__
    return command


def _own(function: Callable[..., int]) -> tuple[dict[str, inspect.Parameter], Callable[..., int]]:
    """The options of a command's own, and what takes them one by one."""
    _, *rest = inspect.signature(function, eval_str=True).parameters.values()
    gathered: Any = rest[0].annotation if len(rest) == 1 else None
    gathers = is_dataclass(gathered)
    if gathers:
        rest = [*inspect.signature(gathered, eval_str=True).parameters.values()]

        def hand_over(asked: Asked, **mine: Any) -> int:
            return function(asked, gathered(**mine))
    else:
        hand_over = function
    return {each.name: each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in rest}, hand_over


_CONFIG = ("port", "memory", "full", "threshold")
"""Options that say how the input is decoded."""


def _configured(values: dict[str, Any]) -> Config:
    config = options.configured(values.get("port"), values.get("memory", "512M"), values.get("full", False))
    wanted = values.get("threshold")
    return replace(config, thresholds=options.chosen_thresholds(wanted)) if wanted else config


def _deeper(paths: Sequence[str]) -> list[str]:
    """The paths, each directory of captures with the directories in it; stored events are read so anyway."""
    from kwsniff.answers.stored import is_stored
    from kwsniff.cli.arguments import deeper

    return [path if is_stored(path) else deeper([path])[0] for path in paths]
