"""librdkafka over plaintext and then over TLS, as its Python package carries it, with OpenSSL inside."""

import time

import confluent_kafka
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from facts import Facts
from tls_settings import AUTHORITY, ENCRYPTED, PASSWORD, PLAINTEXT, SASL_SSL, TOPIC, USER

facts = Facts("confluent-kafka (librdkafka)", f"{confluent_kafka.__version__} ({confluent_kafka.libversion()[0]})")
TLS = {"bootstrap.servers": ENCRYPTED, "security.protocol": "SSL", "ssl.ca.location": AUTHORITY}
SCRAM = {**TLS, "bootstrap.servers": SASL_SSL, "security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-256",
         "sasl.username": USER, "sasl.password": PASSWORD}


def create(admin, client_id):
    try:
        admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(10)
    except confluent_kafka.KafkaException as failed:
        facts.error(client_id, "create_topics", failed.args[0].code(), failed.args[0].name())


def everything(name, security):
    client_id = f"rdkafka-{name}"

    def delivered(error, message):
        assert not error
        facts.produced(client_id, TOPIC, message.partition(), message.offset(), "all", "zstd")

    admin = AdminClient({"client.id": f"{client_id}-admin", **security})
    create(admin, f"{client_id}-admin")
    create(admin, f"{client_id}-admin")
    producer = Producer({"client.id": client_id, "compression.codec": "zstd", **security})
    for number in range(3):
        producer.produce(TOPIC, b"a secret, a secret, a secret %d" % number, partition=0, on_delivery=delivered)
    producer.flush(5)
    consumer = Consumer({"client.id": f"{client_id}-reader", "group.id": name, "auto.offset.reset": "earliest",
                         "fetch.wait.max.ms": 300, **security})
    consumer.subscribe([TOPIC])
    count, deadline = 0, time.monotonic() + 10
    while count < 3 and time.monotonic() < deadline:
        message = consumer.poll(0.3)
        count += bool(message and not message.error())
    facts.consumed(TOPIC, count)
    consumer.close()
    admin.delete_topics([TOPIC])[TOPIC].result(10)
    time.sleep(0.5)


everything("plaintext", {"bootstrap.servers": PLAINTEXT})
everything("tls", TLS)
everything("scram", SCRAM)
facts.save()
