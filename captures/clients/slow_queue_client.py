"""A client that waits for data and asks for metadata on one connection: the broker answers in order, so the quick
request waits for the slow one."""

import time

import confluent_kafka
import raw
from confluent_kafka.admin import AdminClient, NewTopic
from facts import BOOTSTRAP, Facts

TOPIC, NAME = "orders", b"one-connection"
facts = Facts("confluent-kafka (librdkafka)", f"{confluent_kafka.__version__} ({confluent_kafka.libversion()[0]})")
admin = AdminClient({"bootstrap.servers": BOOTSTRAP, "client.id": "queue-setup"})
admin.create_topics([NewTopic(TOPIC, 1)])[TOPIC].result(10)
time.sleep(2)  # until the broker leads the partition
with raw.connected(BOOTSTRAP) as connection:
    for number in range(30):
        connection.sendall(raw.fetch(2 * number, NAME, TOPIC, max_wait_ms=250, least=1))
        connection.sendall(raw.metadata(2 * number + 1, NAME, TOPIC))
        raw.response(connection)
        raw.response(connection)
facts.save()
