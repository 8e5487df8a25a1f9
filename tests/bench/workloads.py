"""What is recorded: for each workload its clients, its bounds, and the topics made beforehand."""

from __future__ import annotations

from dataclasses import dataclass, field

from load import VALUE_TOPICS, WIDE_PARTITIONS, WIDE_TOPIC
from namespace import MTU

MB = 1_000_000


@dataclass(frozen=True)
class Workload:
    """One recording. It ends with the first of its bounds that is reached."""

    name: str
    about: str
    roles: tuple[str, ...]
    """A client process each; see clients.py."""
    seconds: float
    brokers: int = 4
    packets: int | None = None
    size: int | None = None
    topics: list[str] = field(default_factory=list)


WORKLOADS = [
    Workload(
        "chatty",
        "small produce and fetch calls over about a hundred connections",
        ("chatty-produce", "chatty-consume", "chatty-produce", "chatty-consume"),
        seconds=400,
        packets=1_000_000,
        topics=[f"orders-{number}" for number in range(8)],
    ),
    Workload(
        "bulk",
        "full-size segments with compressed batches of four codecs, produced and consumed",
        ("bulk-produce", "bulk-consume"),
        seconds=300,
        size=800 * MB,
        brokers=3,
        topics=["audit-log", "clickstream", "metrics", "trades"],
    ),
    Workload(
        "wide",
        "Metadata responses of 400 topics, asked for by a dozen clients",
        ("wide", "wide"),
        seconds=120,
        size=150 * MB,
        brokers=3,
        topics=[f"tenant-{number // 20:02}.stream-{number % 20:02}" for number in range(400)],
    ),
    Workload(
        "mixed",
        "bulk and chatty at once, for what takes captures too large for one core",
        (
            "bulk-produce",
            "bulk-consume",
            "chatty-produce",
            "chatty-consume",
            "chatty-produce",
            "chatty-consume",
        ),
        seconds=600,
        size=2000 * MB,
        topics=[
            "audit-log",
            "clickstream",
            "metrics",
            "trades",
            *(f"orders-{number}" for number in range(8)),
        ],
    ),
]


@dataclass(frozen=True)
class ClusterWorkload:
    """One recording of the three-node cluster, from before its start until its clients are gone."""

    name: str
    about: str
    packets: int
    """The clients are told to stop after so many; what they still have in flight comes on top."""
    roles: tuple[str, ...] = ()
    """A process of librdkafka's each; see load.py."""
    java: tuple[tuple[str, ...], ...] = ()
    """A process of Apache Kafka's own client each: main class and arguments."""
    sasl: bool = False
    logged: bool = False
    """With the brokers' own log of the requests they handled."""
    mtu: int = MTU
    topics: tuple[tuple[str, int], ...] = ()
    """Instead of the usual ones: name and number of partitions."""
    variants: tuple[str, ...] = ("midstream", "lost-1", "lost-20", "200k")
    """What is made of it; see variants.py."""


def java_producer(
    acks: str, codec: str, topic: int, *properties: str, transaction: bool = False
) -> tuple[str, ...]:
    """Apache Kafka's producer test: small batches of records of 120 bytes, for ever."""
    name = "org.apache.kafka.tools.ProducerPerformance"
    size = ("--num-records", "1000000000", "--record-size", "120", "--throughput", "3000")
    more = ("--transactional-id", f"till-{topic}", "--transaction-duration-ms", "200") if transaction else ()
    given = (f"client.id=java-{acks}-{codec}", f"acks={acks}", f"compression.type={codec}", "batch.size=400")
    return (name, "--topic", f"orders-{topic}", *size, *more, "--command-property", *given, *properties)


def java_consumer(group: str, topic: int, *properties: str) -> tuple[str, ...]:
    """Apache Kafka's consumer test."""
    return java_reader(group, f"orders-{topic}", *properties)


