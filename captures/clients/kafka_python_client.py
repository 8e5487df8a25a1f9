"""kafka-python: admin, produce with codecs and acks, a group with a rebalance."""

import sys
import time

import kafka
from facts import BOOTSTRAP, Facts
from kafka import KafkaConsumer, KafkaProducer
from kafka.admin import KafkaAdminClient, NewTopic
from kafka.errors import KafkaError

TOPIC = "orders"
facts = Facts("kafka-python", kafka.__version__)
codecs = sys.argv[1].split(",") if len(sys.argv) > 1 else ["none", "gzip", "snappy", "lz4", "zstd"]


def call(what, function, *arguments, **more):
    try:
        function(*arguments, **more)
        facts.note(call=what, outcome="ok")
    except KafkaError as failed:
        facts.error("kafka-python-admin", what, getattr(failed, "errno", None), type(failed).__name__)
    except Exception as failed:  # what a broker of another make does not know is a finding, too
        facts.note(call=what, outcome=type(failed).__name__)


def produce(codec, acks):
    client_id = f"kafka-python-{codec}-acks-{acks}"
    producer = KafkaProducer(bootstrap_servers=BOOTSTRAP, client_id=client_id, acks=acks, linger_ms=20,
                             compression_type=None if codec == "none" else codec, enable_idempotence=False)
    futures = [producer.send(TOPIC, f"value {number} of a long and repetitive text text text".encode(),
                             key=b"key-%d" % number, partition=number % 2, headers=[("n", b"%d" % number)] if "zstd" in codecs else None)
               for number in range(4)]
    producer.flush(10)
    for future in futures:
        try:
            done = future.get(5)
        except KafkaError as failed:
            facts.error(client_id, "produce", getattr(failed, "errno", None), type(failed).__name__)
            continue
        offset = done.offset if acks != 0 else None
        facts.produced(client_id, TOPIC, done.partition, offset, str(acks), codec)
    producer.close()


def member(name):
    consumer = KafkaConsumer(bootstrap_servers=BOOTSTRAP, client_id=name, group_id="kafka-python-group",
                             auto_offset_reset="earliest", heartbeat_interval_ms=500, session_timeout_ms=6000,
                             fetch_max_wait_ms=200)
    consumer.subscribe([TOPIC])
    return consumer


def poll(consumers, seconds):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        for consumer in consumers:
            for records in consumer.poll(timeout_ms=200).values():
                facts.consumed(TOPIC, len(records))


admin = KafkaAdminClient(bootstrap_servers=BOOTSTRAP, client_id="kafka-python-admin")
call("create_topics", admin.create_topics, [NewTopic(TOPIC, 2, 1)])
call("create_topics again", admin.create_topics, [NewTopic(TOPIC, 2, 1)])
call("list_topics", admin.list_topics)
call("describe_topics", admin.describe_topics, [TOPIC])
for codec in codecs:
    for acks in (0, 1, "all"):
        produce(codec, acks)
first = member("kafka-python-first")
poll([first], 2.5)
second = member("kafka-python-second")
poll([first, second], 4)
second.close()
poll([first], 2)
facts.note(assignment=sorted(p.partition for p in first.assignment()))
first.close()
call("list_groups", admin.list_groups)
call("describe_groups", admin.describe_groups, ["kafka-python-group"])
call("delete_topics", admin.delete_topics, [TOPIC])
admin.close()
facts.save()
