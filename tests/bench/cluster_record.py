"""Record one workload of the three-node cluster: tcpdump first, then the brokers, then the clients."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import cluster
from load import BULK_TOPICS, PARTITIONS, QUIET_TOPICS, SMALL_TOPICS
from sniffer import Sniffer
from workloads import ClusterWorkload

HERE = Path(__file__).resolve().parent
SEED = 4
LONGEST = 400  # seconds
LOG = "requests.log"
SECURITY = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.username": cluster.USER,
    "sasl.password": cluster.PASSWORD,
}


def record(workload: ClusterWorkload, jars: cluster.Jars, folder: Path, work: Path) -> dict[str, object]:
    """Write `folder`/NAME.pcap, and NAME-requests.log if wanted; says what came of it.

    Raises SystemExit when a broker or a client ends by itself, or when the kernel dropped packets.
    """
    partial = folder / f"{workload.name}.partial"
    ports = [cluster.SASL if workload.sasl else cluster.BROKER, cluster.CONTROLLER]
    start = time.monotonic()
    try:
        _record(workload, jars, partial, work, ports)
        if workload.logged:
            (work / LOG).rename(folder / f"{workload.name}-requests.log")
        partial.rename(folder / f"{workload.name}.pcap")
    finally:
        partial.unlink(missing_ok=True)
    seconds = round(time.monotonic() - start, 1)
    return {"ports": ports, "client": client(workload), "seconds": seconds, "dropped_by_kernel": 0}


def _record(
    workload: ClusterWorkload, jars: cluster.Jars, partial: Path, work: Path, ports: list[int]
) -> None:
    before = packets_on_loopback()
    with (
        Sniffer(partial, ports) as sniffer,
        cluster.running(jars, work, sasl=workload.sasl, logged=workload.logged) as bootstrap,
    ):
        make_topics(bootstrap, SECURITY if workload.sasl else {}, workload.topics)
        with clients(workload, jars, bootstrap, work) as processes:
            wait(processes, before + workload.packets)
        if workload.logged:  # now, so that the capture has all that the log has
            join_logs(work, work / LOG)
        time.sleep(1)  # for the last answers
        sniffer.stop()
    if sniffer.dropped:
        raise SystemExit(f"record.py: the kernel dropped {sniffer.dropped} packets of {workload.name}")


def client(workload: ClusterWorkload) -> str:
    from confluent_kafka import libversion

    return "Apache Kafka 4.3.0" if workload.java else f"librdkafka {libversion()[0]}"


def packets_on_loopback() -> int:
    """So many went over this namespace's loopback until now."""
    lines = Path("/proc/self/net/dev").read_text().splitlines()
    return int(next(line for line in lines if line.strip().startswith("lo:")).split()[2])


def make_topics(bootstrap: list[str], security: dict[str, str], topics: tuple[tuple[str, int], ...]) -> None:
    """Once all brokers are known, make the topics, replicated to all."""
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": ",".join(bootstrap), "client.id": "setup", **security})
    deadline = time.monotonic() + 60
    while len(admin.list_topics(timeout=20).brokers) < len(bootstrap) and time.monotonic() < deadline:
        time.sleep(0.5)
    usual = [(topic, PARTITIONS) for topic in SMALL_TOPICS + QUIET_TOPICS + BULK_TOPICS]
    wanted = [NewTopic(topic, partitions, 3) for topic, partitions in topics or usual]
    for made in admin.create_topics(wanted).values():
        made.result(60)
    time.sleep(1)


@contextmanager
def clients(
    workload: ClusterWorkload, jars: cluster.Jars, bootstrap: list[str], work: Path
) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Start the workload's processes; end them, all at once, by their ids."""
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for number, command in enumerate(commands(workload, jars, ",".join(bootstrap))):
            with (work / f"client-{number}.log").open("wb") as log:
                processes.append(subprocess.Popen(command, stdout=log, stderr=log))
        yield processes
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            cluster.end(process, 30)


def commands(workload: ClusterWorkload, jars: cluster.Jars, bootstrap: str) -> Iterator[list[str]]:
    security = json.dumps(SECURITY if workload.sasl else {})
    for number, role in enumerate(workload.roles):
        yield [sys.executable, str(HERE / "load.py"), role, bootstrap, str(SEED + number), security]
    for main, *arguments in workload.java:
        yield jars.java(main, "--bootstrap-server", bootstrap, *arguments, heap="256m")


def wait(processes: list[subprocess.Popen[bytes]], packets: int) -> None:
    """Until so many packets went over loopback, or the time is up."""
    deadline = time.monotonic() + LONGEST
    while packets_on_loopback() < packets and time.monotonic() < deadline:
        for process in processes:
            if process.poll() is not None:
                raise SystemExit(f"record.py: a client ended by itself: {process.args!r}")
        time.sleep(0.1)


def join_logs(work: Path, target: Path) -> None:
    """The request logs of all nodes, one after the other."""
    with target.open("wb") as out:
        for node in cluster.NODES:
            with (work / f"requests-{node}.log").open("rb") as log:
                shutil.copyfileobj(log, out)
