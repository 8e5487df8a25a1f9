"""Transactions through librdkafka: committed, aborted, consume-transform-produce, and a fenced producer."""

import time

import confluent_kafka
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from facts import BOOTSTRAP, Facts

facts = Facts("confluent-kafka (librdkafka)", f"{confluent_kafka.__version__} ({confluent_kafka.libversion()[0]})")


def fatal(error):
    """Take fatal errors here; without a callback they are raised in whatever call comes next."""
    facts.error("tx-first", "fatal", error.code(), error.name())


def transactional(name, **more):
    producer = Producer({"bootstrap.servers": BOOTSTRAP, "client.id": name, "transactional.id": "tx-orders",
                         "transaction.timeout.ms": 20000, "linger.ms": 5, "error_cb": fatal, **more})
    producer.init_transactions(15)
    return producer


def send(producer, client_id, topic, count, codec="none"):
    def delivered(error, message):
        if error:
            facts.error(client_id, "produce", error.code(), error.name())
        else:
            facts.produced(client_id, message.topic(), message.partition(), message.offset(), "all", codec)
    for number in range(count):
        producer.produce(topic, f"value {number}".encode(), partition=number % 2, on_delivery=delivered)
    producer.flush(10)


def reader(client_id, isolation, group):
    return Consumer({"bootstrap.servers": BOOTSTRAP, "client.id": client_id, "group.id": group,
                     "isolation.level": isolation, "auto.offset.reset": "earliest", "enable.auto.commit": False,
                     "fetch.wait.max.ms": 100})


def drain(consumer, topic, count, label):
    consumer.subscribe([topic])
    seen, deadline = 0, time.monotonic() + 12
    while seen < count and time.monotonic() < deadline:
        message = consumer.poll(0.3)
        if message and not message.error():
            seen += 1
    facts.consumed(f"{topic} ({label})", seen)


admin = AdminClient({"bootstrap.servers": BOOTSTRAP, "client.id": "tx-setup"})
for future in admin.create_topics([NewTopic("orders", 2), NewTopic("invoices", 2)]).values():
    future.result(10)

producer = transactional("tx-first")
producer.begin_transaction()
send(producer, "tx-first", "orders", 6)
producer.commit_transaction(10)
facts.note(transaction="commit", client_id="tx-first")

producer.begin_transaction()
send(producer, "tx-first", "orders", 4)
producer.abort_transaction(10)
facts.note(transaction="abort", client_id="tx-first")

source = reader("tx-source", "read_committed", "tx-group")
drain(source, "orders", 6, "read_committed")
producer.begin_transaction()
send(producer, "tx-first", "invoices", 2)
producer.send_offsets_to_transaction(source.position(source.assignment()), source.consumer_group_metadata(), 10)
producer.commit_transaction(10)
facts.note(transaction="commit with offsets", client_id="tx-first")
source.close()

second = transactional("tx-second", **{"compression.codec": "zstd"})
second.begin_transaction()
send(second, "tx-second", "orders", 2, "zstd")
try:
    producer.begin_transaction()
    send(producer, "tx-first", "orders", 1)
    producer.commit_transaction(10)
except (KafkaException, SystemError) as fenced:
    # A SystemError when the fatal error is raised inside flush; its cause is the KafkaException.
    error = (fenced if isinstance(fenced, KafkaException) else fenced.__cause__).args[0]
    facts.error("tx-first", "commit", error.code(), error.name())
second.commit_transaction(10)
facts.note(transaction="commit", client_id="tx-second")

everything = reader("tx-uncommitted", "read_uncommitted", "tx-all")
drain(everything, "orders", 12, "read_uncommitted")
everything.close()
facts.save()
