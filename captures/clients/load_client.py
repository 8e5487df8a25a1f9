"""Load over TLS by a Python library, until its seconds are over: LIBRARY ROLE SECONDS.

Roles: `small`, `none` and `big` produce (acks all, none, and batches of 100 kB), `read` is a member of a group
that polls for at most 500 ms, `admin` asks for metadata, groups, settings.
"""

import asyncio
import os
import random
import ssl
import sys
import time

library, role, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
END = time.monotonic() + seconds
BOOTSTRAP, AUTHORITY, TOPIC = os.environ["BOOTSTRAP"], os.environ["AUTHORITY"], "orders"
ACKS = {"none": 0}.get(role, "all")


def batches():
    """Values to send at once, and then to wait for some milliseconds."""
    while time.monotonic() < END:
        if role == "big":
            yield [os.urandom(1000)] * 190, 0.04
        else:
            yield [os.urandom(random.randint(20, 400)) for _ in range(random.randint(1, 8))], random.random() * 0.016


def librdkafka():
    from confluent_kafka import Consumer, Producer
    from confluent_kafka.admin import AdminClient, ConfigResource

    tls = {"bootstrap.servers": BOOTSTRAP, "security.protocol": "SSL", "ssl.ca.location": AUTHORITY,
           "client.id": f"load-{role}"}
    if role == "read":
        consumer = Consumer({**tls, "group.id": library, "auto.offset.reset": "latest", "fetch.wait.max.ms": 500,
                             "heartbeat.interval.ms": 1000, "session.timeout.ms": 6000,
                             "auto.commit.interval.ms": 1000})
        consumer.subscribe([TOPIC])
        while time.monotonic() < END:
            consumer.poll(0.1)
        consumer.close()
    elif role == "admin":
        admin = AdminClient(tls)
        while time.monotonic() < END:
            admin.list_topics(timeout=5)
            settings = ConfigResource(ConfigResource.Type.BROKER, "1")
            admin.describe_configs([settings])[settings].result(5)
            admin.list_consumer_groups().result(5)
            time.sleep(random.random() * 0.02)
    else:
        producer = Producer({**tls, "acks": ACKS, "linger.ms": 20 if role == "big" else 0, "batch.size": 100_000})
        for values, pause in batches():
            for value in values:
                producer.produce(TOPIC, value)
                producer.poll(0)
                if role != "big":
                    time.sleep(0.0003)
            time.sleep(pause)
        producer.flush(5)


def kafka_python():
    from kafka import KafkaConsumer, KafkaProducer
    from kafka.admin import KafkaAdminClient

    tls = {"bootstrap_servers": BOOTSTRAP, "security_protocol": "SSL", "client_id": f"load-{role}",
           "ssl_context": ssl.create_default_context(cafile=AUTHORITY)}
    if role == "read":
        consumer = KafkaConsumer(TOPIC, group_id=library, fetch_max_wait_ms=500, heartbeat_interval_ms=1000,
                                 session_timeout_ms=6000, auto_commit_interval_ms=1000, **tls)
        while time.monotonic() < END:
            consumer.poll(100)
        consumer.close()
    elif role == "admin":
        admin = KafkaAdminClient(**tls)
        while time.monotonic() < END:
            admin.describe_topics([TOPIC])
            admin.list_groups()
            admin.describe_cluster()
            time.sleep(random.random() * 0.02)
    else:
        producer = KafkaProducer(acks=ACKS, linger_ms=20 if role == "big" else 0, batch_size=100_000, **tls)
        for values, pause in batches():
            for value in values:
                producer.send(TOPIC, value)
                if role != "big":
                    time.sleep(0.0003)
            time.sleep(pause)
        producer.flush(5)
        producer.close()


async def aiokafka():
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
    from aiokafka.admin import AIOKafkaAdminClient

    tls = {"bootstrap_servers": BOOTSTRAP, "security_protocol": "SSL", "client_id": f"load-{role}",
           "ssl_context": ssl.create_default_context(cafile=AUTHORITY)}
    if role == "read":
        consumer = AIOKafkaConsumer(TOPIC, group_id=library, fetch_max_wait_ms=500, heartbeat_interval_ms=1000,
                                    session_timeout_ms=6000, auto_commit_interval_ms=1000, **tls)
        await consumer.start()
        while time.monotonic() < END:
            await consumer.getmany(timeout_ms=100)
        await consumer.stop()
    elif role == "admin":
        admin = AIOKafkaAdminClient(**tls)
        await admin.start()
        while time.monotonic() < END:
            await admin.describe_topics([TOPIC])
            await admin.list_consumer_groups()
            await admin.describe_cluster()
            await asyncio.sleep(random.random() * 0.02)
        await admin.close()
    else:
        producer = AIOKafkaProducer(acks=ACKS, linger_ms=20 if role == "big" else 0, max_batch_size=100_000, **tls)
        await producer.start()
        for values, pause in batches():
            for value in values:
                await producer.send(TOPIC, value)
                if role != "big":
                    await asyncio.sleep(0.0003)
            await asyncio.sleep(pause)
        await producer.stop()


if library == "aiokafka":
    asyncio.run(aiokafka())
else:
    {"librdkafka": librdkafka, "kafka-python": kafka_python}[library]()
