"""Tables as a notebook shows them: the first rows of the columns that matter most."""

from __future__ import annotations

from typing import Any

import pandas as pd

from kwsniff.output.text import printable
from kwsniff.output.units import digits

COLUMNS = (
    *("api", "client_id", "client_ip", "error", "calls", "errors", "duration_sum_us", "queued_sum_us"),
    *("throttled_sum_us", "broker_sum_us", "latency_p50_us", "latency_p99_us", "latency_max_us", "clients"),
)
ROWS = 10


def shown(name: str, frame: pd.DataFrame) -> str:
    """One table as HTML, nothing if it has no rows. Names from the wire are escaped."""
    if not len(frame):
        return ""
    columns = [each for each in COLUMNS if each in frame.columns]
    rows = [[_text(value) for value in row] for row in frame[columns].head(ROWS).to_numpy().tolist()]
    table = pd.DataFrame(rows, columns=columns).to_html(index=False, escape=True)
    more = f"<p>and {len(frame) - ROWS:,} more</p>" if len(frame) > ROWS else ""
    return f"<h4>{name}</h4>{table}{more}"


def _text(value: Any) -> str:
    if pd.isna(value):
        return ""
    if isinstance(value, float):
        return digits(value)
    return f"{value:,}" if isinstance(value, int) else printable(str(value))
