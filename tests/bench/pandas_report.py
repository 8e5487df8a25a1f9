"""What one would do without kwsniff: tshark's six columns into pandas, requests paired with responses, and
latencies and errors by API. Run as `python pandas_report.py COLUMNS.tsv`."""

from __future__ import annotations

import sys

import pandas as pd

NAMES = ["time", "stream", "api", "version", "correlation_id", "error"]


def main() -> None:
    rows = pd.read_csv(sys.argv[1], sep="\t", names=NAMES, dtype=str)
    # A packet with several messages has several values in a field; the first one has to do.
    rows = rows.assign(**{name: rows[name].str.split(",").str[0] for name in NAMES[2:]})
    rows["time"] = rows["time"].astype(float)
    key = ["stream", "correlation_id"]
    first, second = rows[~rows.duplicated(key)], rows[rows.duplicated(key)].drop_duplicates(key)
    calls = first.merge(second, on=key, suffixes=("", "_response"))
    calls["latency"] = calls["time_response"] - calls["time"]
    print(calls.groupby("api")["latency"].describe(percentiles=[0.5, 0.9, 0.95, 0.99]).to_string())
    print(calls["error_response"].value_counts().to_string())


if __name__ == "__main__":
    main()
