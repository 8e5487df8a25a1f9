"""What all commands that answer a question can be asked, declared once."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import typer

from kwsniff.cli import options
from kwsniff.cli.startup import OWN_PROCESS, one_heap

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
_OPTIONS = (
    _option("where", options.Where, None),
    _option("since", options.Since, None),
    _option("until", options.Until, None),
    _option("form", options.AnswerForm, "text"),
    _option("table", options.OneTable, None),
    _option("top", options.Top, None),
    _option("sort", options.Sort, None),
    _option("tz", options.Tz, "UTC"),
    _option("topic_ids", options.TopicIds, None),
    _option("color", options.Color, "auto"),
    _option("wide", options.Wide, False),
    _option("quiet", options.Quiet, False),
    _option("port", options.Port, None),
    _option("recursive", options.Recursive, False),
    _option("jobs", options.Jobs, None),
    _option("memory", options.Memory, "512M"),
)


def asking(function: Callable[..., int], *, without: frozenset[str] = frozenset(), files: Any = None) -> Any:
    """A command that hands `function` an Asked first, then the options that are its own; what it returns is
    the exit code. `without`: common options that it doesn't have; `files`: another declaration of FILE."""
    own = list(inspect.signature(function, eval_str=True).parameters.values())[1:]
    own = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in own]
    first = _FILES if files is None else _FILES.replace(annotation=files)
    common = [each for each in _OPTIONS if each.name not in without]
    leading = [each for each in own if each.default is inspect.Parameter.empty]
    parameters = [first, *leading, *(each for each in own if each not in leading), *common]

    @functools.wraps(function)
    def command(context: typer.Context, **values: Any) -> None:
        if context.obj is OWN_PROCESS:
            one_heap()
        mine = {each.name: values.pop(each.name) for each in own}
        config = options.configured(values.pop("port", None), values.pop("memory", "512M"))
        paths = values.pop("files")
        paths = [paths] if isinstance(paths, str) else paths
        paths = _deeper(paths) if values.pop("recursive", False) else paths
        asked = Asked(paths, config, **values)
        raise typer.Exit(function(asked, **mine))

    whose = inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
    command.__signature__ = inspect.Signature([whose, *parameters])  # type: ignore[attr-defined]
    command.__annotations__ = {each.name: each.annotation for each in (whose, *parameters)}
    del command.__wrapped__
    return command


def _deeper(paths: Sequence[str]) -> list[str]:
    """The paths, each directory of captures with the directories in it; stored events are read so anyway."""
    from kwsniff.answers.stored import is_stored
    from kwsniff.cli.arguments import deeper

    return [path if is_stored(path) else deeper([path])[0] for path in paths]
