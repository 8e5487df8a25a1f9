"""Argument parsing and printing."""

from __future__ import annotations

import atexit
import gc
import os
import sys
import threading


def main() -> None:
    """Run the command line; the entry point of the `kwsniff` script."""
    if sys.argv[1:] == ["--version"]:
        from kwsniff import __version__

        print(f"kwsniff {__version__}")
        sys.exit()
    # Threads of NumPy's linear algebra, which nothing here uses, wait busily while all else is loaded.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # Importing makes a hundred thousand objects that stay: looking for garbage among them is in vain.
    gc.set_threshold(100_000)
    from kwsniff.cli.running import run

    _stand_ins()
    code = run()
    if threading.active_count() > 1:
        sys.exit(code)
    # Taking down Arrow, NumPy and all modules piece by piece takes as long as a fifth of a small capture.
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError):  # nobody reads it any more, or it was closed
        pass
    os._exit(code)


def _stand_ins() -> None:
    """Open what was closed of standard input, output and error, so that no file or pipe comes to be in its
    place. The first two fail where they are used; what would be said on standard error is dropped."""
    for name, mode, access in (
        ("stdin", "r", os.O_WRONLY),
        ("stdout", "w", os.O_RDONLY),
        ("stderr", "w", os.O_WRONLY),
    ):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.open(os.devnull, access), mode))  # noqa: SIM115 - for the whole run
