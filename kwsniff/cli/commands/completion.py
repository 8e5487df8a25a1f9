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
