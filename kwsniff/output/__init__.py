"""How everything is told: safe texts, units, tables that fit a width, and files of rows."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def suggestion(name: str, known: Iterable[str]) -> str:
    """`` (did you mean ...?)`` with up to three of `known` that look like `name`, or nothing."""
    by_lower = {candidate.lower(): candidate for candidate in known}
    wanted = name.lower()
    close = difflib.get_close_matches(wanted, by_lower, n=3, cutoff=0.6)
    if not close and len(wanted) > 2:
        close = [candidate for candidate in by_lower if wanted in candidate][:3]
    return f" (did you mean {' or '.join(by_lower[found] for found in close)}?)" if close else ""
