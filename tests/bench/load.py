"""Real clients (librdkafka) that load the cluster in one way until they are told to stop (SIGTERM).

    python -m tests.bench.load ROLE BOOTSTRAP SEED SECURITY

SECURITY is a JSON object of further settings of librdkafka. One process runs several clients, as the library
works in threads of its own.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import suppress

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

SMALL_TOPICS = [f"orders-{number}" for number in range(8)]
QUIET_TOPICS = ["alerts", "reloads"]
BULK_TOPICS = ["audit-log", "clickstream", "metrics", "trades"]
PARTITIONS = 6
MOCK_PARTITIONS = 4
"""Of a topic in the mock cluster."""
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
IN_FLIGHT = 4000
Settings = dict[str, object]


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


def chatty_produce(settings: Settings, rng: random.Random, stop: Stop) -> None:
    """One small message a request, no lingering, acknowledged by one or all."""
    producers = [
        _producer(settings, f"till-{number}", {"linger.ms": 0, "acks": rng.choice(["1", "all"])})
        for number in range(7)
    ]
    while not stop:
        for producer in producers:
            for _ in range(rng.randint(1, 4)):
                key, value = str(rng.randrange(10_000)).encode(), rng.randbytes(rng.randint(10, 150))
                topic, part = rng.choice(SMALL_TOPICS), rng.randrange(MOCK_PARTITIONS)
                producer.produce(topic, value, key, partition=part)
        for producer in producers:
            producer.flush(1)


def chatty_consume(settings: Settings, rng: random.Random, stop: Stop) -> None:
    """Short fetches of a few partitions each; now and then an offset out of range; one member of a group."""
    often: Settings = {"heartbeat.interval.ms": 500, "auto.commit.interval.ms": 200}
    consumers = [
        _consumer(settings, "kitchen", f"kitchen-{number}", {**often, "fetch.wait.max.ms": wait})
        for number, wait in enumerate(rng.choices([5, 10, 20], k=7))
    ]
    _assign_some(consumers[1:], MOCK_PARTITIONS, rng)
    consumers[0].subscribe(SMALL_TOPICS)
    for _ in _consumed(consumers, stop, 50, 0.002):
        if rng.random() < 0.002:
            _seek_nowhere(rng.choice(consumers[1:]), rng)


def wide(settings: Settings, rng: random.Random, stop: Stop) -> None:
    """Clients that ask for all topics over and over."""
    clients = [_producer(settings, f"inventory-{number}", {}) for number in range(6)]
    while not stop:
        for client in clients:
            client.list_topics(timeout=10)


def deep(settings: Settings, rng: random.Random, stop: Stop) -> None:
    """A request for each message, as many in flight as there are: acks 0, 1 and all, one codec each."""
    producers = [
        _producer(settings, f"deep-{acks}-{codec}", {"acks": acks, "compression.type": codec, **_one_each()})
        for acks in ("0", "1", "all")
        for codec in rng.sample(CODECS, 2)
    ]
    _produce(producers, rng, stop, burst=400, pause=0.02)


def idempotent(settings: Settings, rng: random.Random, stop: Stop) -> None:
    """Five requests in flight at the most, with sequence numbers."""
    producers = [
        _producer(
            settings, f"once-{codec}", {"enable.idempotence": True, "compression.type": codec, **_one_each()}
        )
        for codec in CODECS
    ]
    _produce(producers, rng, stop, burst=40, pause=0.005)


def lingering(settings: Settings, rng: random.Random, stop: Stop) -> None:
    """The library's defaults: batches of what came within 5 ms."""
    producers = [_producer(settings, f"usual-{codec}", {"compression.type": codec}) for codec in CODECS]
    _produce(producers, rng, stop, burst=60, pause=0.01)


def _one_each() -> Settings:
    return {"linger.ms": 0, "batch.num.messages": 1, "queue.buffering.max.messages": IN_FLIGHT}


def _producer(settings: Settings, name: str, more: Settings) -> Producer:
    return Producer({**settings, "client.id": f"{name}-{os.getpid()}", **more})


def _produce(producers: list[Producer], rng: random.Random, stop: Stop, burst: int, pause: float) -> None:
    while not stop:
        for producer in producers:
            topic = rng.choice(SMALL_TOPICS)
            with suppress(BufferError):  # as many in flight as may be
                for _ in range(rng.randint(1, burst)):
                    key = str(rng.randrange(10_000)).encode()
                    producer.produce(topic, rng.randbytes(rng.randint(10, 150)), key)
            producer.poll(pause / len(producers))
    for producer in producers:
        producer.flush(1)


def groups(settings: Settings, rng: random.Random, stop: Stop) -> None:
    """Four members: two groups of the classic protocol, one of KIP-848."""
    plan = [("billing", "classic"), ("billing", "classic"), ("search", "classic"), ("ranking", "consumer")]
    consumers = [
        _consumer(settings, group, f"{group}-{os.getpid()}-{number}", {"group.protocol": protocol})
        for number, (group, protocol) in enumerate(plan)
    ]
    for consumer in consumers:
        consumer.subscribe(SMALL_TOPICS)
    for _ in _consumed(consumers, stop, 500, 0.005):
        if rng.random() < 0.05:
            with suppress(KafkaException):  # nothing to commit yet, or between two assignments
                rng.choice(consumers).commit(asynchronous=True)


