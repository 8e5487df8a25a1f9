"""Three nodes of Apache Kafka, each broker and KRaft controller, on 127.0.0.1 to 127.0.0.3.

The jars come from Maven Central, pinned in `kafka/pom.xml`, and are kept in a work folder. A node is ended by
its process id. Brokers listen on 9092 (PLAINTEXT) and 9094 (SASL_PLAINTEXT with PLAIN), controllers on 9093.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

HERE = Path(__file__).resolve().parent
POM = HERE / "kafka" / "pom.xml"
LOGGING = HERE / "kafka" / "log4j2.properties"
NODES = (1, 2, 3)
BROKER, CONTROLLER, SASL = 9092, 9093, 9094
USER, PASSWORD = "alice", "throw-away-1"
CLUSTER_ID = "kwsniffBenchCluster000"
LISTENING = "0A"
VOTERS = ",".join(f"{node}@127.0.0.{node}:{CONTROLLER}" for node in NODES)
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"


class Jars:
    """The jars of `kafka/pom.xml`, fetched once into `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def fetch(self) -> None:
        """Raises `subprocess.CalledProcessError` when Maven fails."""
        mark = self.folder / "pom.xml"
        if mark.exists() and mark.read_bytes() == POM.read_bytes():
            return
        command = ["mvn", "-q", "-B", "-f", str(POM), "dependency:copy-dependencies"]
        subprocess.run([*command, f"-DoutputDirectory={self.folder}"], check=True, stdout=sys.stderr)
        mark.write_bytes(POM.read_bytes())

    def java(self, *arguments: str, heap: str = "768m") -> list[str]:
        """The command line of a Java program with these jars."""
        flags = [f"-Xmx{heap}", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"]
        return ["java", *flags, "-cp", f"{self.folder}/*", *arguments]


def settings(node: int, folder: Path, sasl: bool) -> dict[str, str]:
    """The properties of one node."""
    host = f"127.0.0.{node}"
    return {
        "process.roles": "broker,controller",
        "node.id": str(node),
        "controller.quorum.voters": VOTERS,
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://{host}:{BROKER},CONTROLLER://{host}:{CONTROLLER},SASL_PLAINTEXT://{host}:{SASL}",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,"
        "SASL_PLAINTEXT:SASL_PLAINTEXT",
        "inter.broker.listener.name": "SASL_PLAINTEXT" if sasl else "PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": f'{PLAIN} username="{USER}" '
        f'password="{PASSWORD}" user_{USER}="{PASSWORD}";',
        "log.dirs": str(folder / f"data-{node}"),
        "default.replication.factor": "3",
        "min.insync.replicas": "2",
        "offsets.topic.replication.factor": "3",
        "offsets.topic.num.partitions": "6",
        "transaction.state.log.replication.factor": "3",
        "transaction.state.log.min.isr": "2",
        "group.initial.rebalance.delay.ms": "500",
        # The system's own size of receive buffers, so that thousands of small requests fit.
        "socket.receive.buffer.bytes": "-1",
        "num.network.threads": "2",
        "num.io.threads": "4",
        "log.segment.bytes": str(128 << 20),
        "log.cleaner.enable": "false",
    }


@contextmanager
def running(jars: Jars, folder: Path, *, sasl: bool = False, logged: bool = False) -> Iterator[list[str]]:
    """Start the nodes; gives the bootstrap addresses once all listen.

    With `logged`, node N writes the requests it handles to `folder`/requests-N.log.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for node in NODES:
        values = settings(node, folder, sasl)
        (folder / f"{node}.properties").write_text(
            "".join(f"{key}={value}\n" for key, value in values.items())
        )
        format_storage(jars, folder / f"{node}.properties")
    with ExitStack() as stack:
        nodes = [stack.enter_context(_node(jars, folder, node, logged)) for node in NODES]
        port = SASL if sasl else BROKER
        for node, process in zip(NODES, nodes, strict=True):
            _wait_for(node, port, process)
        yield [f"127.0.0.{node}:{port}" for node in NODES]


def format_storage(jars: Jars, properties: Path) -> None:
    command = jars.java("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(properties))
    subprocess.run(command, check=True, capture_output=True, timeout=120)


@contextmanager
def _node(jars: Jars, folder: Path, node: int, logged: bool) -> Iterator[subprocess.Popen[bytes]]:
    logging = [
        f"-Dlog4j2.configurationFile={LOGGING}",
        f"-Drequests.log={folder / f'requests-{node}.log'}",
        f"-Drequests.level={'debug' if logged else 'off'}",
    ]
    command = jars.java(*logging, "kafka.Kafka", str(folder / f"{node}.properties"))
    with (folder / f"{node}.log").open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)
    try:
        yield process
    finally:  # at once: its data are thrown away, and without a quorum it would wait for one
        process.kill()
        process.wait()


def end(process: subprocess.Popen[bytes], seconds: float = 15) -> None:
    """Ask a process to end, and end it for certain when it does not."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_for(node: int, port: int, process: subprocess.Popen[bytes], seconds: float = 90) -> None:
    """Until it listens, read from the kernel's table: a trial connection would be in the recording."""
    wanted = f"{node:02X}00007F:{port:04X}"
    wanted_6 = f"0000000000000000FFFF0000{wanted}"
    deadline = time.monotonic() + seconds
    while not _listening({wanted, wanted_6}):
        if process.poll() is not None:
            raise SystemExit(f"node {node} ended with status {process.returncode}")
        if time.monotonic() > deadline:
            raise SystemExit(f"node {node} does not listen on {port} after {seconds} s")
        time.sleep(0.2)


def _listening(wanted: set[str]) -> bool:
    lines = [
        line for table in ("tcp", "tcp6") for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]
    ]
    return any(line.split()[1] in wanted and line.split()[3] == LISTENING for line in lines)
