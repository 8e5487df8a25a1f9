"""TLS: a client that succeeds, one that speaks plaintext to the TLS port, and one the broker's key does not please."""

import confluent_kafka
from confluent_kafka import Producer
from facts import BOOTSTRAP, Facts

facts = Facts("confluent-kafka (librdkafka)", f"{confluent_kafka.__version__} ({confluent_kafka.libversion()[0]})")


def produce(client_id, **more):
    def delivered(error, message):
        if error:
            facts.error(client_id, "produce", error.code(), error.name())
        else:
            facts.produced(client_id, message.topic(), message.partition(), message.offset(), "all", "zstd")
    producer = Producer({"bootstrap.servers": BOOTSTRAP, "client.id": client_id, "message.timeout.ms": 1500,
                         "compression.codec": "zstd", "reconnect.backoff.ms": 500, "error_cb": lambda error: None,
                         **more})
    for number in range(3):
        producer.produce("orders", b"secret %d" % number, partition=0, on_delivery=delivered)
    producer.flush(4)


produce("rdkafka-tls", **{"security.protocol": "SSL", "enable.ssl.certificate.verification": False})
produce("rdkafka-distrustful", **{"security.protocol": "SSL"})
produce("rdkafka-plaintext")
facts.save()
