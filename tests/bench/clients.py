"""Real clients (librdkafka) that make the traffic of one workload until they are told to stop (SIGTERM).

    clients.py ROLE BOOTSTRAP SEED

One process runs several clients, as the library works in threads of its own.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

CHATTY_TOPICS = [f"orders-{number}" for number in range(8)]
BULK_TOPICS = ["audit-log", "clickstream", "metrics", "trades"]
PARTITIONS = 4  # the mock cluster's default
CHATTY_CLIENTS = 7  # of a process
LISTENERS = 6  # of a process
CODECS = ["zstd", "lz4", "snappy", "gzip"]
JSON_POOL = 4000


class Stop:
    """Becomes true with SIGTERM, or when the process that started this one is gone."""

    def __init__(self) -> None:
        self._told = False
        self._parent = os.getppid()
        signal.signal(signal.SIGTERM, self._tell)

    def _tell(self, *_: object) -> None:
        self._told = True

    def __bool__(self) -> bool:
        return self._told or os.getppid() != self._parent


def chatty_produce(bootstrap: str, rng: random.Random, stop: Stop) -> None:
    """One small message a request, no lingering, acknowledged by one or all."""
    producers = [
        Producer(
            {
                "bootstrap.servers": bootstrap,
                "client.id": f"till-{os.getpid()}-{number}",
                "linger.ms": 0,
                "acks": rng.choice(["1", "all"]),
            }
        )
        for number in range(CHATTY_CLIENTS)
    ]
    while not stop:
        for producer in producers:
            for _ in range(rng.randint(1, 4)):
                key = str(rng.randrange(10_000)).encode()
                value = rng.randbytes(rng.randint(10, 150))
                producer.produce(rng.choice(CHATTY_TOPICS), value, key, partition=rng.randrange(PARTITIONS))
        for producer in producers:
            producer.flush(1)


def chatty_consume(bootstrap: str, rng: random.Random, stop: Stop) -> None:
    """Short fetches of a few partitions each; now and then an offset out of range; one member of a group."""
    everything = [(topic, partition) for topic in CHATTY_TOPICS for partition in range(PARTITIONS)]
    consumers = [
        _consumer(
            bootstrap, f"kitchen-{os.getpid()}-{number}", {"fetch.wait.max.ms": rng.choice([5, 10, 20])}
        )
        for number in range(CHATTY_CLIENTS)
    ]
    for consumer in consumers[1:]:
        consumer.assign([TopicPartition(*each, 0) for each in rng.sample(everything, 8)])
    consumers[0].subscribe(CHATTY_TOPICS)
    while not stop:
        for consumer in consumers:
            consumer.consume(50, 0.002)
        if rng.random() < 0.002:
            _seek_nowhere(rng.choice(consumers[1:]), rng)
    for consumer in consumers:
        consumer.close()


def _seek_nowhere(consumer: Consumer, rng: random.Random) -> None:
    place = rng.choice(consumer.assignment())
    with suppress(KafkaException):  # not fetching yet
        consumer.seek(TopicPartition(place.topic, place.partition, 10**12))


def bulk_produce(bootstrap: str, rng: random.Random, stop: Stop) -> None:
    """Large batches of JSON lines, each producer with its codec."""
    lines = [json_line(rng).encode() for _ in range(JSON_POOL)]
    producers = [
        Producer(
            {
                "bootstrap.servers": bootstrap,
                "client.id": f"shipper-{codec}",
                "compression.type": codec,
                "linger.ms": 50,
                "batch.size": 900_000,
                "batch.num.messages": 20_000,
                "queue.buffering.max.kbytes": 32 * 1024,
            }
        )
        for codec in CODECS
    ]
    while not stop:
        for producer in producers:
            topic, partition = rng.choice(BULK_TOPICS), rng.randrange(PARTITIONS)
            for _ in range(500):
                value = b"\n".join(rng.choices(lines, k=4))
                _produce(producer, topic, value, partition, stop)


def _produce(producer: Producer, topic: str, value: bytes, partition: int, stop: Stop) -> None:
    while not stop:
        try:
            producer.produce(topic, value, partition=partition)
        except BufferError:
            producer.poll(0.1)
        else:
            return


def bulk_consume(bootstrap: str, rng: random.Random, stop: Stop) -> None:
    """Two readers of everything."""
    places = [TopicPartition(topic, part, 0) for topic in BULK_TOPICS for part in range(PARTITIONS)]
    consumers = [
        _consumer(
            bootstrap, f"reader-{number}", {"fetch.wait.max.ms": 100, "fetch.message.max.bytes": 2 << 20}
        )
        for number in range(2)
    ]
    for consumer in consumers:
        consumer.assign(places)
    while not stop:
        for consumer in consumers:
            consumer.consume(5000, 0.01)


def wide(bootstrap: str, rng: random.Random, stop: Stop) -> None:
    """Clients that ask for all topics over and over."""
    clients = [
        Producer({"bootstrap.servers": bootstrap, "client.id": f"inventory-{os.getpid()}-{number}"})
        for number in range(LISTENERS)
    ]
    while not stop:
        for client in clients:
            client.list_topics(timeout=10)


def _consumer(bootstrap: str, name: str, more: dict[str, int]) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "client.id": name,
            "group.id": "kitchen",
            "auto.offset.reset": "earliest",
            "allow.auto.create.topics": True,
            "fetch.min.bytes": 1,
            "heartbeat.interval.ms": 500,
            "auto.commit.interval.ms": 200,
            **more,
        }
    )


def json_line(rng: random.Random) -> str:
    """An event as services log them: compressible, but with parts that are not."""
    return json.dumps(
        {
            "timestamp": f"2025-03-{rng.randint(1, 28):02}"
            f"T{rng.randint(0, 23):02}:{rng.randint(0, 59):02}:00Z",
            "level": rng.choice(["DEBUG", "INFO", "INFO", "INFO", "WARN", "ERROR"]),
            "service": rng.choice(["checkout", "catalog", "basket", "identity", "shipping"]),
            "trace_id": rng.randbytes(16).hex(),
            "user": rng.randint(1, 10_000_000),
            "duration_ms": round(rng.expovariate(1 / 40), 3),
            "path": "/" + "/".join(rng.choices(WORDS, k=3)),
            "message": " ".join(rng.choices(WORDS, k=rng.randint(8, 30))),
            "token": rng.randbytes(48).hex(),
        }
    )


WORDS = [
    "accept",
    "basket",
    "cancel",
    "cart",
    "catalog",
    "change",
    "customer",
    "deliver",
    "discount",
    "entry",
    "failed",
    "found",
    "invoice",
    "item",
    "late",
    "list",
    "missing",
    "new",
    "order",
    "paid",
    "partial",
    "price",
    "quantity",
    "receive",
    "refund",
    "reserve",
    "retry",
    "return",
    "saved",
    "ship",
    "shop",
    "stock",
    "store",
    "sum",
    "tax",
    "ticket",
    "total",
    "update",
    "user",
    "wait",
    "warehouse",
    "week",
    "zone",
]

ROLES = {
    "chatty-produce": chatty_produce,
    "chatty-consume": chatty_consume,
    "bulk-produce": bulk_produce,
    "bulk-consume": bulk_consume,
    "wide": wide,
}


def main(arguments: Iterator[str]) -> None:
    role, bootstrap, seed = arguments
    ROLES[role](bootstrap, random.Random(int(seed)), Stop())


if __name__ == "__main__":
    main(iter(sys.argv[1:]))
