"""Errors as a client meets them: unknown topics, a record too large, offsets out of range, a wrong group."""

import time

import confluent_kafka
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from facts import BOOTSTRAP, Facts

facts = Facts("confluent-kafka (librdkafka)", f"{confluent_kafka.__version__} ({confluent_kafka.libversion()[0]})")


def produce(client_id, topic, value, **more):
    def delivered(error, message):
        if error:
            facts.error(client_id, f"produce to {topic}", error.code(), error.name())
        else:
            facts.produced(client_id, topic, message.partition(), message.offset(), more.get("acks", "all"), "none")
    producer = Producer({"bootstrap.servers": BOOTSTRAP, "client.id": client_id, "message.timeout.ms": 2500,
                         "allow.auto.create.topics": False, **more})
    producer.produce(topic, value, partition=0, on_delivery=delivered)
    producer.flush(5)


def consume(client_id, topic, offset, group="errors"):
    consumer = Consumer({"bootstrap.servers": BOOTSTRAP, "client.id": client_id, "group.id": group,
                         "auto.offset.reset": "error", "enable.auto.commit": False, "fetch.wait.max.ms": 100,
                         "allow.auto.create.topics": False})
    consumer.assign([TopicPartition(topic, 0, offset)])
    deadline = time.monotonic() + 2
    while time.monotonic() < deadline:
        message = consumer.poll(0.2)
        if message and message.error():
            facts.error(client_id, f"fetch {topic}@{offset}", message.error().code(), message.error().name())
            break
    return consumer


admin = AdminClient({"bootstrap.servers": BOOTSTRAP, "client.id": "error-setup"})
small = NewTopic("small", 1, config={"max.message.bytes": "1000"})
admin.create_topics([small])["small"].result(10)

produce("fits", "small", b"fits")
produce("too-large", "small", b"x" * 4000)
produce("too-few-replicas", "small", b"acks", acks="1")
produce("unknown-topic", "missing", b"nobody")
produce("invalid-topic", "no/such:name", b"nobody")
consume("past-the-end", "small", 999).close()
consume("unknown-partition", "missing", 0).close()

committer = consume("illegal-commit", "small", 0, group="live")
try:
    committer.commit(offsets=[TopicPartition("missing", 7, 3)], asynchronous=False)
except KafkaException as failed:
    facts.error("illegal-commit", "commit", failed.args[0].code(), failed.args[0].name())
committer.close()

try:
    fenced = Producer({"bootstrap.servers": BOOTSTRAP, "client.id": "bad-timeout", "transactional.id": "tx",
                       "transaction.timeout.ms": 2000000})
    fenced.init_transactions(4)
except KafkaException as failed:
    facts.error("bad-timeout", "init_transactions", failed.args[0].code(), failed.args[0].name())
facts.save()
