"""Three nodes of Apache Kafka, each broker and KRaft controller, on 127.0.0.1 to 127.0.0.3.

The jars come from Maven Central, pinned in `kafka/pom.xml`, and are kept in a work folder. Brokers listen on
9092 (PLAINTEXT) and 9094 (SASL_PLAINTEXT with PLAIN), controllers on 9093.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.bench.measure import ROOT

sys.path.insert(0, str(ROOT / "captures"))

from recording import brokers

KAFKA = Path(__file__).with_name("kafka")
NODES = (1, 2, 3)
BROKER, CONTROLLER, SASL = 9092, 9093, 9094
USER, PASSWORD = "alice", "throw-away-1"
VOTERS = ",".join(f"{node}@127.0.0.{node}:{CONTROLLER}" for node in NODES)
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"


def fetch(jars: Path) -> None:
    """Raises `subprocess.CalledProcessError` when Maven fails."""
    wanted, mark = (KAFKA / "pom.xml").read_bytes(), jars / "pom.xml"
    if not mark.exists() or mark.read_bytes() != wanted:
        command = ["mvn", "-q", "-B", "-f", str(KAFKA / "pom.xml"), "dependency:copy-dependencies"]
        subprocess.run([*command, f"-DoutputDirectory={jars}"], check=True, stdout=sys.stderr)
        mark.write_bytes(wanted)


def java(jars: Path, *arguments: str, heap: str = "768m") -> list[str]:
    """The command line of a Java program with these jars."""
    flags = [f"-Xmx{heap}", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"]
    return ["java", *flags, "-cp", f"{jars}/*", *arguments]


def settings(node: int, folder: Path, sasl: bool) -> dict[str, str]:
    """The properties of one node."""
    host = f"127.0.0.{node}"
    return {
        "process.roles": "broker,controller",
        "node.id": str(node),
        "controller.quorum.voters": VOTERS,
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://{host}:{BROKER},CONTROLLER://{host}:{CONTROLLER},"
        f"SASL_PLAINTEXT://{host}:{SASL}",
        "listener.security.protocol.map": brokers.KAFKA_4["listener.security.protocol.map"],
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
def running(jars: Path, folder: Path, *, sasl: bool = False, logged: bool = False) -> Iterator[str]:
    """Start the nodes; gives the bootstrap addresses once all listen.

    With `logged`, node N writes the requests it handles to `folder`/requests-N.log.
    """
    brokers.fresh(folder)
    port = SASL if sasl else BROKER
    with ExitStack() as stack:
        for node in NODES:
            properties = folder / f"{node}.properties"
            brokers.write_properties(properties, settings(node, folder, sasl))
            storage = ("kafka.tools.StorageTool", "format", "-t", brokers.CLUSTER_ID, "-c", str(properties))
            subprocess.run(java(jars, *storage), check=True, capture_output=True, timeout=120)
        nodes = []
        for node in NODES:
            logging = [
                f"-Dlog4j2.configurationFile={KAFKA / 'log4j2.properties'}",
                f"-Drequests.log={folder / f'requests-{node}.log'}",
                f"-Drequests.level={'debug' if logged else 'off'}",
            ]
            command = java(jars, *logging, "kafka.Kafka", str(folder / f"{node}.properties"))
            nodes.append(stack.enter_context(brokers.running(command, folder / f"{node}.log")))
            # At once: their data are thrown away, and without a quorum they would wait for one.
            stack.callback(nodes[-1].kill)
        brokers.wait_for(port, nodes[0], 90)
        yield ",".join(f"127.0.0.{node}:{port}" for node in NODES)
