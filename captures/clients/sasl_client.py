"""Authentication: each mechanism, wrong passwords, a user without rights, and authentication anew in mid-connection.

The user names and passwords were made up for this sample and are good nowhere else.
"""

import asyncio
import sys
import time

import aiokafka
import confluent_kafka
import kafka
from aiokafka import AIOKafkaProducer
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from facts import BOOTSTRAP, Facts

TOPIC = "orders"
OLD = "old" in sys.argv  # a broker of 0.10: PLAIN only
SECURITY = "SASL_SSL" if "tls" in sys.argv else "SASL_PLAINTEXT"
versions = f"{confluent_kafka.libversion()[0]}, {kafka.__version__}, {aiokafka.__version__}"
facts = Facts("librdkafka, kafka-python, aiokafka", versions)


def settings(client_id, mechanism, user, password, **more):
    credentials = {"sasl.username": user, "sasl.password": password}
    if mechanism == "OAUTHBEARER":
        credentials = {"enable.sasl.oauthbearer.unsecure.jwt": True, "sasl.oauthbearer.config": f"principal={user}"}
    return {"bootstrap.servers": BOOTSTRAP, "client.id": client_id, "security.protocol": SECURITY,
            "sasl.mechanism": mechanism, "enable.ssl.certificate.verification": False, **credentials, **more}


def produce(client_id, mechanism, user, password, count=2):
    def delivered(error, message):
        if error:
            facts.error(client_id, "produce", error.code(), error.name())
        else:
            facts.produced(client_id, TOPIC, message.partition(), message.offset(), "all", "none")

    def failed(error):
        if error.name() in ("_AUTHENTICATION", "_SSL") and not any(e["client_id"] == client_id for e in facts.body["errors"]):
            facts.error(client_id, "connect", error.code(), error.name())

    config = settings(client_id, mechanism, user, password, **{"message.timeout.ms": 2000, "error_cb": failed})
    producer = Producer(config)
    for number in range(count):
        producer.produce(TOPIC, b"authenticated %d" % number, partition=0, on_delivery=delivered)
    producer.flush(3)


def forbidden(user, password):
    client_id = f"rdkafka-{user}"
    produce(client_id, "PLAIN", user, password, 1)
    consumer = Consumer(settings(client_id, "PLAIN", user, password, **{"group.id": "secret", "fetch.wait.max.ms": 100}))
    try:
        consumer.commit(offsets=[TopicPartition(TOPIC, 0, 1)], asynchronous=False)
    except KafkaException as refused:
        facts.error(client_id, "commit", refused.args[0].code(), refused.args[0].name())
    consumer.close()
    admin = AdminClient(settings(client_id, "PLAIN", user, password))
    try:
        admin.create_topics([NewTopic("forbidden", 1)])["forbidden"].result(5)
    except KafkaException as refused:
        facts.error(client_id, "create_topics", refused.args[0].code(), refused.args[0].name())


def stay(seconds):
    """Consume long enough for the broker to ask for the credentials again."""
    consumer = Consumer(settings("rdkafka-staying", "PLAIN", "alice", "throw-away-1",
                                 **{"group.id": "stay", "auto.offset.reset": "earliest", "fetch.wait.max.ms": 500}))
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        message = consumer.poll(0.3)
        if message and not message.error():
            facts.consumed(TOPIC)
    consumer.close()


def kafka_python(mechanism, user, password):
    client_id = f"kafka-python-{mechanism.lower()}-{user}"
    try:
        producer = kafka.KafkaProducer(bootstrap_servers=BOOTSTRAP, client_id=client_id, security_protocol=SECURITY,
                                       sasl_mechanism=mechanism, sasl_plain_username=user,
                                       sasl_plain_password=password, enable_idempotence=False, max_block_ms=4000,
                                       ssl_check_hostname=False)
        done = producer.send(TOPIC, b"from kafka-python", partition=0).get(5)
        facts.produced(client_id, TOPIC, 0, done.offset, "all", "none")
        producer.close()
    except kafka.errors.KafkaError as refused:
        facts.error(client_id, "connect", getattr(refused, "errno", None), type(refused).__name__)


async def aio(mechanism, user, password):
    client_id = f"aiokafka-{mechanism.lower()}"
    producer = AIOKafkaProducer(bootstrap_servers=BOOTSTRAP, client_id=client_id, security_protocol=SECURITY,
                                sasl_mechanism=mechanism, sasl_plain_username=user, sasl_plain_password=password)
    await producer.start()
    done = await producer.send_and_wait(TOPIC, b"from aiokafka", partition=0)
    facts.produced(client_id, TOPIC, 0, done.offset, "1", "none")
    await producer.stop()


if OLD:
    produce("rdkafka-plain", "PLAIN", "alice", "throw-away-1")
    produce("rdkafka-wrong", "PLAIN", "alice", "wrong-password")
    kafka_python("PLAIN", "alice", "throw-away-1")
elif SECURITY == "SASL_SSL":
    produce("rdkafka-plain", "PLAIN", "alice", "throw-away-1")
else:
    for mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"):
        produce(f"rdkafka-{mechanism.lower()}", mechanism, "alice", "throw-away-1")
    produce("rdkafka-wrong-plain", "PLAIN", "alice", "wrong-password")
    produce("rdkafka-wrong-scram", "SCRAM-SHA-256", "alice", "wrong-password")
    forbidden("bob", "throw-away-2")
    stay(4.5)
    kafka_python("PLAIN", "alice", "throw-away-1")
    kafka_python("SCRAM-SHA-512", "alice", "throw-away-1")
    kafka_python("SCRAM-SHA-256", "mallory", "wrong-password")
    asyncio.run(aio("SCRAM-SHA-256", "alice", "throw-away-1"))
facts.save()
