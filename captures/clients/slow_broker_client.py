"""The broker stands still for a fifth of a second again and again, as in long garbage collections."""

import os
import signal
import threading
import time

import confluent_kafka
from confluent_kafka import Producer
from facts import BOOTSTRAP, Facts

facts = Facts("confluent-kafka (librdkafka)", f"{confluent_kafka.__version__} ({confluent_kafka.libversion()[0]})")
broker = int(os.environ["NODE_PIDS"])
stop = threading.Event()


def delivered(error, message):
    facts.produced("patient-producer", "orders", message.partition(), message.offset(), "all", "none")


def pause():
    while not stop.wait(0.2):
        os.kill(broker, signal.SIGSTOP)
        time.sleep(0.25)
        os.kill(broker, signal.SIGCONT)


producer = Producer({"bootstrap.servers": BOOTSTRAP, "client.id": "patient-producer", "linger.ms": 5})
producer.produce("orders", b"first", partition=0, on_delivery=delivered)
producer.flush(10)
pausing = threading.Thread(target=pause)
pausing.start()
for number in range(60):
    producer.produce("orders", b"order %d" % number, partition=0, on_delivery=delivered)
    producer.flush(10)
    time.sleep(0.04)
stop.set()
pausing.join()
facts.save()
