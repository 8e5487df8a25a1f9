"""The job of `kwsniff compare`: one profile of each input, and what differs."""

from __future__ import annotations

import sys
from dataclasses import replace

from kwsniff.answers.compare import Profile, compared
from kwsniff.cli import problem
from kwsniff.cli.answering import check, show, taken
from kwsniff.cli.arguments import Damage
from kwsniff.cli.asked import Asked
from kwsniff.cli.trust import Trust


def compare(asked: Asked, other: str) -> int:
    """Print what differs between the inputs; return the exit code. Raises CommandError."""
    check(asked)
    profiles, damage = [], Damage()
    for name, path in zip("AB", (asked.paths[0], other), strict=True):
        profile, trust = Profile(), Trust(wanted=not asked.quiet)
        for batch in taken(replace(asked, paths=[path]), profile.needs, damage, trust):
            profile.take(batch)
        profiles.append(profile)
        if not asked.quiet:
            print(f"{name}: {path}, {profile.calls:,} calls", file=sys.stderr)
    show(asked, compared(*profiles))
    if damage:
        problem.said(damage.line())
    return problem.DAMAGED if damage else problem.DONE
