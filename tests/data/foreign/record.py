"""Records what is not Kafka: real servers of Debian's packages, and conversations made byte by byte.

    sudo python3 tests/data/foreign/record.py                                   all, a few connections of each
    sudo python3 tests/data/foreign/record.py --connections 200 --out FOLDER    for tests/bench/foreign.py
    sudo python3 tests/data/foreign/record.py NAME ...                          some of them

It needs root, the packages of `packages.txt` (as Debian 12 names them) and those of `requirements.txt` from
PyPI. What is missing is left out. The recording runs in a network namespace of its own, each exchange on a
port of its own, where nothing but loopback exists.
"""

from __future__ import annotations

import argparse
import importlib
import os
import pkgutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import exchanges
from exchanges.stage import EXCHANGES

HERE = Path(__file__).parent
FIRST_PORT = 18_000
MAX_PACKETS = 400_000
SETTLE_SECONDS = 1.5
"""The kernel hands packets over in blocks, the last one a second after it was begun."""
NOBODY_SPOKE = 200

for module in pkgutil.iter_modules(exchanges.__path__):
    importlib.import_module(f"exchanges.{module.name}")


def main() -> int:
    """Parse arguments, enter a network namespace, and record."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="protocols to record (default: all)")
    parser.add_argument("--out", type=Path, default=HERE / "captures", help="folder for the captures")
    parser.add_argument("--connections", type=int, default=3, help="connections of each (default: 3)")
    parser.add_argument("--list", action="store_true", help="list the protocols and end")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.list:
        print("\n".join(sorted(EXCHANGES)))
        return 0
    unknown = set(options.names) - set(EXCHANGES)
    if unknown or os.geteuid():
        parser.error(f"no such protocol: {', '.join(sorted(unknown))}" if unknown else "needs root")
    if not options.inside:
        again = ["unshare", "--net", "--mount", sys.executable, __file__, "--inside", *sys.argv[1:]]
        return subprocess.run(again, check=False).returncode
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    hide_machine()
    options.out.mkdir(parents=True, exist_ok=True)
    chosen = [name for name in sorted(EXCHANGES) if not options.names or name in options.names]
    return sum(not attempt(name, options.out, options.connections) for name in chosen)


def hide_machine() -> None:
    """Take the machine's id away, in this mount namespace alone: some clients tell it to their servers."""
    with tempfile.NamedTemporaryFile("w") as nobody:
        nobody.write(f"{0:032}\n")
        nobody.flush()
        subprocess.run(["mount", "--bind", nobody.name, "/etc/machine-id"], check=True)


def attempt(name: str, out: Path, connections: int) -> bool:
    """Record one protocol; says what went wrong, if anything."""
    began = time.monotonic()
    try:
        size = record(name, out, connections)
    except Exception as error:
        print(f"{name}: left out: {error!r}", flush=True)
        return False
    print(f"{name}: {size} bytes in {time.monotonic() - began:.1f} s", flush=True)
    return True


def record(name: str, out: Path, connections: int) -> int:
    """Record one protocol into `out/NAME.pcap.zst`; returns the size before compression."""
    port = FIRST_PORT + sorted(EXCHANGES).index(name)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "capture.pcap"
        sniffer = subprocess.Popen(
            ["tcpdump", "-Z", "root", "-i", "lo", "-n", "-U", "-B", "32768",
             "-c", str(MAX_PACKETS), "-w", path, "tcp", "port", str(port)], stderr=subprocess.PIPE,
        )  # fmt: skip
        assert sniffer.stderr is not None
        sniffer.stderr.readline()
        time.sleep(0.2)
        try:
            EXCHANGES[name](port, connections)
            time.sleep(SETTLE_SECONDS)
        finally:
            sniffer.terminate()
            told = sniffer.communicate(timeout=10)[1].decode()
        if " 0 packets dropped by kernel" not in " " + told.replace("\n", " "):
            raise RuntimeError(f"packets were dropped: {told.splitlines()[-1]}")
        if path.stat().st_size < NOBODY_SPOKE:
            raise RuntimeError("nobody spoke")
        target = out / f"{name}.pcap.zst"
        subprocess.run(["zstd", "-q", "-12", "-f", path, "-o", target], check=True)
        return path.stat().st_size


if __name__ == "__main__":
    sys.exit(main())
