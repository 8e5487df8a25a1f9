"""Admin calls through librdkafka, each once, and some that must fail."""

import confluent_kafka
from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaException,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from facts import BOOTSTRAP, Facts

facts = Facts("confluent-kafka (librdkafka)", f"{confluent_kafka.__version__} ({confluent_kafka.libversion()[0]})")
admin = AdminClient({"bootstrap.servers": BOOTSTRAP, "client.id": "rdkafka-admin"})


def settle(what, futures):
    """Wait for the futures of one call and note the errors."""
    for future in futures.values() if isinstance(futures, dict) else [futures]:
        try:
            future.result(10)
            facts.note(call=what, outcome="ok")
        except KafkaException as failed:
            facts.error("rdkafka-admin", what, failed.args[0].code(), failed.args[0].name())


def topics():
    wanted = [NewTopic("orders", 3, config={"retention.ms": "3600000"}), NewTopic("payments", 1)]
    settle("create_topics", admin.create_topics(wanted))
    settle("create_topics again", admin.create_topics(wanted))
    settle("create_topics validate only", admin.create_topics([NewTopic("dry-run", 1)], validate_only=True))
    settle("create_topics bad replication", admin.create_topics([NewTopic("wide", 1, replication_factor=5)]))
    settle("create_partitions", admin.create_partitions([NewPartitions("orders", 5)]))
    settle("create_partitions fewer", admin.create_partitions([NewPartitions("orders", 2)]))
    settle("describe_topics", admin.describe_topics(TopicCollection(["orders", "missing"]),
                                                    include_authorized_operations=True))
    admin.list_topics(timeout=10)


def configs():
    topic = ConfigResource(ConfigResource.Type.TOPIC, "orders")
    settle("describe_configs", admin.describe_configs([topic]))
    topic.add_incremental_config(ConfigEntry("retention.ms", "7200000",
                                             incremental_operation=AlterConfigOpType.SET))
    settle("incremental_alter_configs", admin.incremental_alter_configs([topic]))
    wrong = ConfigResource(ConfigResource.Type.TOPIC, "orders")
    wrong.add_incremental_config(ConfigEntry("no.such.key", "1", incremental_operation=AlterConfigOpType.SET))
    settle("incremental_alter_configs unknown key", admin.incremental_alter_configs([wrong]))


def acls():
    binding = AclBinding(ResourceType.TOPIC, "orders", ResourcePatternType.PREFIXED, "User:alice", "*",
                         AclOperation.READ, AclPermissionType.ALLOW)
    every = AclBindingFilter(ResourceType.ANY, None, ResourcePatternType.ANY, None, None,
                             AclOperation.ANY, AclPermissionType.ANY)
    settle("create_acls", admin.create_acls([binding]))
    settle("describe_acls", admin.describe_acls(every))
    settle("delete_acls", admin.delete_acls([every]))


def scram():
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    upsert = UserScramCredentialUpsertion("alice", info, b"sample-only", b"sample-salt")
    settle("alter_user_scram_credentials", admin.alter_user_scram_credentials([upsert]))
    settle("describe_user_scram_credentials", admin.describe_user_scram_credentials())
    gone = UserScramCredentialDeletion("alice", ScramMechanism.SCRAM_SHA_256)
    settle("alter_user_scram_credentials", admin.alter_user_scram_credentials([gone]))


def records():
    producer = Producer({"bootstrap.servers": BOOTSTRAP, "client.id": "admin-feeder"})
    for number in range(8):
        producer.produce("orders", b"x" * number, partition=0)
    producer.flush(10)
    partition = TopicPartition("orders", 0)
    settle("list_offsets", admin.list_offsets({partition: OffsetSpec.latest()},
                                              isolation_level=IsolationLevel.READ_COMMITTED))
    settle("delete_records", admin.delete_records([TopicPartition("orders", 0, 4)]))
    group = ConsumerGroupTopicPartitions("reports", [TopicPartition("orders", 0, 5)])
    settle("alter_consumer_group_offsets", admin.alter_consumer_group_offsets([group]))
    settle("list_consumer_group_offsets",
           admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions("reports", [partition])]))
    settle("list_consumer_groups", admin.list_consumer_groups())
    settle("describe_consumer_groups", admin.describe_consumer_groups(["reports", "missing"]))
    settle("delete_consumer_groups", admin.delete_consumer_groups(["reports", "missing"]))


settle("describe_cluster", admin.describe_cluster(include_authorized_operations=True))
topics()
configs()
acls()
scram()
records()
settle("elect_leaders", admin.elect_leaders(confluent_kafka.ElectionType.PREFERRED, [TopicPartition("orders", 0)]))
settle("delete_topics", admin.delete_topics(["orders", "payments", "missing"]))
facts.save()
