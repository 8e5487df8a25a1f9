"""A producer whose key makes one of six partitions take nearly everything, in JSON without compression."""

import json

import confluent_kafka
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from facts import BOOTSTRAP, Facts

TOPIC = "events"
facts = Facts("confluent-kafka (librdkafka)", f"{confluent_kafka.__version__} ({confluent_kafka.libversion()[0]})")
admin = AdminClient({"bootstrap.servers": BOOTSTRAP, "client.id": "hot-setup"})
admin.create_topics([NewTopic(TOPIC, 6)])[TOPIC].result(10)


def delivered(error, message):
    facts.produced("skewed-producer", TOPIC, message.partition(), message.offset(), "all", "none")


producer = Producer({"bootstrap.servers": BOOTSTRAP, "client.id": "skewed-producer", "linger.ms": 20,
                     "enable.idempotence": True})
for number in range(3600):
    key = b"tenant-0" if number % 10 else b"tenant-%d" % (number // 10)
    value = {"tenant": key.decode(), "event": "page_view", "page": "/shop/cart", "user_agent": "Mozilla/5.0 " * 30}
    producer.produce(TOPIC, json.dumps(value).encode(), key, on_delivery=delivered)
    producer.poll(0)
producer.flush(20)
facts.save()
