"""Record the workloads: real clients, tcpdump on a loopback of its own.

    record.py [WORKLOAD ...] [--cache FOLDER] [--force]

The cluster's workloads (cluster-...) run against three nodes of Apache Kafka, the others against librdkafka's
mock cluster. Needs root, tcpdump and confluent-kafka, for the cluster also Java and Maven, for the groups of
hundreds of partitions kafka-python. Writes
FOLDER/NAME.pcap and FOLDER/NAME.json, which tells the broker ports and how it was recorded; then what is made
of recorded ones (NAME-lost-20, NAME-midstream, ...; see variants.py). What is there already is kept, unless
--force is given.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from functools import cache
from pathlib import Path

import cluster
import cluster_record
import damage
import namespace
import variants
from sniffer import Sniffer
from workloads import CLUSTER_WORKLOADS, WHOLE_WORKLOADS, WORKLOADS, ClusterWorkload, Workload

HERE = Path(__file__).parent
SEED = 4


def cache_folder() -> Path:
    return Path(os.environ.get("KWSNIFF_BENCH") or Path.home() / ".cache" / "kwsniff-bench")


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # and end what was started
    usual = [each.name for each in (*WORKLOADS, *CLUSTER_WORKLOADS) if each not in WHOLE_WORKLOADS] + [
        "damaged"
    ]
    names = usual + [workload.name for workload in WHOLE_WORKLOADS]
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "workload",
        nargs="*",
        metavar="WORKLOAD",
        help=f"of {', '.join(names)} (default: those up to damaged)",
    )
    parser.add_argument("--cache", type=Path, default=cache_folder())
    parser.add_argument("--force", action="store_true", help="record again what is there")
    options = parser.parse_args()
    if unknown := set(options.workload) - set(names):
        parser.error(f"no such workload: {', '.join(sorted(unknown))}")
    options.cache.mkdir(parents=True, exist_ok=True)
    make(options.workload or usual, options.cache, force=options.force)


def make(names: list[str], folder: Path, *, force: bool = False) -> None:
    """Record what is missing of these workloads, and make of them what is made of them."""
    missing = [name for name in names if force or not (folder / f"{name}.json").exists()]
    record([workload for workload in WORKLOADS if workload.name in missing], folder)
    record_cluster([workload for workload in CLUSTER_WORKLOADS if workload.name in missing], folder)
    if "damaged" in missing:
        make_damaged(folder)
    for workload in CLUSTER_WORKLOADS:
        if workload.name in names:
            make_variants(workload, folder, force=workload.name in missing)


def record(workloads: list[Workload], folder: Path) -> None:
    if not workloads:
        return
    network = enter_network()
    for workload in workloads:
        about = record_one(workload, folder / f"{workload.name}.pcap")
        _write_about(folder, workload.name, {"about": workload.about, "network": network, **about})


def record_cluster(workloads: list[ClusterWorkload], folder: Path) -> None:
    if not workloads:
        return
    jars = cluster.Jars(folder / "jars")
    jars.fetch()  # before there is no other network
    for workload in workloads:
        network = enter_network(workload.mtu)
        with tempfile.TemporaryDirectory(prefix=f"{workload.name}-", dir=folder) as work:
            about = cluster_record.record(workload, jars, folder, Path(work) / "nodes")
        _write_about(folder, workload.name, {"about": workload.about, "network": network, **about})


@cache
def enter_network(mtu: int = namespace.MTU) -> str:
    """Leave the network of before for one of this MTU."""
    if os.geteuid() != 0:
        raise SystemExit("record.py: recording needs root (tcpdump, a network namespace)")
    return namespace.enter(mtu)


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


def make_variants(workload: ClusterWorkload, folder: Path, *, force: bool) -> None:
    """What is made of a recorded workload and not there yet."""
    paths = {variant: folder / f"{workload.name}-{variant}.pcap" for variant in workload.variants}
    wanted = {name: path for name, path in paths.items() if force or not path.with_suffix(".json").exists()}
    if not wanted:
        return
    about = json.loads((folder / f"{workload.name}.json").read_text())
    variants.make(folder / f"{workload.name}.pcap", wanted)
    for name, path in wanted.items():
        _write_about(folder, path.stem, {**about, "about": f"{workload.name}, {name}"})


def _write_about(folder: Path, name: str, about: dict[str, object]) -> None:
    path = folder / f"{name}.pcap"
    about = {**about, "name": name, "bytes": path.stat().st_size}
    (folder / f"{name}.json").write_text(json.dumps(about, indent=1) + "\n")
    print(json.dumps(about), flush=True)


if __name__ == "__main__":
    main()
