"""Brokers of Apache Kafka 4.4, which write a log of the requests they answered."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from recording.brokers import CLUSTER_ID, KAFKA_4, Broker, fresh, running, wait_for, write_properties
from recording.environments import CLIENTS, Environment

OTHER_CLUSTER_ID = "kwsniffSamplesCluster1"

SETTINGS = {
    **KAFKA_4,
    "metric.reporters": "org.apache.kafka.common.metrics.JmxReporter",
    "group.streams.heartbeat.interval.ms": "1000",
    "group.streams.min.heartbeat.interval.ms": "500",
    "group.streams.initial.rebalance.delay.ms": "0",
    "group.streams.topology.description.plugin.class": "Descriptions",
}


def node(
    env: Environment,
    folder: Path,
    values: Mapping[str, str],
    cluster: str,
    users: Sequence[str] = (),
    flags: Sequence[str] = (),
) -> list[str]:
    """Prepare one Apache Kafka 4.4 process; return its command line. Its request log is `requests` there.

    `users` are SCRAM credentials as the storage tool takes them, `flags` are for the Java machine.
    """
    properties = fresh(folder) / "server.properties"
    write_properties(properties, {**SETTINGS, "log.dirs": str(folder / "data"), **values})
    quorum = ["--standalone"] if "broker" in values["process.roles"] else ["--no-initial-controllers"]
    storage = ["kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(properties), *quorum]
    storage += [part for user in users for part in ("--add-scram", user)]
    subprocess.run(env.java("kafka-4.4", *storage), check=True, capture_output=True, timeout=60)
    logging = CLIENTS / "kafka-4.4" / "log4j2.xml"
    logs = [f"-Dlog4j2.configurationFile={logging}", f"-Drequests={folder / 'requests'}"]
    return env.java("kafka-4.4", *logs, *flags, "kafka.Kafka", str(properties))


@contextmanager
def alone(env: Environment, run: Path) -> Iterator[Broker]:
    """Start one Apache Kafka 4.4 process, broker (9092) and KRaft controller, after a second controller that
    registered and ended (node 2)."""
    quorum = {"controller.quorum.bootstrap.servers": "127.0.0.1:19093"}
    both = {
        **quorum,
        "process.roles": "broker,controller",
        "node.id": "1",
        "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:19093",
    }
    controller = {
        **quorum,
        "process.roles": "controller",
        "node.id": "2",
        "listeners": "CONTROLLER://127.0.0.1:19094",
    }
    command = node(env, run / "node-1", both, CLUSTER_ID)
    with running(command, run / "node-1" / "log") as process:
        wait_for(9092, process)
        command = node(env, run / "node-2", controller, CLUSTER_ID)
        with running(command, run / "node-2" / "log") as second:
            wait_for(19094, second)
            time.sleep(5)
        time.sleep(1)
        log = (run / "node-1" / "requests",)
        yield Broker("Apache Kafka", "4.4.0", "127.0.0.1:9092", (9092,), requests=log)


@contextmanager
def misleading(env: Environment, run: Path) -> Iterator[Broker]:
    """Start two clusters of Apache Kafka 4.4, whose first (9093) calls the second's address (9092) its own."""
    with ExitStack() as stack:
        for port, cluster in ((9093, CLUSTER_ID), (9092, OTHER_CLUSTER_ID)):
            folder = run / f"node-{port}"
            controller = f"127.0.0.1:{port + 10000}"
            values = {
                "process.roles": "broker,controller",
                "node.id": "1",
                "controller.quorum.bootstrap.servers": controller,
                "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://{controller}",
                "advertised.listeners": "PLAINTEXT://127.0.0.1:9092",
            }
            command = node(env, folder, values, cluster)
            wait_for(port, stack.enter_context(running(command, folder / "log")))
        time.sleep(1)
        logs = tuple(run / f"node-{port}" / "requests" for port in (9092, 9093))
        extra = {"MISLEADING": "127.0.0.1:9093"}
        yield Broker("Apache Kafka", "4.4.0", "127.0.0.1:9092", (9092, 9093), extra, requests=logs)
