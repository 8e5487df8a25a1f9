"""Runs a command and turns every way it can end into an exit code and at most one line."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import get_completion_class, shell_complete

from kwsniff import __version__
from kwsniff.cli import problem
from kwsniff.cli.commands import COMMANDS, EXAMPLES, GROUPS, OWN_PROCESS
from kwsniff.cli.options import write_examples
from kwsniff.cli.problem import USAGE, CommandError, suggestion
from kwsniff.count.where import WhereError

if TYPE_CHECKING:
    from kwsniff.cli.request import Request

# `kwsniff` itself: what holds for all commands.


class Commands(click.Group):
    """The tool itself."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names, in the order of the help."""
        return [name for names in GROUPS.values() for name in names]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Examples first, then the commands in groups, each with the first sentence of its help."""
        write_examples(formatter, EXAMPLES)
        widest = max(map(len, COMMANDS))
        for title, names in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl(
                    [(name.ljust(widest), str(COMMANDS[name].help).split("\n\n")[0]) for name in names]
                )
        with formatter.section("Options"):
            records = [each.get_help_record(ctx) for each in self.get_params(ctx)]
            formatter.write_dl([each for each in records if each is not None])

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        """The command that `args` begin with; a name that comes close is suggested."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            near = suggestion(args[0], COMMANDS) or " (see kwsniff --help)"
            raise CommandError(f"no such command: {args[0]}{near}")
        return super().resolve_command(ctx, args)


@click.group(
    cls=Commands,
    name="kwsniff",
    commands=COMMANDS,
    help="Passive analyzer of the Kafka wire protocol: captures in, calls, latencies and errors out.",
    invoke_without_command=True,
    subcommand_metavar="COMMAND [ARGS]...",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, message="kwsniff %(version)s", help="Print the version and exit.")
@click.option("--debug", is_flag=True, help="Show the traceback if kwsniff itself fails.")
@click.pass_context
def app(context: click.Context, debug: bool) -> None:
    """The command line; `--debug` is looked at by `run`."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help(), err=True)
        context.exit(USAGE)


SHELLS = ("bash", "zsh", "fish")
COMPLETE = "_KWSNIFF_COMPLETE"
"""Set by the script of `kwsniff completion` where a shell asks what comes next."""


def completion(request: Request, shell: str) -> int:
    """Print what a shell has to read to complete `kwsniff`. Raises CommandError."""
    if shell not in SHELLS:
        near = suggestion(shell, SHELLS) or f"; there is {', '.join(SHELLS)}"
        raise CommandError(f"no completion for {shell!r}{near}")
    found = get_completion_class(shell)
    assert found is not None
    print(found(app, {}, "kwsniff", COMPLETE).source())
    return problem.DONE


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command line `arguments` (default: this process is the command) and return the exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        result = _main(given, OWN_PROCESS if arguments is None else None)
        sys.stdout.flush()
        return result if isinstance(result, int) else problem.DONE
    except BrokenPipeError:
        _forget_stdout()
        return problem.DONE
    except problem.Terminated:
        return problem.TERMINATED
    except KeyboardInterrupt:
        return problem.INTERRUPTED
    except Exception as error:
        message, code = _told(error)
        if code == problem.INTERNAL and "--debug" in given and not isinstance(error, CommandError):
            raise
        problem.said(message)
        return code


def _told(error: Exception) -> tuple[str, int]:
    """What is said of an error, and the exit code."""
    match error:
        case CommandError():
            return str(error), error.exit_code
        case WhereError():
            return str(error), USAGE
        case click.ClickException():
            context = getattr(error, "ctx", None)
            command = context.command_path if context is not None else "kwsniff"
            return f"{error.format_message().rstrip('.')} (see {command} --help)", USAGE
        case OSError():
            place = f"{error.filename}: " if error.filename is not None else ""
            return f"{place}{error.strerror or error}", USAGE
        case MemoryError():
            return "out of memory", USAGE
    return (
        f"a fault of kwsniff, please report it: {type(error).__name__}: {error} "
        "(kwsniff --debug ... shows the traceback)"
    ), problem.INTERNAL


def _main(arguments: list[str], state: object) -> object:
    """As click's own `main`, which ends the process where a pipe is closed."""
    asked = os.environ.get(COMPLETE)
    if asked:
        return shell_complete(app, {}, "kwsniff", COMPLETE, asked)
    try:
        with app.make_context("kwsniff", [*arguments], obj=state) as context:
            return app.invoke(context)
    except click.exceptions.Exit as ending:
        return ending.exit_code


def _forget_stdout() -> None:
    """Point standard output at nothing, so that the flush at interpreter exit finds no closed pipe."""
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, sys.stdout.fileno())
    os.close(devnull)
