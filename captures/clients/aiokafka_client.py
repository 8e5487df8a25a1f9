"""aiokafka: all codecs, a transaction committed and one aborted, a group of two."""

import asyncio

import aiokafka
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError
from facts import BOOTSTRAP, Facts

TOPIC = "orders"
facts = Facts("aiokafka", aiokafka.__version__)


async def produce(codec, acks):
    client_id = f"aiokafka-{codec}-acks-{acks}"
    producer = AIOKafkaProducer(bootstrap_servers=BOOTSTRAP, client_id=client_id, acks=acks, linger_ms=20,
                                compression_type=None if codec == "none" else codec)
    await producer.start()
    try:
        batch = producer.create_batch()
        for number in range(5):
            batch.append(key=None, value=b"batched value, value, value %d" % number, timestamp=None)
        done = await (await producer.send_batch(batch, TOPIC, partition=0))
        base = done.offset if done and acks != 0 else None
        for number in range(5):
            facts.produced(client_id, TOPIC, 0, None if base is None else base + number, str(acks), codec)
        done = await producer.send_and_wait(TOPIC, b"single", key=b"k", partition=1, headers=[("h", b"v")])
        facts.produced(client_id, TOPIC, 1, done.offset if done and acks != 0 else None, str(acks), codec)
    finally:
        await producer.stop()


async def transactions():
    client_id = "aiokafka-transactional"
    producer = AIOKafkaProducer(bootstrap_servers=BOOTSTRAP, client_id=client_id, transactional_id="aio-tx")
    await producer.start()
    try:
        for outcome in ("commit", "abort"):
            await producer.begin_transaction()
            for number in range(3):
                done = await producer.send_and_wait(TOPIC, b"transactional %d" % number, partition=number % 2)
                facts.produced(client_id, TOPIC, done.partition, done.offset, "all", "none", transaction=outcome)
            if outcome == "commit":
                await producer.send_offsets_to_transaction({TopicPartition(TOPIC, 0): 3}, "aio-tx-group")
                await producer.commit_transaction()
            else:
                await producer.abort_transaction()
            facts.note(transaction=outcome, client_id=client_id)
    finally:
        await producer.stop()


async def member(name):
    consumer = AIOKafkaConsumer(TOPIC, bootstrap_servers=BOOTSTRAP, client_id=name, group_id="aiokafka-group",
                                auto_offset_reset="earliest", isolation_level="read_committed",
                                heartbeat_interval_ms=500, session_timeout_ms=6000, fetch_max_wait_ms=200)
    await consumer.start()
    return consumer


async def drain(consumer, seconds):
    end = asyncio.get_running_loop().time() + seconds
    while asyncio.get_running_loop().time() < end:
        for records in (await consumer.getmany(timeout_ms=200)).values():
            facts.consumed(TOPIC, len(records))


async def group():
    first = await member("aiokafka-first")
    await drain(first, 1.5)
    joining = asyncio.create_task(member("aiokafka-second"))
    await drain(first, 2.5)
    second = await joining
    await asyncio.gather(drain(first, 1.5), drain(second, 1.5))
    facts.note(assignments=[sorted(p.partition for p in one.assignment()) for one in (first, second)])
    await second.stop()
    await drain(first, 2)
    await first.stop()


async def main():
    admin = AIOKafkaAdminClient(bootstrap_servers=BOOTSTRAP, client_id="aiokafka-admin")
    await admin.start()
    await admin.create_topics([NewTopic(TOPIC, 2, 1)])
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        for acks in (0, 1, "all"):
            await produce(codec, acks)
    try:
        await transactions()
    except KafkaError as failed:
        facts.error("aiokafka-transactional", "transaction", failed.errno, type(failed).__name__)
    await group()
    await admin.describe_consumer_groups(["aiokafka-group"])
    await admin.delete_topics([TOPIC])
    await admin.close()
    facts.save()


asyncio.run(main())
