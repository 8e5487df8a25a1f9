"""Retries against a mock cluster that injects errors, closes connections and answers late."""

import time

import confluent_kafka
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from facts import BOOTSTRAP, Facts

TOPIC = "payments"
facts = Facts("confluent-kafka (librdkafka)", f"{confluent_kafka.__version__} ({confluent_kafka.libversion()[0]})")


def delivered(error, message):
    if error:
        facts.error("stubborn", "produce", error.code(), error.name())
    else:
        facts.produced("stubborn", TOPIC, message.partition(), message.offset(), "all", "lz4")


producer = Producer({"bootstrap.servers": BOOTSTRAP, "client.id": "stubborn", "enable.idempotence": True,
                     "compression.codec": "lz4", "retry.backoff.ms": 50, "linger.ms": 0,
                     "request.timeout.ms": 1500, "socket.timeout.ms": 3000})
for number in range(12):
    producer.produce(TOPIC, f"value {number}".encode(), partition=number % 3, on_delivery=delivered)
    producer.poll(0.1)
producer.flush(20)

consumer = Consumer({"bootstrap.servers": BOOTSTRAP, "client.id": "patient", "group.id": "patient",
                     "fetch.wait.max.ms": 100, "enable.auto.commit": False})
consumer.assign([TopicPartition(TOPIC, partition, OFFSET_BEGINNING) for partition in range(3)])
deadline = time.monotonic() + 6
while time.monotonic() < deadline and facts.body["consumed"].get(TOPIC, 0) < len(facts.body["produced"]):
    message = consumer.poll(0.2)
    if message and message.error():
        facts.error("patient", "fetch", message.error().code(), message.error().name())
    elif message:
        facts.consumed(TOPIC)
consumer.close()
facts.save()