def java_reader(group: str, topic: str, *properties: str) -> tuple[str, ...]:
    name = "org.apache.kafka.tools.ConsumerPerformance"
    size = ("--num-records", "1000000000", "--timeout", "600000", "--reporting-interval", "5000")
    given = [part for each in properties for part in ("--command-property", each)]
    return (name, "--topic", topic, *size, "--group", group, *given)


SMALL = ("deep", "deep", "idempotent", "lingering", "groups", "groups", "polls", "visitors")

CLUSTER_WORKLOADS = [
    ClusterWorkload(
        "cluster-small",
        "small calls, thousands in flight: acks 0, 1, all, idempotent, five codecs, groups, long polls",
        packets=1_300_000,
        roles=SMALL,
        variants=(
            *("midstream", "lost-1", "lost-2", "lost-5", "lost-10", "lost-20", "lost-second"),
            *("200k", "5mb", "100kb"),
        ),
    ),
    ClusterWorkload(
        "cluster-sasl",
        "the same over SASL_PLAINTEXT with PLAIN, between brokers too",
        packets=1_200_000,
        roles=SMALL,
        sasl=True,
    ),
    ClusterWorkload(
        "cluster-bulk",
        "large batches of five codecs, produced, replicated and read by a group",
        packets=700_000,
        roles=("bulk", "bulk-readers"),
    ),
    ClusterWorkload(
        "cluster-java",
        "Apache Kafka's own clients: each acks and codec, transactions, groups of both protocols",
        packets=300_000,
        java=(
            java_producer("0", "none", 0, "enable.idempotence=false"),
            java_producer("1", "gzip", 1, "enable.idempotence=false"),
            java_producer("all", "lz4", 2, "enable.idempotence=false"),
            java_producer("all", "snappy", 3),
            java_producer("all", "zstd", 4, transaction=True),
            java_consumer("billing", 0),
            java_consumer("billing", 0),
            java_consumer("search", 2, "group.protocol=consumer"),
            java_consumer("ranking", 4, "isolation.level=read_committed"),
        ),
        variants=("midstream", "lost-1", "lost-20"),
    ),
    ClusterWorkload(
        "cluster-truth",
        "as cluster-small, with the brokers' log of the requests they handled",
        packets=150_000,
        roles=SMALL[1:],
        logged=True,
        variants=("lost-2", "lost-5", "lost-10", "lost-second"),
    ),
]

GROUPS = ("wide-groups", "python-groups", "wide-produce")
JAVA_GROUPS = tuple(
    java_reader(
        f"ledger-java-{protocol}", WIDE_TOPIC, f"group.protocol={protocol}", "auto.commit.interval.ms=50"
    )
    for protocol in ("classic", "consumer")
)
WIDE, VALUES = (WIDE_TOPIC, WIDE_PARTITIONS), tuple((topic, 6) for topic in VALUE_TOPICS)
WHOLE_WORKLOADS = [
    ClusterWorkload(
        "cluster-groups",
        "groups of 540 partitions whose members commit without waiting: librdkafka, Java and kafka-python",
        packets=150_000,
        roles=GROUPS,
        java=JAVA_GROUPS,
        logged=True,
        topics=(WIDE,),
        variants=(),
    ),
    ClusterWorkload(
        "cluster-values",
        "Kafka requests and small integers as record values, produced, replicated and read",
        packets=150_000,
        roles=("values", "values"),
        logged=True,
        topics=VALUES,
        variants=(),
    ),
    ClusterWorkload(
        "cluster-offloaded",
        "both at once, over a loopback of MTU 65536",
        packets=150_000,
        roles=(*GROUPS, "values"),
        java=JAVA_GROUPS,
        logged=True,
        mtu=65_536,
        topics=(WIDE, *VALUES),
        variants=(),
    ),
]
CLUSTER_WORKLOADS += WHOLE_WORKLOADS
"""What is told must be exactly what was (whole.py); recorded when they are named."""
