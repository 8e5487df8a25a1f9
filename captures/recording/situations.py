"""Samples of what goes wrong: each is made for a finding of the report, which its name is about."""

from __future__ import annotations

from recording import brokers
from recording.samples import Client, Sample, python

SITUATIONS = (
    Sample(
        "stale-leader",
        "three nodes of Apache Kafka 4.3, the leader of a partition killed and started again as a follower: "
        "requests that nobody answers, and a client that goes on asking the former leader (127.0.0.1 to .3)",
        brokers.kafka_4_cluster,
        (python("stale_leader_client.py"),),
        "stale-leader.pcapng.zst",
        compress="zst",
    ),
    Sample(
        "rebalance-timeout",
        "a group of two, one of which is stopped until its session is over, twice, and finds itself expelled",
        brokers.kafka_4_short_sessions,
        (python("rebalance_timeout_client.py"),),
        "rebalance-timeout.pcapng.zst",
        compress="zst",
    ),
    Sample(
        "rebalance-leave",
        "a group of which a member leaves and joins again, three times, and another one does not poll in time",
        brokers.kafka_4,
        (Client("kafka-4.3", "kafka-4.3/Leaving.java"),),
        "rebalance-leave.pcapng.zst",
        compress="zst",
    ),
    Sample(
        "stuck-consumer",
        "a consumer that hangs while its heartbeats go on, one that is slower than the producer, and one that "
        "keeps up",
        brokers.kafka_4,
        (Client("kafka-4.3", "kafka-4.3/Stuck.java"),),
        "stuck-consumer.pcapng.zst",
        compress="zst",
    ),
    Sample(
        "wrong-listener",
        "a broker on 9092 that tells its clients to go to port 9094, where nobody listens",
        brokers.kafka_4_misadvertised,
        (python("wrong_listener_client.py"),),
        "wrong-listener.pcapng",
    ),
    Sample(
        "tls-on-plaintext",
        "a client that speaks TLS to a plaintext port, beside one that does not",
        brokers.kafka_4,
        (python("tls_on_plaintext_client.py"),),
        "tls-on-plaintext.pcapng",
    ),
    Sample(
        "hot-partition",
        "a producer whose keys send nine tenths of its records to one of six partitions, uncompressed JSON",
        brokers.kafka_4,
        (python("hot_partition_client.py"),),
        "hot-partition.pcapng.zst",
        compress="zst",
    ),
    Sample(
        "tiny-batches",
        "a producer that sends each record in a request of its own",
        brokers.kafka_4,
        (python("tiny_batches_client.py"),),
        "tiny-batches.pcapng.zst",
        compress="zst",
    ),
    Sample(
        "connection-churn",
        "a client that connects anew for each record",
        brokers.kafka_4,
        (python("churn_client.py"),),
        "connection-churn.pcapng.zst",
        compress="zst",
    ),
    Sample(
        "metadata-storm",
        "a monitor that asks for the metadata of all topics in a tight loop",
        brokers.kafka_4,
        (python("metadata_storm_client.py"),),
        "metadata-storm.pcapng.zst",
        compress="zst",
    ),
    Sample(
        "slow-broker",
        "a broker that stands still for a quarter of a second again and again",
        brokers.kafka_4,
        (python("slow_broker_client.py"),),
        "slow-broker.pcapng.zst",
        compress="zst",
    ),
    Sample(
        "slow-queue",
        "a client that waits for data and asks for metadata on the same connection, so that the quick request "
        "waits for the slow one",
        brokers.kafka_4,
        (python("slow_queue_client.py"),),
        "slow-queue.pcapng.zst",
        compress="zst",
    ),
    Sample(
        "slow-reader",
        "a consumer that does not read what it asked for until its receive window is closed",
        brokers.kafka_4,
        (python("slow_reader_client.py"),),
        "slow-reader.pcapng.zst",
        compress="zst",
        mtu=1500,
    ),
    Sample(
        "lossy-network",
        "a producer and a consumer over a network that loses packets of both directions after they were captured: "
        "what was lost is sent again",
        brokers.kafka_4,
        (python("lossy_client.py"),),
        "lossy-network.pcapng.zst",
        compress="zst",
        mtu=1500,
        loss={"tcp dport 9092": 20, "tcp sport 9092": 30},
    ),
    Sample(
        "exceeded-quota",
        "a Java client that makes and deletes topics faster than its quota of changes allows (KIP-599), and is "
        "refused",
        brokers.kafka_4,
        (Client("kafka-4.3", "kafka-4.3/Refused.java"),),
        "exceeded-quota.pcapng",
    ),
)
