"""The broker tells clients to connect to a port where nobody listens."""

import time

import confluent_kafka
from confluent_kafka import Producer
from facts import BOOTSTRAP, Facts

facts = Facts("confluent-kafka (librdkafka)", f"{confluent_kafka.__version__} ({confluent_kafka.libversion()[0]})")


def delivered(error, message):
    facts.error("lost-producer", "produce", error.code(), error.name())


producer = Producer({"bootstrap.servers": BOOTSTRAP, "client.id": "lost-producer", "message.timeout.ms": 3000,
                     "reconnect.backoff.ms": 100, "reconnect.backoff.max.ms": 300, "error_cb": lambda error: None})
for number in range(2):
    producer.produce("orders", b"never arrives %d" % number, partition=0, on_delivery=delivered)
producer.flush(6)
time.sleep(0.2)
facts.save()
