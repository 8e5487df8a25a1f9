"""Record the workloads: real clients against librdkafka's mock cluster, tcpdump on a loopback of its own.

    record.py [WORKLOAD ...] [--cache FOLDER] [--force]

Needs root, tcpdump and confluent-kafka. Writes FOLDER/NAME.pcap and FOLDER/NAME.json, which tells the broker
ports and how it was recorded. What is there already is kept, unless --force is given.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import damage
import namespace
from sniffer import Sniffer
from workloads import WORKLOADS, Workload

HERE = Path(__file__).parent
SEED = 4


def cache_folder() -> Path:
    return Path(os.environ.get("KWSNIFF_BENCH") or Path.home() / ".cache" / "kwsniff-bench")


def main() -> None:
    names = [workload.name for workload in WORKLOADS] + ["damaged"]
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("workload", nargs="*", metavar="WORKLOAD", help=f"of {', '.join(names)} (default: all)")
    parser.add_argument("--cache", type=Path, default=cache_folder())
    parser.add_argument("--force", action="store_true", help="record again what is there")
    options = parser.parse_args()
    if unknown := set(options.workload) - set(names):
        parser.error(f"no such workload: {', '.join(sorted(unknown))}")
    options.cache.mkdir(parents=True, exist_ok=True)
    missing = [
        name
        for name in options.workload or names
        if options.force or not (options.cache / f"{name}.json").exists()
    ]
    record([workload for workload in WORKLOADS if workload.name in missing], options.cache)
    if "damaged" in missing:
        make_damaged(options.cache)


def record(workloads: list[Workload], folder: Path) -> None:
    if not workloads:
        return
    if os.geteuid() != 0:
        raise SystemExit("record.py: recording needs root (tcpdump, a network namespace)")
    network = namespace.enter()
    for workload in workloads:
        about = record_one(workload, folder / f"{workload.name}.pcap")
        _write_about(folder, workload.name, {"about": workload.about, "network": network, **about})


def record_one(workload: Workload, path: Path) -> dict[str, object]:
    """Run the workload's clients while tcpdump writes `path`; says what came of it."""
    from confluent_kafka import Producer, libversion

    cluster = Producer({"bootstrap.servers": "mock", "test.mock.num.brokers": workload.brokers})
    for topic in workload.topics:
        cluster.list_topics(topic, timeout=10)  # makes it
    brokers = cluster.list_topics(timeout=10).brokers.values()
    ports = sorted(broker.port for broker in brokers)
    bootstrap = ",".join(f"{broker.host}:{broker.port}" for broker in brokers)
    partial = path.with_suffix(".partial")
    start = time.monotonic()
    clients: list[subprocess.Popen[bytes]] = []
    try:
        with Sniffer(partial, ports, packets=workload.packets) as sniffer:
            for number, role in enumerate(workload.roles):
                command = [sys.executable, str(HERE / "clients.py"), role, bootstrap, str(SEED + number)]
                clients.append(subprocess.Popen(command, stderr=subprocess.DEVNULL))
            sniffer.wait(seconds=workload.seconds, size=workload.size, healthy=lambda: _check(clients))
    finally:
        _stop(clients)
    partial.rename(path)
    return {
        "ports": ports,
        "client": f"librdkafka {libversion()[0]}",
        "seconds": round(time.monotonic() - start, 1),
        "dropped_by_kernel": sniffer.dropped,
    }


def _check(clients: list[subprocess.Popen[bytes]]) -> None:
    for client in clients:
        if client.poll() is not None:
            raise SystemExit(f"record.py: a client ended by itself: {client.args!r}")


def _stop(clients: list[subprocess.Popen[bytes]]) -> None:
    for client in clients:
        client.terminate()
    for client in clients:
        try:
            client.wait(timeout=10)
        except subprocess.TimeoutExpired:
            client.kill()
            client.wait()


def make_damaged(folder: Path) -> None:
    source = folder / "chatty.json"
    if not source.exists():
        raise SystemExit("record.py: damaged is made of chatty: record that first")
    about = json.loads(source.read_text())
    done = damage.damage(folder / "chatty.pcap", folder / "damaged.pcap")
    about |= {"about": f"chatty with {done.lost} packets lost and {done.swapped} swapped with the next"}
    _write_about(folder, "damaged", about)


def _write_about(folder: Path, name: str, about: dict[str, object]) -> None:
    path = folder / f"{name}.pcap"
    about = {"name": name, **about, "bytes": path.stat().st_size}
    (folder / f"{name}.json").write_text(json.dumps(about, indent=1) + "\n")
    print(json.dumps(about), flush=True)


if __name__ == "__main__":
    main()
