"""A producer that sends each record alone, as fast as it gets answers."""

import confluent_kafka
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from facts import BOOTSTRAP, Facts

TOPIC = "readings"
facts = Facts("confluent-kafka (librdkafka)", f"{confluent_kafka.__version__} ({confluent_kafka.libversion()[0]})")
admin = AdminClient({"bootstrap.servers": BOOTSTRAP, "client.id": "tiny-setup"})
admin.create_topics([NewTopic(TOPIC, 1)])[TOPIC].result(10)


def delivered(error, message):
    facts.produced("one-by-one", TOPIC, message.partition(), message.offset(), "1", "none")


producer = Producer({"bootstrap.servers": BOOTSTRAP, "client.id": "one-by-one", "linger.ms": 0, "acks": 1,
                     "batch.num.messages": 1})
for number in range(700):
    producer.produce(TOPIC, b"21.5", partition=0, on_delivery=delivered)
    producer.poll(0.001)
producer.flush(20)
facts.save()
