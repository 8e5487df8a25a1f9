"""The tables of writing lines: columns in, bytes out. `Tables` is what every function on lines takes."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

from kwsniff.native.table import BYTES, LONGS, Spec

# fmt: off
SPECS: list[Spec] = [
    Spec(
        "lines",
        "the lines at hand; there is one row",
        row="row to write next", at="bytes of out that hold whole lines",
        commas="commas behind the last column", odd="after ODD: the column that it is about",
    ),
    Spec(
        "columns",
        "a column that has a value in some row",
        kind="NUMBER and so on",
        commas="commas before its values: one, and one for each column without any value before it",
        values="of NUMBER, TIME, DURATION: where its values begin in numbers. Of texts and lists: where it "
        "stands there whether there is one, 0 or NONE; -1: there is one in each row",
        texts="where in ends its texts begin: an offset in text for each, and one behind the last",
        lists="of LIST: where in ends its lists begin: the first text of each, and one behind the last",
        counts="of LIST: where in numbers the number behind each text begins, -1 without",
        between="of LIST with numbers: the character between text and number",
    ),
]
# fmt: on
ARRAYS = {"numbers": LONGS, "ends": LONGS, "text": BYTES, "out": BYTES}
"""Tables without fields."""
Tables: Any = namedtuple("Tables", (*(spec.name for spec in SPECS), *ARRAYS))  # type: ignore[misc]
"""All tables, by name."""

(NUMBER, TIME, DURATION, PLAIN, OWN, TEXT, LIST) = range(7)
"""Kinds of columns: integers; microseconds since 1970; microseconds in thousandths; texts that take no
quotes, kwsniff's own, others; lists of texts."""
NONE = -(1 << 63)
"""Stands for null among numbers."""
(OK, FULL, ODD) = 0, -1, -2
"""What functions return besides positions. FULL: `out` has no room for a line. ODD: a column has a text that
a spreadsheet or a terminal would obey, or may have. Whole lines up to `at` stand then, and `row` is the one
to go on with."""
