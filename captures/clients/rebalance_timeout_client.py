"""One of two members of a group is stopped until its session is over, and comes back; then it is too slow to poll."""

import os
import signal
import subprocess
import sys
import time

import confluent_kafka
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from facts import BOOTSTRAP, Facts

TOPIC, GROUP = "orders", "billing"


def member(client_id):
    consumer = Consumer({"bootstrap.servers": BOOTSTRAP, "client.id": client_id, "group.id": GROUP,
                         "auto.offset.reset": "earliest", "session.timeout.ms": 2000, "heartbeat.interval.ms": 300,
                         "fetch.wait.max.ms": 400})
    consumer.subscribe([TOPIC])
    return consumer


if sys.argv[1:] == ["frozen"]:
    frozen = member("billing-frozen")
    while True:
        frozen.poll(0.2)

facts = Facts("confluent-kafka (librdkafka)", f"{confluent_kafka.__version__} ({confluent_kafka.libversion()[0]})")
admin = AdminClient({"bootstrap.servers": BOOTSTRAP, "client.id": "billing-setup"})
admin.create_topics([NewTopic(TOPIC, 2)])[TOPIC].result(10)
producer = Producer({"bootstrap.servers": BOOTSTRAP, "client.id": "billing-feeder"})
for number in range(6):
    producer.produce(TOPIC, b"bill %d" % number, partition=number % 2)
producer.flush(10)

steady = member("billing-steady")


def poll(seconds):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        message = steady.poll(0.1)
        if message and not message.error():
            facts.consumed(TOPIC)


other = subprocess.Popen([sys.executable, __file__, "frozen"], env=os.environ)
try:
    poll(4)
    for _ in range(2):
        os.kill(other.pid, signal.SIGSTOP)
        facts.note(event="stopped")
        poll(4.5)
        os.kill(other.pid, signal.SIGCONT)
        facts.note(event="continued")
        poll(3)
finally:
    os.kill(other.pid, signal.SIGCONT)
    other.kill()
    other.wait()
steady.close()
facts.save()
