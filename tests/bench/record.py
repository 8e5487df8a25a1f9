"""Record the workloads: real clients, tcpdump on a loopback of its own.

    python -m tests.bench.record [WORKLOAD ...] [--cache FOLDER] [--force]

The cluster's workloads (cluster-...) run against three nodes of Apache Kafka, the others against librdkafka's
mock cluster. Needs root, tcpdump and confluent-kafka, for the cluster also Java and Maven. Writes
FOLDER/NAME.pcap and FOLDER/NAME.json, which tells the broker ports and how it was recorded; then what is made
of recorded ones (NAME-lost-20, NAME-midstream, ...; see variants.py). What is there already is kept, unless
--force is given.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from tests.bench import cluster, namespace, variants
from tests.bench.load import BULK_TOPICS, PARTITIONS, QUIET_TOPICS, SMALL_TOPICS
from tests.bench.measure import CACHE
from tests.bench.workloads import WORKLOADS, Workload

SEED = 4
LONGEST = 400  # seconds
KERNEL_BUFFER_KIB = 512 * 1024
SECURITY = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.username": cluster.USER,
    "sasl.password": cluster.PASSWORD,
}


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # and end what was started
    made = {f"{name}-{variant}": name for name, each in WORKLOADS.items() for variant in each.variants}
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("workload", nargs="*", help=f"of {', '.join(WORKLOADS)} (default: all)")
    parser.add_argument("--cache", type=Path, default=CACHE)
    parser.add_argument("--force", action="store_true", help="record again what is there")
    options = parser.parse_args()
    wanted = [made.get(name, name) for name in options.workload or WORKLOADS]
    if unknown := set(wanted) - set(WORKLOADS):
        parser.error(f"no such workload: {', '.join(sorted(unknown))}")
    options.cache.mkdir(parents=True, exist_ok=True)
    for name in dict.fromkeys(wanted):
        missing = options.force or not (options.cache / f"{name}.json").exists()
        if missing:
            record(WORKLOADS[name], options.cache)
        make_variants(WORKLOADS[name], options.cache, force=missing)


def record(workload: Workload, folder: Path) -> None:
    """Write `folder`/NAME.pcap, and NAME-requests.log if wanted.

    Raises SystemExit when a broker or a client ends by itself, or when the kernel dropped packets.
    """
    from confluent_kafka import libversion

    if not workload.mock:
        cluster.fetch(folder / "jars")  # before there is no other network
    network, began = enter_network(), time.monotonic()
    partial = folder / f"{workload.name}.partial"
    with tempfile.TemporaryDirectory(prefix=f"{workload.name}-", dir=folder) as work:
        recorder = recorded_mock if workload.mock else recorded_cluster
        ports = recorder(workload, partial, folder, Path(work) / "nodes")
    partial.rename(folder / f"{workload.name}.pcap")
    client = "Apache Kafka 4.3.0" if workload.java else f"librdkafka {libversion()[0]}"
    seconds = round(time.monotonic() - began, 1)
    about = {"about": workload.about, "network": network, "ports": ports, "client": client}
    write_about(folder, workload.name, {**about, "seconds": seconds})


@cache
def enter_network() -> str:
    if os.geteuid() != 0:
        raise SystemExit("record.py: recording needs root (tcpdump, a network namespace)")
    return namespace.enter()


def recorded_mock(workload: Workload, partial: Path, folder: Path, work: Path) -> list[int]:
    from confluent_kafka import Producer

    mock = Producer({"bootstrap.servers": "mock", "test.mock.num.brokers": workload.mock})
    for topic, _ in workload.topics:
        mock.list_topics(topic, timeout=10)  # makes it
    brokers = mock.list_topics(timeout=10).brokers.values()
    ports = sorted(broker.port for broker in brokers)
    bootstrap = ",".join(f"{broker.host}:{broker.port}" for broker in brokers)
    work.mkdir()
    with sniffing(partial, ports):
        run_clients(workload, folder, bootstrap, work)
    return ports


def recorded_cluster(workload: Workload, partial: Path, folder: Path, work: Path) -> list[int]:
    ports = [cluster.SASL if workload.sasl else cluster.BROKER, cluster.CONTROLLER]
    nodes = cluster.running(folder / "jars", work, sasl=workload.sasl, logged=workload.logged)
    with sniffing(partial, ports) as stop, nodes as bootstrap:
        make_topics(bootstrap, SECURITY if workload.sasl else {})
        run_clients(workload, folder, bootstrap, work)
        if workload.logged:  # now, so that the capture has all that the log has
            with (folder / f"{workload.name}-requests.log").open("wb") as out:
                for node in cluster.NODES:
                    with (work / f"requests-{node}.log").open("rb") as log:
                        shutil.copyfileobj(log, out)
        time.sleep(1)  # for the last answers
        stop.send_signal(signal.SIGINT)
    return ports


@contextmanager
def sniffing(path: Path, ports: list[int]) -> Iterator[subprocess.Popen[str]]:
    """tcpdump on loopback, ended at the end at the latest."""
    command = ["nice", "-n", "-10", "tcpdump", "-Z", "root", "-i", "lo", "-n", "-s", "0", "-w", str(path)]
    wanted = "tcp and (" + " or ".join(f"port {port}" for port in ports) + ")"
    command += ["-B", str(KERNEL_BUFFER_KIB), wanted]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    if not any("listening on" in line for line in iter(process.stderr.readline, "")):
        raise SystemExit(f"tcpdump did not start: {' '.join(command)}")
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    found = re.search(r"([1-9]\d*) packets? dropped by kernel", said)
    if found:
        raise SystemExit(f"record.py: the kernel dropped {found[1]} packets of {path.stem}")


def make_topics(bootstrap: str, security: dict[str, str]) -> None:
    """Once all brokers are known, make the topics, replicated to all."""
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": bootstrap, "client.id": "setup", **security})
    deadline = time.monotonic() + 60
    while len(admin.list_topics(timeout=20).brokers) < len(cluster.NODES) and time.monotonic() < deadline:
        time.sleep(0.5)
    wanted = [NewTopic(topic, PARTITIONS, 3) for topic in SMALL_TOPICS + QUIET_TOPICS + BULK_TOPICS]
    for made in admin.create_topics(wanted).values():
        made.result(60)
    time.sleep(1)


def run_clients(workload: Workload, folder: Path, bootstrap: str, work: Path) -> None:
    """Run the workload's processes until enough packets went over loopback; end them, all at once."""
    before, deadline = packets_on_loopback(), time.monotonic() + LONGEST
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for number, command in enumerate(commands(workload, folder / "jars", bootstrap)):
            with (work / f"client-{number}.log").open("wb") as log:
                processes.append(subprocess.Popen(command, stdout=log, stderr=log))
        while packets_on_loopback() < before + workload.packets and time.monotonic() < deadline:
            for process in processes:
                if process.poll() is not None:
                    raise SystemExit(f"record.py: a client ended by itself: {process.args!r}")
            time.sleep(0.1)
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            cluster.brokers.end(process, 30)


