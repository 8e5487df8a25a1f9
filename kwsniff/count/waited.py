"""Which calls waited on purpose: those of which EVENTS say for how long.

`kwsniff.engine.callcolumns` has the rule.
"""

from __future__ import annotations

import pyarrow as pa

from kwsniff.count.coded import Rows
from kwsniff.rows.columns import Mask

FETCHES = (1, 78)
NEEDED = ("waited_us",)


def waited(batch: pa.RecordBatch | Rows) -> Mask:
    """True for each call that waited."""
    calls = batch if isinstance(batch, Rows) else Rows(batch)
    found: Mask = calls.floats("waited_us") > 0  # NaN is not
    return found
