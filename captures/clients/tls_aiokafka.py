"""aiokafka over plaintext and TLS: what it does is named by the arguments."""

import asyncio
import os
import ssl
import sys

import aiokafka
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError
from facts import Facts
from tls_settings import ENCRYPTED, PASSWORD, PLAINTEXT, SASL_SSL, TOPIC, USER, context

facts = Facts("aiokafka", aiokafka.__version__)


def sasl(mechanism):
    return {"bootstrap_servers": SASL_SSL, "security_protocol": "SASL_SSL", "sasl_mechanism": mechanism,
            "sasl_plain_username": USER, "sasl_plain_password": PASSWORD, "ssl_context": context()}


def tls(**more):
    return {"bootstrap_servers": ENCRYPTED, "security_protocol": "SSL", "ssl_context": context(**more)}


WAYS = {
    "plaintext": lambda: {"bootstrap_servers": PLAINTEXT},
    "tls": tls,
    "large": tls,
    "plain": lambda: sasl("PLAIN"),
    "scram": lambda: sasl("SCRAM-SHA-256"),
    "mutual": lambda: tls(mutual=True),
    "mutual-1.2": lambda: tls(mutual=True, version=ssl.TLSVersion.TLSv1_2),
    "stranger": tls,
}


async def read(client_id, count, security):
    consumer = AIOKafkaConsumer(client_id=client_id, group_id=client_id, auto_offset_reset="earliest",
                                fetch_max_wait_ms=300, **security)
    consumer.assign([TopicPartition(TOPIC, 0)])
    await consumer.start()
    consumed, deadline = 0, asyncio.get_running_loop().time() + 10
    while consumed < count and asyncio.get_running_loop().time() < deadline:
        consumed += sum(map(len, (await consumer.getmany(timeout_ms=300)).values()))
    facts.consumed(TOPIC, consumed)
    await consumer.stop()


async def everything(name, count, size):
    security = WAYS[name]()
    admin = AIOKafkaAdminClient(client_id=f"aiokafka-{name}-admin", **security)
    await admin.start()
    for _ in range(2):
        made = await admin.create_topics([NewTopic(TOPIC, 1, 1)])
        for _, code, *_ in made.topic_errors:
            if code:
                facts.error(f"aiokafka-{name}-admin", "create_topics", code, "TopicAlreadyExistsError")
    producer = AIOKafkaProducer(client_id=f"aiokafka-{name}", acks="all", **security)
    await producer.start()
    for _ in range(count):
        done = await producer.send_and_wait(TOPIC, os.urandom(size).hex().encode(), partition=0)
        facts.produced(f"aiokafka-{name}", TOPIC, 0, done.offset, "all", "none")
    await producer.stop()
    await read(f"aiokafka-{name}-reader", count, security)
    await admin.delete_topics([TOPIC])
    await admin.close()
    await asyncio.sleep(0.5)


async def refused(name):
    producer = AIOKafkaProducer(client_id=f"aiokafka-{name}", request_timeout_ms=2000, **WAYS[name]())
    try:
        await producer.start()
    except KafkaError as failed:
        facts.error(f"aiokafka-{name}", "connect", getattr(failed, "errno", None), type(failed).__name__)
    await producer.stop()


async def main():
    large = "large" in sys.argv
    for name in sys.argv[1:]:
        if name == "stranger":
            await refused(name)
        else:
            await everything(name, 12 if large else 3, 500 if large else 10)
    facts.save()


asyncio.run(main())
