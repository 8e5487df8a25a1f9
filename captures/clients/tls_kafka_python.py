"""kafka-python over plaintext and then over TLS 1.2, with one cipher suite after the other."""

import ssl
import time

import kafka
from facts import Facts
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import KafkaAdminClient, NewTopic
from kafka.errors import KafkaError
from tls_settings import ENCRYPTED, PLAINTEXT, TOPIC, context

SUITES = (
    "ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-RSA-AES256-GCM-SHA384", "ECDHE-RSA-CHACHA20-POLY1305",
    "ECDHE-RSA-AES128-SHA256", "ECDHE-RSA-AES256-SHA384", "ECDHE-RSA-AES128-SHA", "ECDHE-RSA-AES256-SHA",
    "AES128-GCM-SHA256", "AES256-SHA256", "AES128-SHA",
)
facts = Facts("kafka-python", kafka.__version__)


def produce(client_id, count=2, **security):
    producer = KafkaProducer(client_id=client_id, enable_idempotence=False, linger_ms=20, **security)
    futures = [producer.send(TOPIC, b"secret %d" % number, partition=0) for number in range(count)]
    for future in futures:
        facts.produced(client_id, TOPIC, 0, future.get(5).offset, "1", "none")
    producer.close()


def everything(name, **security):
    admin = KafkaAdminClient(client_id=f"kafka-python-{name}-admin", **security)
    admin.create_topics([NewTopic(TOPIC, 1, 1)])
    try:
        admin.create_topics([NewTopic(TOPIC, 1, 1)])
    except KafkaError as failed:
        facts.error(f"kafka-python-{name}-admin", "create_topics", failed.errno, type(failed).__name__)
    produce(f"kafka-python-{name}", 3, **security)
    consumer = KafkaConsumer(client_id=f"kafka-python-{name}-reader", group_id=None, auto_offset_reset="earliest",
                             fetch_max_wait_ms=300, **security)
    consumer.assign([TopicPartition(TOPIC, 0)])
    read, deadline = 0, time.monotonic() + 10
    while read < 3 and time.monotonic() < deadline:
        read += sum(map(len, consumer.poll(timeout_ms=300).values()))
    facts.consumed(TOPIC, read)
    consumer.close()
    admin.delete_topics([TOPIC])
    admin.close()
    time.sleep(0.5)


everything("plaintext", bootstrap_servers=PLAINTEXT)
encrypted = {"bootstrap_servers": ENCRYPTED, "security_protocol": "SSL"}
everything("tls", ssl_context=context(ssl.TLSVersion.TLSv1_2), **encrypted)
admin = KafkaAdminClient(client_id="kafka-python-admin", bootstrap_servers=PLAINTEXT)
admin.create_topics([NewTopic(TOPIC, 1, 1)])
admin.close()
for suite in SUITES:
    produce(f"kafka-python-{suite}", ssl_context=context(ssl.TLSVersion.TLSv1_2, f"{suite}:@SECLEVEL=1"), **encrypted)
    facts.note(client_id=f"kafka-python-{suite}", suite=suite)
facts.save()
