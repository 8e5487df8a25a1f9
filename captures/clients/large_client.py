"""Records and batches larger than a segment, and fetches too small for them."""

import time

import confluent_kafka
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from facts import BOOTSTRAP, Facts

TOPIC = "orders"
facts = Facts("confluent-kafka (librdkafka)", f"{confluent_kafka.__version__} ({confluent_kafka.libversion()[0]})")


def delivered(error, message):
    if error:
        facts.error("large-producer", "produce", error.code(), error.name())
    else:
        facts.produced("large-producer", TOPIC, message.partition(), message.offset(), "all", "none")


producer = Producer({"bootstrap.servers": BOOTSTRAP, "client.id": "large-producer", "linger.ms": 50})
for size in (10, 1500, 20000, 150000, 3, 300000):
    producer.produce(TOPIC, b"0123456789abcdef" * (size // 16) + b"x" * (size % 16), partition=0, on_delivery=delivered)
producer.flush(10)
consumer = Consumer({"bootstrap.servers": BOOTSTRAP, "client.id": "large-consumer", "group.id": "large",
                     "max.partition.fetch.bytes": 30000, "fetch.wait.max.ms": 200, "enable.auto.commit": False})
consumer.assign([TopicPartition(TOPIC, 0, OFFSET_BEGINNING)])
deadline = time.monotonic() + 10
while facts.body["consumed"].get(TOPIC, 0) < 6 and time.monotonic() < deadline:
    message = consumer.poll(0.3)
    if message and not message.error():
        facts.consumed(TOPIC)
consumer.close()
facts.save()
