"""What is recorded: for each workload its clients, its bounds, and the topics made beforehand."""

from __future__ import annotations

from dataclasses import dataclass

from tests.bench.load import BULK_TOPICS, SMALL_TOPICS


@dataclass(frozen=True)
class Workload:
    """One recording, from before the start of its brokers until its clients are gone."""

    name: str
    about: str
    packets: int
    """The clients are told to stop after so many; what they still have in flight comes on top."""
    roles: tuple[str, ...] = ()
    """A process of librdkafka's each; see load.py."""
    java: tuple[tuple[str, ...], ...] = ()
    """A process of Apache Kafka's own client each: main class and arguments."""
    mock: int = 0
    """So many brokers of librdkafka's mock cluster instead of three nodes of Apache Kafka."""
    sasl: bool = False
    logged: bool = False
    """With the brokers' own log of the requests they handled."""
    topics: tuple[tuple[str, int], ...] = ()
    """Of the mock cluster: name and number of partitions."""
    variants: tuple[str, ...] = ()
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


def java_consumer(group: str, topic: str, *properties: str) -> tuple[str, ...]:
    """Apache Kafka's consumer test."""
    name = "org.apache.kafka.tools.ConsumerPerformance"
    size = ("--num-records", "1000000000", "--timeout", "600000", "--reporting-interval", "5000")
    given = [part for each in properties for part in ("--command-property", each)]
    return (name, "--topic", topic, *size, "--group", group, *given)


SMALL = ("deep", "deep", "idempotent", "lingering", "groups", "groups", "polls", "visitors")
USUAL = ("midstream", "lost-1", "lost-20")
WORKLOADS = {workload.name: workload for workload in (
    Workload(
        "chatty", "small produce and fetch calls over about a hundred connections", 1_000_000,
        ("chatty-produce", "chatty-consume", "chatty-produce", "chatty-consume"), mock=4,
        topics=tuple((topic, 4) for topic in SMALL_TOPICS), variants=("damaged",),
    ),
    Workload(
        "bulk", "full-size segments with compressed batches, produced and consumed", 600_000,
        ("bulk", "bulk-readers"), mock=3, topics=tuple((topic, 4) for topic in BULK_TOPICS),
    ),
    Workload(
        "wide", "Metadata responses of 400 topics, asked for by a dozen clients", 120_000,
        ("wide", "wide"), mock=3,
        topics=tuple((f"tenant-{number // 20:02}.stream-{number % 20:02}", 4) for number in range(400)),
    ),
    Workload(
        "cluster-small",
        "small calls, thousands in flight: acks 0, 1, all, idempotent, five codecs, groups, long polls",
        1_300_000, SMALL,
        variants=(*USUAL, "lost-2", "lost-5", "lost-10", "lost-second", "200k", "5mb", "100kb"),
    ),
    Workload(
        "cluster-sasl", "the same over SASL_PLAINTEXT with PLAIN, between brokers too", 1_200_000, SMALL,
        sasl=True, variants=(*USUAL, "200k"),
    ),
    Workload(
        "cluster-bulk", "large batches of five codecs, produced, replicated and read by a group", 700_000,
        ("bulk", "bulk-readers"), variants=(*USUAL, "200k"),
    ),
    Workload(
        "cluster-java",
        "Apache Kafka's own clients: each acks and codec, transactions, groups of both protocols",
        300_000,
        java=(
            java_producer("0", "none", 0, "enable.idempotence=false"),
            java_producer("1", "gzip", 1, "enable.idempotence=false"),
            java_producer("all", "lz4", 2, "enable.idempotence=false"),
            java_producer("all", "snappy", 3),
            java_producer("all", "zstd", 4, transaction=True),
            java_consumer("billing", "orders-0"),
            java_consumer("billing", "orders-0"),
            java_consumer("search", "orders-2", "group.protocol=consumer"),
            java_consumer("ranking", "orders-4", "isolation.level=read_committed"),
        ),
        variants=USUAL,
    ),
    Workload(
        "cluster-truth", "as cluster-small, with the brokers' log of the requests they handled", 150_000,
        SMALL[1:], logged=True,
    ),
)}  # fmt: skip
