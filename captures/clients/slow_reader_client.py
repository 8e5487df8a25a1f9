"""A consumer that asks for more than its receive buffer holds and does not read it for a second, again and again."""

import time

import confluent_kafka
import raw
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from facts import BOOTSTRAP, Facts

TOPIC, NAME = "orders", b"slow-reader"
facts = Facts("confluent-kafka (librdkafka)", f"{confluent_kafka.__version__} ({confluent_kafka.libversion()[0]})")
admin = AdminClient({"bootstrap.servers": BOOTSTRAP, "client.id": "reader-setup"})
admin.create_topics([NewTopic(TOPIC, 1)])[TOPIC].result(10)


def delivered(error, message):
    facts.produced("reader-feeder", TOPIC, message.partition(), message.offset(), "all", "none")


producer = Producer({"bootstrap.servers": BOOTSTRAP, "client.id": "reader-feeder", "linger.ms": 100})
for _ in range(4):
    producer.produce(TOPIC, b"x" * 100_000, partition=0, on_delivery=delivered)
producer.flush(10)
with raw.connected(BOOTSTRAP, receive_buffer=8192) as connection:
    for number in range(4):
        connection.sendall(raw.fetch(number, NAME, TOPIC, size=350_000))
        time.sleep(1)
        raw.response(connection)
facts.save()
