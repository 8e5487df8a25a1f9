"""Looks for calls in captures of what is not Kafka; ends with 1 if there are any.

    sudo python tests/data/foreign/record.py --connections 200 --out FOLDER
    python tests/bench/foreign.py FOLDER [NAME ...]

Each capture is decoded four times: the server's port named by nobody, and taken for a broker's; from the
beginning, and without the handshakes and first messages.
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from kwsniff.config import Config
from kwsniff.run.offline import events
from tests.damage.mutants import packets, write
from tests.foreign import beheaded, segments, server_port

SYN = 2


def calls(path: Path, config: Config) -> Counter[str]:
    """How many calls of each API and status are found."""
    found: Counter[str] = Counter()
    for batch in events([str(path)], config):
        rows = batch.select(["event", "api", "api_version", "status"]).to_pylist()
        found.update(
            f"{row['api']} v{row['api_version']} {row['status']}" for row in rows if row["event"] == "call"
        )
    return found


def settings(path: Path, scratch: Path) -> Iterator[tuple[str, Path, Config]]:
    """The four ways a capture is decoded."""
    link, whole = packets(str(path))
    port = server_port(whole)
    middle = write(scratch / "middle.pcap", link, beheaded(whole))
    for name, file in (("whole", path), ("middle", middle)):
        yield f"{name}, odd port", file, Config()
        yield f"{name}, broker's port", file, Config(ports=(port,))


def connections(path: Path) -> int:
    """How many connections a capture has, by their SYNs."""
    _, whole = packets(str(path))
    return sum(flags == SYN for *_, flags in segments(whole))


def main() -> int:
    folder, *names = sys.argv[1:]
    chosen = [
        path
        for path in sorted(Path(folder).glob("*.pcap*"))
        if not names or path.name.split(".pcap")[0] in names
    ]
    wrong = total = 0
    for path in chosen:
        total += (count := connections(path))
        with tempfile.TemporaryDirectory() as scratch:
            found = {way: calls(file, config) for way, file, config in settings(path, Path(scratch))}
        told = "; ".join(
            f"{way}: {sum(what.values())} ({what.most_common(3)})" for way, what in found.items() if what
        )
        print(f"{path.name.split('.pcap')[0]:20} {count:5} connections  {told or 'no calls'}", flush=True)
        wrong += bool(told)
    print(f"{len(chosen)} protocols, {total} connections: {wrong} protocols with calls")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
