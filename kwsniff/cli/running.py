"""Runs a command and turns every way it can end into an exit code and at most one line."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer
import typer.main
from typer.core import TyperGroup

from kwsniff import __version__
from kwsniff.cli import problem
from kwsniff.cli.commands import COMMANDS, EXAMPLES, GROUPS, command
from kwsniff.cli.page import SETTINGS, write_examples
from kwsniff.cli.problem import USAGE, CommandError, suggestion
from kwsniff.cli.startup import OWN_PROCESS
from kwsniff.where import WhereError

# `kwsniff` itself: what holds for all commands.

# The tool itself: its commands, each imported when it is asked for.


class Commands(TyperGroup):
    """The tool itself: it imports the module of a command when that command is asked for."""

    def list_commands(self, ctx: Any) -> list[str]:
        """The names, in the order of the help."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of that name, or None."""
        return command(cmd_name)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Examples first, then the commands in groups, each with the first sentence of its help."""
        write_examples(formatter, EXAMPLES)
        widest = max(map(len, COMMANDS))
        for title, names in GROUPS.items():
            found = [(name, command(name)) for name in names]
            with formatter.section(title):
                formatter.write_dl(
                    [(name.ljust(widest), str(each and each.help).split("\n\n")[0]) for name, each in found]
                )
        with formatter.section("Options"):
            formatter.write_dl([each.get_help_record(ctx) for each in self.get_params(ctx)])

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that `args` begin with; a name that comes close is suggested."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            near = suggestion(args[0], COMMANDS) or " (see kwsniff --help)"
            raise CommandError(f"no such command: {args[0]}{near}")
        return super().resolve_command(ctx, args)


app = typer.Typer(
    name="kwsniff",
    cls=Commands,
    help="Passive analyzer of the Kafka wire protocol: captures in, calls, latencies and errors out.",
    invoke_without_command=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings=SETTINGS,
)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"kwsniff {__version__}")
        raise typer.Exit


@app.callback()
def root(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback if kwsniff itself fails.")
    ] = False,
) -> None:
    """Passive analyzer of the Kafka wire protocol: captures in, calls, latencies and errors out."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help(), err=True)
        raise typer.Exit(USAGE)


# typer brings its own click or uses the installed one, by version; both call the base of their errors so.
_CLICK_ERROR: type[Exception] = next(
    base for base in typer.BadParameter.__mro__ if base.__name__ == "ClickException"
)


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
    except (KeyboardInterrupt, typer.Abort):
        return problem.INTERRUPTED
    except problem.CommandError as error:
        return _said(str(error), error.exit_code)
    except WhereError as error:
        return _said(str(error), problem.USAGE)
    except _CLICK_ERROR as error:
        return _said(_usage(error), problem.USAGE)
    except OSError as error:
        return _said(_system(error), problem.USAGE)
    except MemoryError:
        return _said("out of memory", problem.USAGE)
    except Exception as error:
        if "--debug" in given:
            raise
        return _said(_fault(error), problem.INTERNAL)


def _main(arguments: list[str], state: object) -> object:
    from kwsniff.cli.running import app

    if "_KWSNIFF_COMPLETE" in os.environ:
        from kwsniff.cli.startup import make_ready

        make_ready()
    try:
        return typer.main.get_command(app).main(
            arguments, prog_name="kwsniff", standalone_mode=False, obj=state
        )
    except SystemExit as ending:
        # click turns a closed pipe into exit code 1 by itself, even when it isn't standalone.
        if isinstance(ending.__context__, BrokenPipeError):
            raise ending.__context__ from None
        raise


def _forget_stdout() -> None:
    """Point standard output at nothing, so that the flush at interpreter exit finds no closed pipe."""
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, sys.stdout.fileno())
    os.close(devnull)


def _said(message: str, code: int) -> int:
    problem.said(message)
    return code


def _usage(error: Exception) -> str:
    message = str(getattr(error, "format_message", lambda: error)())
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "kwsniff"
    return f"{message.rstrip('.')} (see {command} --help)"


def _system(error: OSError) -> str:
    place = f"{error.filename}: " if error.filename is not None else ""
    return f"{place}{error.strerror or error}"


def _fault(error: Exception) -> str:
    return (
        f"a fault of kwsniff, please report it: {type(error).__name__}: {error} "
        "(kwsniff --debug ... shows the traceback)"
    )
