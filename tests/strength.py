"""How often the tests try the same thing: enough by default, everything with `make test-all`.

`KWSNIFF_TESTS=all` asks for everything. By default a property gets a part of its examples and a test marked
`one_of` a part of its cases; what is left out differs from what runs only in the sample, the damage or the
random numbers.
"""

from __future__ import annotations

import os

ALL = os.environ.get("KWSNIFF_TESTS") == "all"
PART = 5
"""One of so many examples is tried by default."""
LEAST = 10


def examples(everything: int) -> int:
    """How many examples a property gets that has `everything` in a full run."""
    return everything if ALL else min(everything, max(everything // PART, LEAST))
