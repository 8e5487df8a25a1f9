"""The list of samples: which broker, which clients, how captured, and what each shows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

from recording import brokers, kafka_44
from recording.brokers import Broker
from recording.environments import CLIENTS, Environment

Start = Callable[[Environment, Path], AbstractContextManager[Broker]]


@dataclass(frozen=True)
class Client:
    """One client process: `kind` is python, node, go or a Java release; `script` lies in `captures/clients`."""

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
        if self.kind == "go":
            return [env.go_program(Path(script).name), *self.arguments]
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
    ports: tuple[int, ...] = ()
    middle: tuple[float, float] | None = None
    mtu: int = 65536
    loss: Mapping[str, int] = field(default_factory=dict)
    """One of so many packets that match this, by nftables, is lost between capture and receiver."""
    embed: bool = True
    """The secrets of TLS connections are in the capture, too, and not only in the key log beside it."""


def python(script: str, *arguments: str) -> Client:
    """Return a Python client."""
    return Client("python", script, arguments)


SAMPLES = (
    Sample(
        "mock-produce",
        "librdkafka to its mock cluster of 3 brokers on odd ports: produce with none, gzip, snappy, lz4, "
        "zstd and "
        "acks 0, 1, all, an idempotent producer, fetch of everything",
        brokers.mock,
        (python("librdkafka_produce.py"),),
        "mock-produce.pcapng",
    ),
    Sample(
        "librdkafka-produce",
        "librdkafka to Apache Kafka 4.3: produce with all codecs and acks, fetch with topic ids and fetch "
        "sessions",
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
        "consumer groups, two members joining and leaving: range, cooperative-sticky, static membership, "
        "KIP-848",
        brokers.kafka_4,
        (python("librdkafka_groups.py"),),
        "librdkafka-groups.pcapng",
        interface="any",
    ),
    Sample(
        "librdkafka-admin",
        "admin calls: topics, partitions, configs, ACLs, SCRAM users, offsets, groups, leader election, "
        "and refusals",
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
        "aiokafka to Apache Kafka 4.3: all codecs and acks, transactions committed and aborted, a group "
        "of two",
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
        "KafkaJS to Tansu on port 19092: codecs and acks, a group of two, admin calls the broker may not "
        "know",
        lambda env, run: brokers.tansu(env, run, 19092),
        (Client("node", "kafkajs_client.js"),),
        "kafkajs-tansu.pcapng",
    ),
    Sample(
        "java-groups",
        "the Java client of Apache Kafka 4.3: Produce 13 and Fetch with topic ids, transactions of "
        "KIP-890, a KIP-848 "
        "consumer group of two, a share group of two, client telemetry",
        brokers.kafka_4,
        (Client("kafka-4.3", "kafka-4.3/Groups.java"),),
        "java-groups.pcapng.zst",
        compress="zst",
    ),
    Sample(
        "java-admin",
        "the Java admin client: quorum, features, quotas, log directories, transactions, share groups, "
        "refusals",
        brokers.kafka_4,
        (Client("kafka-4.3", "kafka-4.3/Administration.java"),),
        "java-admin.pcapng",
    ),
    Sample(
        "java-streams",
        "the Java client of Apache Kafka 4.4: streams groups that describe their topology, one refused, offsets "
        "committed by topic id in transactions, groups deleted or not and why, a controller unregistered",
        kafka_44.alone,
        (Client("kafka-4.4", "kafka-4.4/Streams.java"),),
        "java-streams.pcapng.zst",
        compress="zst",
    ),
    Sample(
        "misrouted",
        "a Java client that one cluster (9093) leads to a broker of another (9092), which refuses it by cluster "
        "id (4.4)",
        kafka_44.misleading,
        (Client("kafka-4.4", "kafka-4.4/Misrouted.java"),),
        "misrouted.pcapng",
    ),
    Sample(
        "kafka-0.10",
        "two brokers of 0.10.2 from start to end, with the Java client of that time: message sets with "
        "magic 1 in gzip, "
        "snappy and lz4, a group of two, replication, controller requests, controlled shutdown",
        lambda env, run: brokers.kafka_old(env, run, "kafka-0.10", "0.10.2.2", nodes=2),
        (Client("kafka-0.10", "kafka-0.10/Old.java"),),
        "kafka-0.10.pcap",
        tool="tcpdump",
        from_start=True,
        ports=(9092, 9093),
    ),
    Sample(
        "kafka-0.10-clients",
        "librdkafka and kafka-python of today to a broker of 0.10.2: old versions, message sets with magic 1",
        lambda env, run: brokers.kafka_old(env, run, "kafka-0.10", "0.10.2.2"),
        (
            python("librdkafka_produce.py", "none,gzip,snappy,lz4"),
            python("kafka_python_client.py", "none,gzip,snappy,lz4"),
        ),
        "kafka-0.10-clients.pcapng",
    ),
    Sample(
        "kafka-0.8",
        "two brokers of 0.8.2 from start to end, with the Scala clients: message sets with magic 0 in "
        "gzip, snappy "
        "and lz4, version 0 of everything, offsets in ZooKeeper and Kafka, replication, controller requests",
        lambda env, run: brokers.kafka_old(env, run, "kafka-0.8", "0.8.2.2", nodes=2),
        (Client("kafka-0.8", "kafka-0.8/Ancient.java"),),
        "kafka-0.8.pcap",
        tool="tcpdump",
        from_start=True,
        ports=(9092, 9093),
    ),
    Sample(
        "sasl",
        "authentication on 9094: PLAIN, SCRAM-SHA-256 and -512, OAUTHBEARER by librdkafka, kafka-python "
        "and aiokafka, "
        "wrong passwords, a user without rights, authentication anew on a living connection",
        brokers.kafka_4_sasl,
        (python("sasl_client.py"),),
        "sasl.pcapng",
    ),
    Sample(
        "sasl-0.10",
        "authentication as 0.10.2 does it: SaslHandshake v0 and raw tokens, PLAIN and SCRAM-SHA-256, a "
        "wrong password",
        brokers.kafka_old_sasl,
        (Client("kafka-0.10", "kafka-0.10/OldSasl.java"), python("sasl_client.py", "old")),
        "sasl-0.10.pcap",
        tool="tcpdump",
    ),
    Sample(
        "tls",
        "TLS on 9094: a client that succeeds, one that rejects the certificate, one that speaks plaintext",
        brokers.kafka_4_tls,
        (python("tls_client.py"),),
        "tls.pcapng",
    ),
    Sample(
        "quorum",
        "three nodes of Apache Kafka 4.3 from their start: KRaft votes, metadata replication, broker "
        "registration and "
        "heartbeats, partition replication, the loss of a leader (127.0.0.1 to .3; brokers 9092, "
        "controllers 9093)",
        brokers.kafka_4_quorum,
        (python("quorum_client.py"),),
        "quorum.pcapng.zst",
        compress="zst",
        from_start=True,
        ports=(9092, 9093),
    ),
    Sample(
        "throttled",
        "a producer and a consumer above their quotas: throttle times in Produce and Fetch",
        brokers.kafka_4,
        (Client("kafka-4.3", "kafka-4.3/Throttled.java"),),
        "throttled.pcapng",
    ),
    Sample(
        "ipv6",
        "librdkafka to Apache Kafka 4.3 over the IPv6 loopback address",
        brokers.kafka_4_ipv6,
        (python("librdkafka_produce.py", "none,zstd"),),
        "ipv6.pcap",
        tool="tcpdump",
    ),
    Sample(
        "snaplen-128",
        "only the first 128 bytes of each packet (the MTU is 1500): headers and lengths, no bodies",
        brokers.kafka_4,
        (python("librdkafka_produce.py", "none,lz4"),),
        "snaplen-128.pcap",
        tool="tcpdump",
        snaplen=128,
        mtu=1500,
    ),
    Sample(
        "midstream",
        "starts and ends in the middle of living connections",
        brokers.kafka_4,
        (python("steady_client.py", "6"),),
        "midstream.pcap",
        tool="tcpdump",
        middle=(2.5, 2.0),
    ),
    Sample(
        "large-records",
        "records of up to 300 kB in segments of an MTU of 1500, fetches too small for them, partial batches",
        brokers.kafka_4,
        (python("large_client.py"),),
        "large-records.pcapng.zst",
        compress="zst",
        mtu=1500,
    ),
    Sample(
        "rotation",
        "one stream in several files, changed every 120 packets",
        brokers.kafka_4,
        (python("librdkafka_produce.py", "none,gzip,zstd"),),
        "rotation/rotation.pcapng",
        rotate="packets:120",
    ),
)
