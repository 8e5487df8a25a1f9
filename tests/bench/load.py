"""Real clients (librdkafka) that load the cluster in one way until they are told to stop (SIGTERM).

    load.py ROLE BOOTSTRAP SEED SECURITY

SECURITY is a JSON object of further settings of librdkafka. One process runs several clients, as the library
works in threads of its own.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from contextlib import suppress
from struct import pack

from clients import Stop, json_line
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

SMALL_TOPICS = [f"orders-{number}" for number in range(8)]
QUIET_TOPICS = ["alerts", "reloads"]
BULK_TOPICS = ["audit-log", "clickstream", "metrics", "trades"]
PARTITIONS = 6
WIDE_TOPIC, WIDE_PARTITIONS = "ledger", 540
VALUE_TOPICS = ["requests", "numbers"]
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
IN_FLIGHT = 4000
Settings = dict[str, object]


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
    while not stop:
        for consumer in consumers:
            consumer.consume(500, 0.005)
        if rng.random() < 0.05:
            _commit(rng.choice(consumers))
    for consumer in consumers:
        consumer.close()


def _commit(consumer: Consumer) -> None:
    with suppress(KafkaException):  # nothing to commit yet, or between two assignments
        consumer.commit(asynchronous=True)


def polls(settings: Settings, rng: random.Random, stop: Stop) -> None:
    """Readers of quiet topics, where fetches wait their 500 ms; and short fetches of busy partitions."""
    quiet = [_consumer(settings, "watch", f"watch-{os.getpid()}-{number}", {}) for number in range(3)]
    for consumer in quiet:
        consumer.assign([TopicPartition(topic, part) for topic in QUIET_TOPICS for part in range(PARTITIONS)])
    busy = [
        _consumer(settings, "tail", f"tail-{os.getpid()}-{wait}", {"fetch.wait.max.ms": wait})
        for wait in (5, 10, 20)
    ]
    everything = [(topic, part) for topic in SMALL_TOPICS for part in range(PARTITIONS)]
    for consumer in busy:
        consumer.assign([TopicPartition(*place) for place in rng.sample(everything, 8)])
    while not stop:
        for consumer in (*quiet, *busy):
            consumer.consume(500, 0.002)
        if rng.random() < 0.002:
            _seek_nowhere(rng.choice(busy), rng)
    for consumer in (*quiet, *busy):
        consumer.close()


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
    more: Settings = {
        "linger.ms": 50,
        "batch.size": 900_000,
        "batch.num.messages": 20_000,
        "queue.buffering.max.kbytes": 32 * 1024,
    }
    producers = [
        _producer(settings, f"shipper-{codec}", {**more, "compression.type": codec}) for codec in CODECS
    ]
    while not stop:
        for producer in producers:
            topic, part = rng.choice(BULK_TOPICS), rng.randrange(PARTITIONS)
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
    while not stop:
        for consumer in consumers:
            consumer.consume(5000, 0.01)
    for consumer in consumers:
        consumer.close()


def wide_groups(settings: Settings, rng: random.Random, stop: Stop) -> None:
    """Groups, one of each protocol, of one member that commits all of its hundreds of partitions and does not
    wait for the answer."""
    consumers = [
        _consumer(settings, f"ledger-{protocol}", f"books-{protocol}", {"group.protocol": protocol})
        for protocol in ("classic", "consumer")
    ]
    for consumer in consumers:
        consumer.subscribe([WIDE_TOPIC])
    while not stop:
        for consumer in consumers:
            consumer.consume(500, 0.05)
            if mine := consumer.assignment():
                given = [TopicPartition(each.topic, each.partition, rng.randrange(20_000)) for each in mine]
                consumer.commit(offsets=given, asynchronous=True)
    for consumer in consumers:
        consumer.close()


def python_groups(settings: Settings, rng: random.Random, stop: Stop) -> None:
    """The same with kafka-python."""
    from kafka import KafkaConsumer
    from kafka import TopicPartition as Place
    from kafka.structs import OffsetAndMetadata

    servers = str(settings["bootstrap.servers"]).split(",")
    consumer = KafkaConsumer(WIDE_TOPIC, bootstrap_servers=servers, group_id="ledger-python", client_id="py")
    while not stop:
        consumer.poll(timeout_ms=50)
        mine: list[Place] = list(consumer.assignment())
        if mine:
            consumer.commit_async({each: OffsetAndMetadata(rng.randrange(20_000), "", -1) for each in mine})
    consumer.close(autocommit=False)


def wide_produce(settings: Settings, rng: random.Random, stop: Stop) -> None:
    """A little for each of the hundreds of partitions."""
    producer = _producer(settings, "scribe", {"acks": "all", "linger.ms": 20})
    while not stop:
        with suppress(BufferError):
            for part in rng.sample(range(WIDE_PARTITIONS), 15):
                producer.produce(WIDE_TOPIC, pack(">iq", part, rng.randrange(20_000)), partition=part)
        producer.poll(0)
        time.sleep(0.2)
    producer.flush(5)


def values(settings: Settings, rng: random.Random, stop: Stop) -> None:
    """Kafka requests, and runs of small integers, as record values: produced, replicated and read."""
    producers = [
        _producer(settings, f"echo-{acks}", {"acks": acks, "linger.ms": linger})
        for acks, linger in (("0", 0), ("1", 5), ("all", 0), ("all", 50))
    ]
    reader = _consumer(settings, "echo", "echo-reader", {})
    reader.subscribe(VALUE_TOPICS)
    while not stop:
        for producer in producers:
            with suppress(BufferError):
                for _ in range(rng.randint(1, 30)):
                    producer.produce(rng.choice(VALUE_TOPICS), rng.choice((_request, _integers))(rng))
            producer.poll(0.01)
        reader.consume(500, 0.01)
    for producer in producers:
        producer.flush(1)
    reader.close()


def _request(rng: random.Random) -> bytes:
    """A request of header version 1, framed (protocol guide): Metadata, ApiVersions, Heartbeat or Produce."""
    name = rng.choice([b"app", b"echo-1", b""])
    body = rng.randbytes(rng.choice([0, 4, 40, 2000]))
    head = pack(">hhih", rng.choice([3, 18, 12, 0]), rng.randrange(3), rng.randrange(20_000), len(name))
    return pack(">i", len(head + name + body)) + head + name + body


def _integers(rng: random.Random) -> bytes:
    """Rows as of partitions with their offsets."""
    return b"".join(pack(">iq", number, rng.randrange(20_000)) for number in range(rng.randint(10, 500)))


def _consumer(settings: Settings, group: str, name: str, more: Settings) -> Consumer:
    return Consumer(
        {
            **settings,
            "client.id": name,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": 500,
            **more,
        }
    )


ROLES = {
    role.__name__.replace("_", "-"): role
    for role in (
        *(deep, idempotent, lingering, groups, polls, visitors, bulk, bulk_readers),
        *(wide_groups, python_groups, wide_produce, values),
    )
}


def main() -> None:
    role, bootstrap, seed, security = sys.argv[1:]
    settings = {"bootstrap.servers": bootstrap, **json.loads(security)}
    ROLES[role](settings, random.Random(int(seed)), Stop())


if __name__ == "__main__":
    main()
