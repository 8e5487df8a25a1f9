"""A producer and a consumer over a network that loses some packets of both directions."""

import confluent_kafka
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from facts import BOOTSTRAP, Facts

TOPIC = "orders"
facts = Facts("confluent-kafka (librdkafka)", f"{confluent_kafka.__version__} ({confluent_kafka.libversion()[0]})")
admin = AdminClient({"bootstrap.servers": BOOTSTRAP, "client.id": "lossy-setup"})
admin.create_topics([NewTopic(TOPIC, 1)])[TOPIC].result(30)


def delivered(error, message):
    facts.produced("far-producer", TOPIC, message.partition(), message.offset(), "all", "none")


producer = Producer({"bootstrap.servers": BOOTSTRAP, "client.id": "far-producer", "linger.ms": 5})
for number in range(40):
    producer.produce(TOPIC, b"%04d " % number * 2000, partition=0, on_delivery=delivered)
    producer.flush(30)
consumer = Consumer({"bootstrap.servers": BOOTSTRAP, "client.id": "far-consumer", "group.id": "none",
                     "enable.auto.commit": False, "fetch.message.max.bytes": 30_000})
consumer.assign([TopicPartition(TOPIC, 0, 0)])
while facts.body["consumed"].get(TOPIC, 0) < 40:
    message = consumer.poll(30)
    if message is None or message.error():
        break
    facts.consumed(TOPIC)
consumer.close()
facts.save()
