"""A producer and a consumer that keep their connections for some seconds: for a capture that starts in the middle."""

import sys
import time

import confluent_kafka
from confluent_kafka import OFFSET_END, Consumer, Producer, TopicPartition
from facts import BOOTSTRAP, Facts

facts = Facts("confluent-kafka (librdkafka)", f"{confluent_kafka.__version__} ({confluent_kafka.libversion()[0]})")
TOPIC = "orders"


def delivered(error, message):
    if error:
        facts.error("steady-producer", "produce", error.code(), error.name())
    else:
        facts.produced("steady-producer", TOPIC, message.partition(), message.offset(), "all", "snappy", at=time.time())


producer = Producer({"bootstrap.servers": BOOTSTRAP, "client.id": "steady-producer", "compression.codec": "snappy"})
producer.produce(TOPIC, b"first", partition=0)
producer.flush(10)
consumer = Consumer({"bootstrap.servers": BOOTSTRAP, "client.id": "steady-consumer", "group.id": "steady",
                     "fetch.wait.max.ms": 300, "enable.auto.commit": False})
consumer.assign([TopicPartition(TOPIC, 0, OFFSET_END)])
deadline = time.monotonic() + float(sys.argv[1])
number = 0
while time.monotonic() < deadline:
    number += 1
    producer.produce(TOPIC, f"steady {number}".encode(), partition=0, on_delivery=delivered)
    producer.poll(0)
    time.sleep(0.08)
    message = consumer.poll(0.1)
    if message and not message.error():
        facts.consumed(TOPIC)
producer.flush(5)
consumer.close()
facts.save()
