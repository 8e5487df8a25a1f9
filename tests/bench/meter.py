"""Runs each command once for all lines of the table that need its figures."""

from __future__ import annotations

import shlex
import sys
from functools import cache
from pathlib import Path

from commands import Capture
from installed import Installed
from measure import MIB, Run, measured, median

Command = tuple[str, ...]
LONGEST = 240
"""Seconds for a rival: where packets are missing, tshark's time grows faster than the capture."""


class Meter:
    """Measures rivals as they are, and kwsniff as it is installed, in its first run and in later ones."""

    def __init__(self, folder: Path, scratch: Path, installed: Installed, rounds: int) -> None:
        self.folder, self.scratch = folder, scratch
        self.ours: dict[Command, Run] = {}
        """The heaviest run of each command of kwsniff."""
        self._installed, self._rounds = installed, rounds
        self.rival, self.first, self.again = cache(self._rival), cache(self._first), cache(self._again)

    def capture(self, name: str) -> Capture:
        return Capture(self.folder / f"{name}.pcap")

    def _rival(self, *command: str) -> Run:
        """The rival's only run, ended when it takes too long."""
        return self._told("rival", command, measured(list(command), limit=LONGEST))

    def _first(self, *arguments: str) -> Run:
        """kwsniff's run after its installation; raises RuntimeError when it fails."""
        self._installed.anew()
        return self._own("first", arguments)

    def _again(self, *arguments: str) -> Run:
        """The median of later runs."""
        self.first(*arguments)
        return median([self._own("again", arguments) for _ in range(self._rounds)])

    def _own(self, what: str, arguments: Command) -> Run:
        run = self._told(what, arguments, self._installed.run(self._installed.command(*arguments)))
        self.ours[arguments] = max(run, self.ours.get(arguments, run), key=lambda each: each.peak)
        return run

    def _told(self, what: str, command: Command, run: Run) -> Run:
        figures = f"{run.seconds:.2f} s, {run.cpu:.2f} CPU s, {run.peak / MIB:.0f} MiB"
        print(f"{what}: {figures}: {shlex.join(command)}", file=sys.stderr, flush=True)
        return run
