"""A client set up for TLS at a plaintext listener, beside one that speaks as it should."""

import confluent_kafka
from confluent_kafka import Producer
from facts import BOOTSTRAP, Facts

facts = Facts("confluent-kafka (librdkafka)", f"{confluent_kafka.__version__} ({confluent_kafka.libversion()[0]})")


def produce(client_id, **more):
    def delivered(error, message):
        if error:
            facts.error(client_id, "produce", error.code(), error.name())
        else:
            facts.produced(client_id, message.topic(), message.partition(), message.offset(), "all", "none")
    producer = Producer({"bootstrap.servers": BOOTSTRAP, "client.id": client_id, "message.timeout.ms": 2500,
                         "reconnect.backoff.ms": 200, "error_cb": lambda error: None, **more})
    for number in range(2):
        producer.produce("orders", b"order %d" % number, partition=0, on_delivery=delivered)
    producer.flush(4)


produce("plain-producer")
produce("tls-producer", **{"security.protocol": "SSL", "enable.ssl.certificate.verification": False})
facts.save()
