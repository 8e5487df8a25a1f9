"""The commands about kwsniff itself and the protocol: their options, and what they ask for."""

from __future__ import annotations

from typing import Annotated

import typer

from kwsniff.cli.options import OUTPUT, Memory, Paths, Port, Recursive, configured

EXAMPLES = {
    "schema": ("kwsniff schema", "kwsniff schema where", "kwsniff schema call -f csv"),
    "protocol": ("kwsniff protocol", "kwsniff protocol Fetch 12"),
    "crosscheck": ("kwsniff crosscheck trace.pcapng", "kwsniff crosscheck trace.pcapng --port 19092"),
    "completion": ("kwsniff completion bash", "kwsniff completion zsh"),
}


def schema(
    part: Annotated[
        str | None,
        typer.Argument(
            metavar="[PART]",
            help="call, anomaly, connection, partitions, resources, status, unanswered_because, closed_by, "
            "security, code or where. Default: everything.",
            show_default=False,
        ),
    ] = None,
    form: Annotated[
        str,
        typer.Option(
            "-f", "--format", metavar="FORMAT", help="text, csv, json or markdown.", rich_help_panel=OUTPUT
        ),
    ] = "text",
) -> None:
    """Print what each column means, and the language of --where.

    For each kind of row, its columns with type, unit and meaning.
    """
    from kwsniff.cli.schema import schema as job

    raise typer.Exit(job(part, form))


def protocol(
    api: Annotated[
        str | None,
        typer.Argument(
            metavar="[API]",
            help="Name or key of an API, name of a data message, or `dump` for everything as JSON Lines.",
            show_default=False,
        ),
    ] = None,
    version: Annotated[
        int | None,
        typer.Argument(metavar="[VERSION]", help="Version to show; default: the newest.", show_default=False),
    ] = None,
) -> None:
    """List all APIs and versions, or show the layout of one."""
    from kwsniff.cli.protocol import show

    raise typer.Exit(show(api, version))


def crosscheck(
    files: Paths, recursive: Recursive = False, port: Port = None, memory: Memory = "512M"
) -> None:
    """Compare with Wireshark's own dissector, message by message.

    Needs tshark and pyshark. Prints per API and version how many messages both saw and agreed on, and the
    differences with packet numbers. Exit code 1 says that there are some in which it is not known who is
    right.
    """
    from kwsniff.cli.arguments import deeper
    from kwsniff.cli.crosscheck import check

    raise typer.Exit(check(deeper(files) if recursive else files, configured(port, memory)))


def completion(
    shell: Annotated[str, typer.Argument(metavar="SHELL", help="bash, zsh or fish.", show_default=False)],
) -> None:
    """Print a script that completes commands in a shell.

    Bash: the line eval "$(kwsniff completion bash)" in ~/.bashrc. Zsh: eval "$(kwsniff completion zsh)" in
    ~/.zshrc, after compinit. Fish: kwsniff completion fish | source, in ~/.config/fish/config.fish.
    """
    from kwsniff.cli.problem import CommandError, suggestion
    from kwsniff.cli.startup import SHELLS, script

    if shell not in SHELLS:
        near = suggestion(shell, SHELLS) or f"; there is {', '.join(SHELLS)}"
        raise CommandError(f"no completion for {shell!r}{near}")
    print(script(shell))
