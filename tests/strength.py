"""How often the tests try the same thing: enough by default, everything with `make test-all`.

`KWSNIFF_TESTS=all` asks for everything. By default

- a property gets a part of its examples and a test marked `one_of` a part of its cases, as do loops that ask
  for `ALL`; what is left out differs from what runs only in the sample, the damage or the random numbers;
- kernels run compiled. Interpreted ones are held against the golden events of one sample in three, against
  compiled ones on damage, attacks and snapshots, and with every index checked in the smallest tables;
- tests marked `costly` wait for `.ci/run`, which has them with the other marked ones: each needs something
  that takes a core a minute to make for it alone. Of what they show the default run has the cheaper half:
  Spark in one session, with runs that break off and a stream that is ended; indexes checked in interpreted
  kernels.

`make test-all` has all cases, all examples and the costly ones.
"""

from __future__ import annotations

import os

ALL = os.environ.get("KWSNIFF_TESTS") == "all"
PART = 8
"""One of so many examples is tried by default."""
LEAST = 10


def examples(everything: int) -> int:
    """How many examples a property gets that has `everything` in a full run."""
    return everything if ALL else min(everything, max(everything // PART, LEAST))
