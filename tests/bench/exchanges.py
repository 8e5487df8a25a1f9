"""How far exchanges, which are estimated of TLS without keys, are from the calls that the keys show.

    python -m tests.bench.exchanges CAPTURE.pcapng KEYS [--port P,…]

prints a table of a row for each client id and broker port: calls, of how many request and response are
paired rightly, median and 99th percentile of the latency as estimated and in truth, without calls that wait
on purpose.
`captures/load.py` records client libraries under load.
"""

from __future__ import annotations

import argparse
from collections import Counter
from typing import Any

import pandas as pd
import pyarrow as pa

import kwsniff

COLUMNS = ["event", "api", "client_id", "client_port", "broker_port", "request_packet"]
COLUMNS += ["response_packet", "latency_us"]
WAITS = ("Fetch", "JoinGroup", "SyncGroup")


def table(path: str, keylog: str | None, ports: tuple[int, ...]) -> pd.DataFrame:
    batches = (batch.select(COLUMNS) for batch in kwsniff.events(path, keylog=keylog, ports=ports))
    found = pa.Table.from_batches(batches).to_pandas()
    return found[found.event == ("call" if keylog else "exchange")]


def pairs(rows: pd.DataFrame) -> Counter[Any]:
    packets = rows[["client_port", "request_packet", "response_packet"]].fillna(-1)
    return Counter(packets.itertuples(index=False, name=None))


def figures(estimated: pd.DataFrame, true: pd.DataFrame) -> dict[str, Any]:
    """Of the calls of one client."""
    right = (pairs(estimated) & pairs(true)).total()
    found: dict[str, Any] = {
        "estimated": len(estimated),
        "true": len(true),
        "right": f"{right / len(true):.1%}",
    }
    latencies = (
        estimated[estimated.api == "TLS exchange"].latency_us.dropna() / 1e3,
        true[~true.api.isin(WAITS)].latency_us.dropna() / 1e3,
    )
    for name, quantile in (("median", 0.5), ("p99", 0.99)):
        found[name] = " / ".join(f"{each.quantile(quantile):.2f}" for each in latencies)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("capture")
    parser.add_argument("keys")
    parser.add_argument("--port", default="9093,9193")
    choice = parser.parse_args()
    ports = tuple(map(int, choice.port.split(",")))
    true = table(choice.capture, choice.keys, ports)
    estimated = table(choice.capture, None, ports)
    ends = ["client_port", "broker_port"]
    clients = true.dropna(subset="client_id").groupby(ends).client_id.first()
    for each in (true, estimated):
        each["client"] = clients.reindex(pd.MultiIndex.from_frame(each[ends])).to_numpy()
    rows = {
        key: figures(estimated[(estimated.client == key[0]) & (estimated.broker_port == key[1])], calls)
        for key, calls in true.groupby(["client", "broker_port"])
    }
    print(pd.DataFrame.from_dict(rows, orient="index").to_string())


if __name__ == "__main__":
    main()
