"""Consumer groups through librdkafka: two members join, one leaves; classic, cooperative and KIP-848 protocols."""

import time

import confluent_kafka
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from facts import BOOTSTRAP, Facts

TOPIC = "orders"
facts = Facts("confluent-kafka (librdkafka)", f"{confluent_kafka.__version__} ({confluent_kafka.libversion()[0]})")


def member(group, client_id, **more):
    consumer = Consumer({"bootstrap.servers": BOOTSTRAP, "client.id": client_id, "group.id": group,
                         "auto.offset.reset": "earliest", "auto.commit.interval.ms": 500,
                         "fetch.wait.max.ms": 200, **more})

    def say(what):
        def callback(_consumer, partitions):
            found = sorted(p.partition for p in partitions)
            facts.note(group=group, client_id=client_id, event=what, partitions=found)
        return callback

    consumer.subscribe([TOPIC], on_assign=say("assigned"), on_revoke=say("revoked"))
    return consumer


def poll(consumers, seconds):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        for consumer in consumers:
            message = consumer.poll(0.05)
            if message and not message.error():
                facts.consumed(TOPIC)


def rebalance(group, **more):
    first = member(group, f"{group}-first", **more)
    poll([first], 1.8)
    second = member(group, f"{group}-second", **more)
    poll([first, second], 2.6)
    second.close()
    poll([first], 1.8)
    first.close()


admin = AdminClient({"bootstrap.servers": BOOTSTRAP, "client.id": "group-setup"})
admin.create_topics([NewTopic(TOPIC, 4)])[TOPIC].result(10)
producer = Producer({"bootstrap.servers": BOOTSTRAP, "client.id": "group-feeder"})
for number in range(12):
    producer.produce(TOPIC, f"value {number}".encode(), partition=number % 4)
producer.flush(10)

classic = {"heartbeat.interval.ms": 500, "session.timeout.ms": 6000}
rebalance("range", **classic)
rebalance("cooperative", **classic, **{"partition.assignment.strategy": "cooperative-sticky"})
static = member("static", "static-member", **classic, **{"group.instance.id": "instance-1"})
poll([static], 1.5)
static.close()
rebalance("kip848", **{"group.protocol": "consumer"})
facts.save()
