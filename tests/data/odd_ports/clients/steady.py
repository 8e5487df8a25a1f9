"""A producer and a consumer in a group that keep their connections for some seconds: `steady.py LIBRARY SECONDS`."""

import asyncio
import json
import os
import sys
import threading
import time

BOOTSTRAP = os.environ["BOOTSTRAP"]
PAUSE = 0.06
produced = []


def acknowledged(partition, offset):
    produced.append({"partition": partition, "offset": offset})


def librdkafka(end):
    from confluent_kafka import Consumer, Producer

    def delivered(error, message):
        if error is None:
            acknowledged(message.partition(), message.offset())

    producer = Producer({"bootstrap.servers": BOOTSTRAP, "client.id": "librdkafka-producer", "linger.ms": 2})
    settings = {"client.id": "librdkafka-consumer", "group.id": "librdkafka", "fetch.wait.max.ms": 300}
    consumer = Consumer({"bootstrap.servers": BOOTSTRAP, "auto.offset.reset": "earliest", **settings})
    producer.produce("orders", b"first", on_delivery=delivered)
    producer.flush(10)
    consumer.subscribe(["orders"])
    while time.time() < end:
        producer.produce("orders", b"steady", on_delivery=delivered)
        producer.poll(0)
        consumer.poll(PAUSE)
        time.sleep(PAUSE / 2)
    producer.flush(5)
    consumer.close()


def kafka_python(end):
    from kafka import KafkaConsumer, KafkaProducer

    def read():
        settings = {"client_id": "kafka-python-consumer", "group_id": "kafka-python", "fetch_max_wait_ms": 300}
        consumer = KafkaConsumer("orders", bootstrap_servers=BOOTSTRAP, auto_offset_reset="earliest", **settings)
        while time.time() < end:
            consumer.poll(timeout_ms=200)
        consumer.close()

    producer = KafkaProducer(bootstrap_servers=BOOTSTRAP, client_id="kafka-python-producer", acks="all")
    reader = threading.Thread(target=read)
    reader.start()
    while time.time() < end:
        done = producer.send("orders", b"steady").get(20)
        acknowledged(done.partition, done.offset)
        time.sleep(PAUSE)
    reader.join()
    producer.close()


async def aiokafka(end):
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

    producer = AIOKafkaProducer(bootstrap_servers=BOOTSTRAP, client_id="aiokafka-producer", acks="all")
    await producer.start()
    settings = {"client_id": "aiokafka-consumer", "group_id": "aiokafka", "fetch_max_wait_ms": 300}
    consumer = AIOKafkaConsumer("orders", bootstrap_servers=BOOTSTRAP, auto_offset_reset="earliest", **settings)
    await consumer.start()

    async def read():
        while time.time() < end:
            await consumer.getmany(timeout_ms=200)

    reader = asyncio.create_task(read())
    while time.time() < end:
        done = await producer.send_and_wait("orders", b"steady")
        acknowledged(done.partition, done.offset)
        await asyncio.sleep(PAUSE)
    await reader
    await consumer.stop()
    await producer.stop()


def main():
    library, seconds = sys.argv[1], float(sys.argv[2])
    end = time.time() + seconds
    if library == "aiokafka":
        asyncio.run(aiokafka(end))
    else:
        {"librdkafka": librdkafka, "kafka-python": kafka_python}[library](end)
    with open(os.environ["FACTS"], "w") as out:
        json.dump({"produced": produced}, out)


main()
