"""`kwsniff completion`: its options, and what they ask for."""

from __future__ import annotations

from typing import Annotated

import typer

EXAMPLES = (
    "kwsniff completion bash",
    "kwsniff completion zsh",
)


def completion(
    shell: Annotated[str, typer.Argument(metavar="SHELL", help="bash, zsh or fish.", show_default=False)],
) -> None:
    """Print a script that completes commands and options in a shell.

    Bash: kwsniff completion bash > ~/.local/share/bash-completion/completions/kwsniff. Zsh: into a file
    _kwsniff in a folder of $fpath. Fish: into ~/.config/fish/completions/kwsniff.fish.
    """
    from kwsniff.cli.problem import CommandError, suggestion
    from kwsniff.cli.shells import SHELLS, script

    if shell not in SHELLS:
        near = suggestion(shell, SHELLS) or f"; there is {', '.join(SHELLS)}"
        raise CommandError(f"no completion for {shell!r}{near}")
    print(script(shell))
