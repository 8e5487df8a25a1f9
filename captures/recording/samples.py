"""The list of samples: which broker, which clients, how captured, and what each shows."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from recording import brokers
from recording.brokers import Broker
from recording.environments import CLIENTS, Environment

Start = Callable[[Environment, Path], AbstractContextManager[Broker]]


@dataclass(frozen=True)
class Client:
    """One client process: `kind` is python, node or a Java release; `script` lies in `captures/clients`."""

    kind: str
    script: str
    arguments: tuple[str, ...] = ()

    def command(self, env: Environment) -> list[str]:
        """Return the command line."""
        script = str(CLIENTS / self.script)
        if self.kind == "python":
            return [str(env.python), script, *self.arguments]
        if self.kind == "node":
            return ["node", script, *self.arguments]
        return env.java(self.kind, script, *self.arguments)


@dataclass(frozen=True)
class Sample:
    """One recording."""

    name: str
    shows: str
    start: Start
    clients: tuple[Client, ...]
    file: str
    tool: str = "dumpcap"
    interface: str = "lo"
    snaplen: int | None = None
    rotate: str = ""
    compress: str = ""
    before: tuple[Client, ...] = ()
    from_start: bool = False
    cut_after: float | None = None


def python(script: str, *arguments: str) -> Client:
    """Return a Python client."""
    return Client("python", script, arguments)


SAMPLES = (
    Sample(
        "mock-produce",
        "librdkafka to its mock cluster of 3 brokers on odd ports: produce with none, gzip, snappy, lz4, zstd and "
        "acks 0, 1, all, an idempotent producer, fetch of everything",
        brokers.mock,
        (python("librdkafka_produce.py"),),
        "mock-produce.pcapng",
    ),
    Sample(
        "librdkafka-produce",
        "librdkafka to Apache Kafka 4.3: produce with all codecs and acks, fetch with topic ids and fetch sessions",
        brokers.kafka_4,
        (python("librdkafka_produce.py"),),
        "librdkafka-produce.pcapng",
    ),
    Sample(
        "librdkafka-transactions",
        "transactions committed and aborted, offsets in a transaction, a fenced producer, control batches, "
        "aborted transactions in Fetch",
        brokers.kafka_4,
        (python("librdkafka_transactions.py"),),
        "librdkafka-transactions.pcap",
        tool="tcpdump",
    ),
    Sample(
        "librdkafka-groups",
        "consumer groups, two members joining and leaving: range, cooperative-sticky, static membership, KIP-848",
        brokers.kafka_4,
        (python("librdkafka_groups.py"),),
        "librdkafka-groups.pcapng",
        interface="any",
    ),
    Sample(
        "librdkafka-admin",
        "admin calls: topics, partitions, configs, ACLs, SCRAM users, offsets, groups, leader election, and refusals",
        brokers.kafka_4,
        (python("librdkafka_admin.py"),),
        "librdkafka-admin.pcapng",
    ),
    Sample(
        "librdkafka-errors",
        "unknown and invalid topics, a record too large, offset out of range, a refused transaction timeout",
        brokers.kafka_4,
        (python("librdkafka_errors.py"),),
        "librdkafka-errors.pcap",
        tool="tcpdump",
        interface="any",
    ),
    Sample(
        "mock-errors",
        "injected errors, closed connections and late answers of the mock cluster, retries, on odd ports",
        lambda env, run: brokers.mock(env, run, "--errors", "--rtt", "40"),
        (python("librdkafka_mock_errors.py"),),
        "mock-errors.pcap",
        tool="tcpdump",
    ),
    Sample(
        "kafka-python-tansu",
        "kafka-python to Tansu: topics, all codecs and acks, a group whose second member joins and leaves",
        brokers.tansu,
        (python("kafka_python_client.py"),),
        "kafka-python-tansu.pcap",
        tool="tcpdump",
        interface="any",
    ),
    Sample(
        "kafka-python-kafka",
        "kafka-python to Apache Kafka 4.3: the same as to Tansu",
        brokers.kafka_4,
        (python("kafka_python_client.py"),),
        "kafka-python-kafka.pcapng",
    ),
    Sample(
        "aiokafka-kafka",
        "aiokafka to Apache Kafka 4.3: all codecs and acks, transactions committed and aborted, a group of two",
        brokers.kafka_4,
        (python("aiokafka_client.py"),),
        "aiokafka-kafka.pcapng.gz",
        interface="any",
        compress="gz",
    ),
    Sample(
        "kafkajs-kafka",
        "KafkaJS to Apache Kafka 4.3: codecs and acks, transactions, a group of two, admin calls, errors",
        brokers.kafka_4,
        (Client("node", "kafkajs_client.js", ("--transactions",)),),
        "kafkajs-kafka.pcap.zst",
        tool="tcpdump",
        compress="zst",
    ),
    Sample(
        "kafkajs-tansu",
        "KafkaJS to Tansu on port 19092: codecs and acks, a group of two, admin calls the broker may not know",
        lambda env, run: brokers.tansu(env, run, 19092),
        (Client("node", "kafkajs_client.js"),),
        "kafkajs-tansu.pcapng",
    ),
    Sample(
        "java-groups",
        "the Java client of Apache Kafka 4.3: Produce 13 and Fetch with topic ids, transactions of KIP-890, a KIP-848 "
        "consumer group of two, a share group of two, client telemetry",
        brokers.kafka_4,
        (Client("kafka-4.3", "kafka-4.3/Groups.java"),),
        "java-groups.pcapng.zst",
        compress="zst",
    ),
    Sample(
        "java-admin",
        "the Java admin client: quorum, features, quotas, log directories, transactions, share groups, refusals",
        brokers.kafka_4,
        (Client("kafka-4.3", "kafka-4.3/Administration.java"),),
        "java-admin.pcapng",
    ),
)
