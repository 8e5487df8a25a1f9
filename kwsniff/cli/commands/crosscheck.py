"""`kwsniff crosscheck`: its options, and what they ask for."""

from __future__ import annotations

import typer

from kwsniff.cli.options import Memory, Paths, Port, Recursive, configured

EXAMPLES = (
    "kwsniff crosscheck trace.pcapng",
    "kwsniff crosscheck trace.pcapng --port 19092",
)


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
