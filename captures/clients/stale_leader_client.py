"""The leader of a partition is killed and comes back as a follower; a client that holds on to it asks it on and on."""

import os
import signal
import time

import confluent_kafka
import raw
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from facts import Facts
from node import restart

BROKERS = "127.0.0.1:9092,127.0.0.2:9092,127.0.0.3:9092"
TOPIC = "orders"
facts = Facts("confluent-kafka (librdkafka)", f"{confluent_kafka.__version__} ({confluent_kafka.libversion()[0]})")
admin = AdminClient({"bootstrap.servers": BROKERS, "client.id": "leader-setup"})
admin.create_topics([NewTopic(TOPIC, 2, 3, config={"min.insync.replicas": "1"})])[TOPIC].result(20)


def delivered(error, message):
    if error:
        facts.error("steady-producer", "produce", error.code(), error.name())
    else:
        facts.produced("steady-producer", TOPIC, message.partition(), message.offset(), "all", "lz4")


producer = Producer({"bootstrap.servers": BROKERS, "client.id": "steady-producer", "compression.codec": "lz4",
                     "retry.backoff.ms": 200, "error_cb": lambda error: None})


def produce(count):
    for number in range(count):
        producer.produce(TOPIC, b"order %d" % number, partition=number % 2, on_delivery=delivered)
        producer.poll(0.05)
    producer.flush(20)


def leader():
    return admin.list_topics(TOPIC, timeout=10).topics[TOPIC].partitions[0].leader


def pinned(host, count):
    """Ask one broker again and again, whatever it answers."""
    with raw.connected(f"{host}:9092") as connection:
        for number in range(count):
            connection.sendall(raw.fetch(number, b"pinned-consumer", TOPIC, least=1))
            raw.response(connection)
            time.sleep(0.05)


produce(6)
dead = leader()
host = f"127.0.0.{dead}"
pinned(host, 4)
consumer = Consumer({"bootstrap.servers": BROKERS, "client.id": "waiting-consumer", "group.id": "waiting",
                     "fetch.wait.max.ms": 5000, "fetch.error.backoff.ms": 300})
consumer.assign([TopicPartition(TOPIC, 0, 6), TopicPartition(TOPIC, 1, 6)])
consumer.poll(1)
os.kill(int(os.environ["NODE_PIDS"].split(",")[dead - 1]), signal.SIGKILL)
facts.note(killed_node=dead)
produce(4)
deadline = time.monotonic() + 20
while leader() == dead and time.monotonic() < deadline:
    time.sleep(0.5)
facts.note(new_leader=leader())
with restart(dead):
    pinned(host, 60)
    produce(2)
consumer.close()
facts.save()
