"""Argument parsing and printing."""

from __future__ import annotations

import gc
import sys


def main() -> None:
    """Run the command line; the entry point of the `kwsniff` script."""
    if sys.argv[1:] == ["--version"]:
        from kwsniff import __version__

        print(f"kwsniff {__version__}")
        sys.exit()
    # Importing makes a hundred thousand objects that stay: looking for garbage among them is in vain.
    gc.set_threshold(100_000)
    from kwsniff.cli.running import run

    sys.exit(run())
