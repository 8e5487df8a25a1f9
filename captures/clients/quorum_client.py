"""Wait for three nodes, produce to replicated partitions, lose the node that leads one, and go on."""

import os
import signal
import time

import confluent_kafka
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from facts import Facts

BROKERS = "127.0.0.1:9092,127.0.0.2:9092,127.0.0.3:9092"
TOPIC = "orders"
facts = Facts("confluent-kafka (librdkafka)", f"{confluent_kafka.__version__} ({confluent_kafka.libversion()[0]})")
time.sleep(6)
admin = AdminClient({"bootstrap.servers": BROKERS, "client.id": "quorum-setup"})
deadline = time.monotonic() + 40
while len(admin.list_topics(timeout=20).brokers) < 3 and time.monotonic() < deadline:
    time.sleep(1)
admin.create_topics([NewTopic(TOPIC, 3, 3, config={"min.insync.replicas": "2"})])[TOPIC].result(20)


def delivered(error, message):
    if error:
        facts.error("quorum-producer", "produce", error.code(), error.name())
    else:
        facts.produced("quorum-producer", TOPIC, message.partition(), message.offset(), "all", "lz4")


producer = Producer({"bootstrap.servers": BROKERS, "client.id": "quorum-producer", "compression.codec": "lz4",
                     "retry.backoff.ms": 200, "error_cb": lambda error: None})


def produce(count):
    for number in range(count):
        producer.produce(TOPIC, b"replicated %d" % number, partition=number % 3, on_delivery=delivered)
        producer.poll(0.05)
    producer.flush(20)


produce(9)
leader = admin.list_topics(TOPIC, timeout=10).topics[TOPIC].partitions[0].leader
os.kill(int(os.environ["NODE_PIDS"].split(",")[leader - 1]), signal.SIGTERM)
facts.note(ended_node=leader)
time.sleep(0.3)
produce(9)
time.sleep(1.5)
facts.save()
