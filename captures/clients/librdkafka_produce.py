"""Produce with all codecs and acks through librdkafka, then read everything back."""

import sys
import time

import confluent_kafka
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from facts import BOOTSTRAP, Facts

CODECS = sys.argv[1].split(",") if len(sys.argv) > 1 else ("none", "gzip", "snappy", "lz4", "zstd")
ACKS = ("0", "1", "all")
RECORDS = 6  # idempotence once, and only where the broker is new enough for it
TOPIC = "orders"
facts = Facts("confluent-kafka (librdkafka)", f"{confluent_kafka.__version__} ({confluent_kafka.libversion()[0]})")


def delivered(client_id, acks, codec):
    def callback(error, message):
        if error:
            facts.error(client_id, "produce", error.code(), error.name())
            return
        offset = message.offset() if acks != "0" else None
        facts.produced(client_id, message.topic(), message.partition(), offset, acks, codec)
    return callback


def produce(acks, codec):
    client_id = f"rdkafka-{codec}-acks-{acks}"
    producer = Producer({
        "bootstrap.servers": BOOTSTRAP, "client.id": client_id, "acks": acks, "compression.codec": codec,
        "linger.ms": 30, "enable.idempotence": acks == "all" and codec == "none" and "zstd" in CODECS,
    })
    for number in range(RECORDS):
        value = f"order {number} of a series that repeats itself, itself, itself and compresses well".encode()
        headers = [("trace", b"%d" % number)] if number % 2 else None
        producer.produce(TOPIC, value, key=f"key-{number % 3}", headers=headers, partition=number % 2,
                         on_delivery=delivered(client_id, acks, codec))
    producer.flush(10)
    time.sleep(0.05)


def consume(expected):
    consumer = Consumer({"bootstrap.servers": BOOTSTRAP, "client.id": "rdkafka-reader", "group.id": "unused",
                         "enable.auto.commit": False, "fetch.wait.max.ms": 200, "check.crcs": True})
    consumer.assign([TopicPartition(TOPIC, partition, OFFSET_BEGINNING) for partition in (0, 1)])
    seen, deadline = 0, time.monotonic() + 15
    while seen < expected and time.monotonic() < deadline:
        message = consumer.poll(0.5)
        if message and not message.error():
            seen += 1
            facts.consumed(TOPIC)
    low, high = consumer.get_watermark_offsets(TopicPartition(TOPIC, 0))
    facts.note(watermarks={"topic": TOPIC, "partition": 0, "low": low, "high": high})
    consumer.close()


for codec in CODECS:
    for acks in ACKS:
        produce(acks, codec)
consume(len(CODECS) * len(ACKS) * RECORDS)
facts.save()
