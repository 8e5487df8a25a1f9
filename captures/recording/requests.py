"""What a broker logged of the requests it answered, kept beside a sample to compare with."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

LINE = "Completed request:"


def keep(logs: Iterable[Path], ports: tuple[int, ...], target: Path) -> None:
    """Write the requests that came in on these ports, a line of JSON each, in the order of the answers."""
    kept = [json.dumps(row, separators=(",", ":")) for log in logs for row in rows(log, ports)]
    target.write_bytes(gzip.compress("\n".join([*kept, ""]).encode(), mtime=0))


def rows(log: Path, ports: tuple[int, ...]) -> Iterator[dict[str, Any]]:
    """Both ends, header, request and response as the broker read and wrote them.

    A connection is logged as `127.0.0.1:9092-127.0.0.1:40000-0-3`: broker, client, and two numbers.
    """
    for line in log.read_text(encoding="utf-8").splitlines():
        logged = json.loads(line.removeprefix(LINE))
        broker, client = logged["connection"].split("-")[:2]
        if int(broker.rpartition(":")[2]) in ports:
            parts = {name: logged[name] for name in ("requestHeader", "request", "response")}
            yield {"broker": broker, "client": client, **parts}