def polls(settings: Settings, rng: random.Random, stop: Stop) -> None:
    """Readers of quiet topics, where fetches wait their 500 ms; and short fetches of busy partitions."""
    quiet = [_consumer(settings, "watch", f"watch-{os.getpid()}-{number}", {}) for number in range(3)]
    for consumer in quiet:
        consumer.assign([TopicPartition(topic, part) for topic in QUIET_TOPICS for part in range(PARTITIONS)])
    busy = [
        _consumer(settings, "tail", f"tail-{os.getpid()}-{wait}", {"fetch.wait.max.ms": wait})
        for wait in (5, 10, 20)
    ]
    _assign_some(busy, PARTITIONS, rng)
    for _ in _consumed([*quiet, *busy], stop, 500, 0.002):
        if rng.random() < 0.002:
            _seek_nowhere(rng.choice(busy), rng)


def _consumed(consumers: list[Consumer], stop: Stop, most: int, seconds: float) -> Iterator[None]:
    """Let each consume again and again, and close them at the end."""
    while not stop:
        for consumer in consumers:
            consumer.consume(most, seconds)
        yield
    for consumer in consumers:
        consumer.close()


def _assign_some(consumers: list[Consumer], partitions: int, rng: random.Random) -> None:
    everything = [(topic, part) for topic in SMALL_TOPICS for part in range(partitions)]
    for consumer in consumers:
        consumer.assign([TopicPartition(*place) for place in rng.sample(everything, 8)])


def _seek_nowhere(consumer: Consumer, rng: random.Random) -> None:
    place = rng.choice(consumer.assignment())
    with suppress(KafkaException):  # not fetching yet
        consumer.seek(TopicPartition(place.topic, place.partition, 10**12))


def visitors(settings: Settings, rng: random.Random, stop: Stop) -> None:
    """Clients that connect, ask for something or send a little, and leave."""
    while not stop:
        producer = _producer(settings, "visitor", {"acks": "all"})
        producer.list_topics(timeout=10)
        for topic in rng.sample(QUIET_TOPICS + SMALL_TOPICS, 3):
            producer.produce(topic, b"here and gone")
        producer.flush(5)
        admin = AdminClient({**settings, "client.id": f"lookup-{os.getpid()}"})
        with suppress(KafkaException):
            admin.list_consumer_groups(request_timeout=5).result(5)


def bulk(settings: Settings, rng: random.Random, stop: Stop) -> None:
    """Large batches of JSON lines, a producer for each codec."""
    lines = [json_line(rng).encode() for _ in range(4000)]
    more: Settings = {"linger.ms": 50, "batch.size": 900_000, "batch.num.messages": 20_000}
    more["queue.buffering.max.kbytes"] = 32 * 1024
    producers = [
        _producer(settings, f"shipper-{codec}", {**more, "compression.type": codec}) for codec in CODECS
    ]
    while not stop:
        for producer in producers:
            topic, part = rng.choice(BULK_TOPICS), rng.randrange(MOCK_PARTITIONS)
            with suppress(BufferError):
                for _ in range(500):
                    producer.produce(topic, b"\n".join(rng.choices(lines, k=4)), partition=part)
            producer.poll(0.05)  # all that is sent is replicated twice and read twice
            time.sleep(0.02)
    for producer in producers:
        producer.flush(5)


def bulk_readers(settings: Settings, rng: random.Random, stop: Stop) -> None:
    """A group of two that reads the large batches, and one reader of everything."""
    more: Settings = {"fetch.message.max.bytes": 2 << 20}
    names = [("archive", 0), ("archive", 1), ("lake", 0)]
    consumers = [_consumer(settings, group, f"{group}-{number}", more) for group, number in names]
    for consumer in consumers:
        consumer.subscribe(BULK_TOPICS)
    for _ in _consumed(consumers, stop, 5000, 0.01):
        pass


def _consumer(settings: Settings, group: str, name: str, more: Settings) -> Consumer:
    usual = {"auto.offset.reset": "earliest", "auto.commit.interval.ms": 500}
    return Consumer({**settings, "client.id": name, "group.id": group, **usual, **more})


def json_line(rng: random.Random) -> str:
    """An event as services log them: compressible, but with parts that are not."""
    return json.dumps(
        {
            "timestamp": f"2025-03-{rng.randint(1, 28):02}T{rng.randint(0, 23):02}:00:00Z",
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
    *("accept", "basket", "cancel", "cart", "catalog", "change", "customer", "deliver", "discount", "entry"),
    *("failed", "invoice", "item", "late", "missing", "new", "order", "paid", "partial", "price", "receive"),
    *("refund", "retry", "return", "ship", "stock", "store", "tax", "total", "update", "user", "warehouse"),
]

ROLES = {
    role.__name__.replace("_", "-"): role
    for role in (
        *(chatty_produce, chatty_consume, wide),
        *(deep, idempotent, lingering, groups, polls, visitors, bulk, bulk_readers),
    )
}


def main() -> None:
    role, bootstrap, seed, security = sys.argv[1:]
    settings = {"bootstrap.servers": bootstrap, **json.loads(security)}
    ROLES[role](settings, random.Random(int(seed)), Stop())


if __name__ == "__main__":
    main()