def commands(workload: Workload, jars: Path, bootstrap: str) -> Iterator[list[str]]:
    security = json.dumps(SECURITY if workload.sasl else {})
    for number, role in enumerate(workload.roles):
        yield [sys.executable, "-m", "tests.bench.load", role, bootstrap, str(SEED + number), security]
    for main, *arguments in workload.java:
        yield cluster.java(jars, main, "--bootstrap-server", bootstrap, *arguments, heap="256m")


def packets_on_loopback() -> int:
    """So many went over this namespace's loopback until now."""
    lines = Path("/proc/self/net/dev").read_text().splitlines()
    return int(next(line for line in lines if line.strip().startswith("lo:")).split()[2])


def make_variants(workload: Workload, folder: Path, *, force: bool) -> None:
    """What is made of a recorded workload and not there yet."""
    paths = {variant: folder / f"{workload.name}-{variant}.pcap" for variant in workload.variants}
    wanted = {name: path for name, path in paths.items() if force or not path.with_suffix(".json").exists()}
    if wanted:
        about = json.loads((folder / f"{workload.name}.json").read_text())
        variants.make(folder / f"{workload.name}.pcap", wanted)
        for name, path in wanted.items():
            write_about(folder, path.stem, {**about, "about": f"{workload.name}, {name}"})


def write_about(folder: Path, name: str, about: dict[str, object]) -> None:
    about = {**about, "name": name, "bytes": (folder / f"{name}.pcap").stat().st_size}
    (folder / f"{name}.json").write_text(json.dumps(about, indent=1) + "\n")
    print(json.dumps(about), flush=True)


if __name__ == "__main__":
    main()
