"""A monitor that asks for the metadata of everything in a tight loop."""

import time

import confluent_kafka
from confluent_kafka.admin import AdminClient, NewTopic
from facts import BOOTSTRAP, Facts

facts = Facts("confluent-kafka (librdkafka)", f"{confluent_kafka.__version__} ({confluent_kafka.libversion()[0]})")
admin = AdminClient({"bootstrap.servers": BOOTSTRAP, "client.id": "busy-monitor"})
for created in admin.create_topics([NewTopic(f"topic-{number}", 3) for number in range(5)]).values():
    created.result(10)
for _ in range(120):
    topics = admin.list_topics(timeout=10).topics
    time.sleep(0.02)
facts.note(topics=len(topics))
facts.save()
