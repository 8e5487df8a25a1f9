"""A client that connects anew for each record, as scripts and short-lived functions do."""

import confluent_kafka
from confluent_kafka import Producer
from facts import BOOTSTRAP, Facts

facts = Facts("confluent-kafka (librdkafka)", f"{confluent_kafka.__version__} ({confluent_kafka.libversion()[0]})")


def delivered(error, message):
    if error:
        facts.error("one-shot", "produce", error.code(), error.name())
    else:
        facts.produced("one-shot", "orders", message.partition(), message.offset(), "all", "none")


for number in range(40):
    producer = Producer({"bootstrap.servers": BOOTSTRAP, "client.id": "one-shot"})
    producer.produce("orders", b"order %d" % number, partition=0, on_delivery=delivered)
    producer.flush(10)
    del producer
facts.save()
