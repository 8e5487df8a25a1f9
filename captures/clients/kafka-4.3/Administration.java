import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.File;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.AbortTransactionSpec;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.FeatureUpdate;
import org.apache.kafka.clients.admin.ListConsumerGroupOffsetsSpec;
import org.apache.kafka.clients.admin.ListShareGroupOffsetsSpec;
import org.apache.kafka.clients.admin.NewPartitionReassignment;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RaftVoterEndpoint;
import org.apache.kafka.clients.admin.UpdateFeaturesOptions;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionReplica;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AccessControlEntry;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.errors.ApiException;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.quota.ClientQuotaAlteration;
import org.apache.kafka.common.quota.ClientQuotaEntity;
import org.apache.kafka.common.quota.ClientQuotaFilter;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.utils.AppInfoParser;

/** Admin calls that only the Java client makes, with the errors that the broker gave. */
public class Administration {
    static final List<Map<String, Object>> errors = new ArrayList<>();
    static final List<Map<String, Object>> notes = new ArrayList<>();

    interface Call {
        KafkaFuture<?> make() throws Exception;
    }

    static void call(String what, Call call) {
        try {
            call.make().get(10, TimeUnit.SECONDS);
            notes.add(Map.of("call", what, "outcome", "ok"));
        } catch (ExecutionException failed) {
            Errors error = Errors.forException(failed.getCause());
            Map<String, Object> row = new LinkedHashMap<>();
            row.put("client_id", "java-admin");
            row.put("what", what);
            row.put("code", failed.getCause() instanceof ApiException ? (int) error.code() : null);
            row.put("name", error.name());
            errors.add(row);
        } catch (Exception failed) {
            notes.add(Map.of("call", what, "outcome", failed.getClass().getSimpleName()));
        }
    }

    static Map<String, Object> producerConfig(String id) {
        String serializer = "org.apache.kafka.common.serialization.StringSerializer";
        return Map.of("bootstrap.servers", System.getenv("BOOTSTRAP"), "client.id", id, "transactional.id", id,
            "key.serializer", serializer, "value.serializer", serializer);
    }

    static void topics(Admin admin) {
        TopicPartition first = new TopicPartition("orders", 0);
        call("createTopics", () -> admin.createTopics(List.of(
            new NewTopic("orders", Optional.of(3), Optional.empty()), new NewTopic("payments", Map.of(0, List.of(1))))).all());
        call("listTopics", () -> admin.listTopics().names());
        call("describeTopics", () -> admin.describeTopics(List.of("orders", "missing")).allTopicNames());
        call("listOffsets", () -> admin.listOffsets(Map.of(first, OffsetSpec.latest(),
            new TopicPartition("orders", 1), OffsetSpec.maxTimestamp(), new TopicPartition("orders", 2), OffsetSpec.earliestLocal())).all());
        call("electLeaders", () -> admin.electLeaders(ElectionType.UNCLEAN, Set.of(first)).all());
        call("alterPartitionReassignments", () -> admin.alterPartitionReassignments(
            Map.of(first, Optional.of(new NewPartitionReassignment(List.of(1))))).all());
        call("alterPartitionReassignments to nowhere", () -> admin.alterPartitionReassignments(
            Map.of(first, Optional.of(new NewPartitionReassignment(List.of(7))))).all());
        call("listPartitionReassignments", () -> admin.listPartitionReassignments().reassignments());
        call("describeLogDirs", () -> admin.describeLogDirs(List.of(1)).allDescriptions());
        call("alterReplicaLogDirs", () -> admin.alterReplicaLogDirs(
            Map.of(new TopicPartitionReplica("orders", 0, 1), "/no-such-directory")).all());
    }

    static void cluster(Admin admin) {
        call("describeCluster", () -> admin.describeCluster().nodes());
        call("describeMetadataQuorum", () -> admin.describeMetadataQuorum().quorumInfo());
        call("describeFeatures", () -> admin.describeFeatures().featureMetadata());
        call("updateFeatures", () -> admin.updateFeatures(
            Map.of("share.version", new FeatureUpdate((short) 9, FeatureUpdate.UpgradeType.UPGRADE)),
            new UpdateFeaturesOptions().validateOnly(true)).all());
        call("unregisterBroker", () -> admin.unregisterBroker(99).all());
        call("addRaftVoter", () -> admin.addRaftVoter(9, Uuid.randomUuid(),
            Set.of(new RaftVoterEndpoint("CONTROLLER", "127.0.0.1", 19999))).all());
        call("removeRaftVoter", () -> admin.removeRaftVoter(9, Uuid.randomUuid()).all());
        call("listConfigResources", () -> admin.listConfigResources().all());
        call("createDelegationToken", () -> admin.createDelegationToken().delegationToken());
        call("describeDelegationToken", () -> admin.describeDelegationToken().delegationTokens());
        call("renewDelegationToken", () -> admin.renewDelegationToken(new byte[] {1, 2}).expiryTimestamp());
        call("expireDelegationToken", () -> admin.expireDelegationToken(new byte[] {1, 2}).expiryTimestamp());
    }

    static void access(Admin admin) {
        ResourcePattern pattern = new ResourcePattern(ResourceType.GROUP, "reports", PatternType.LITERAL);
        AccessControlEntry entry = new AccessControlEntry("User:bob", "127.0.0.1", AclOperation.READ, AclPermissionType.DENY);
        call("createAcls", () -> admin.createAcls(List.of(new AclBinding(pattern, entry))).all());
        call("describeAcls", () -> admin.describeAcls(AclBindingFilter.ANY).values());
        call("deleteAcls", () -> admin.deleteAcls(List.of(AclBindingFilter.ANY)).all());
        Map<String, String> name = new HashMap<>();
        name.put(ClientQuotaEntity.USER, "bob");
        name.put(ClientQuotaEntity.CLIENT_ID, null);
        call("alterClientQuotas", () -> admin.alterClientQuotas(List.of(new ClientQuotaAlteration(new ClientQuotaEntity(name),
            List.of(new ClientQuotaAlteration.Op("producer_byte_rate", 1000.0))))).all());
        call("describeClientQuotas", () -> admin.describeClientQuotas(ClientQuotaFilter.all()).entities());
    }

    static void transactions(Admin admin) {
        TopicPartition first = new TopicPartition("orders", 0);
        try (KafkaProducer<String, String> hanging = new KafkaProducer<>(producerConfig("java-hanging"))) {
            hanging.initTransactions();
            hanging.beginTransaction();
            hanging.send(new ProducerRecord<>("orders", 0, "k", "v"));
            hanging.flush();
            call("listTransactions", () -> admin.listTransactions().all());
            call("describeTransactions", () -> admin.describeTransactions(List.of("java-hanging", "missing")).all());
            call("describeProducers", () -> admin.describeProducers(List.of(first)).all());
            call("abortTransaction", () -> admin.abortTransaction(new AbortTransactionSpec(first, 77L, (short) 1, 1)).all());
            call("fenceProducers", () -> admin.fenceProducers(List.of("java-hanging")).all());
        }
    }

    static void groups(Admin admin) {
        TopicPartition first = new TopicPartition("orders", 0);
        Set<TopicPartition> some = Set.of(first);
        call("alterConsumerGroupOffsets", () -> admin.alterConsumerGroupOffsets("reports",
            Map.of(first, new OffsetAndMetadata(1, Optional.of(0), "by hand"))).all());
        call("listConsumerGroupOffsets", () -> admin.listConsumerGroupOffsets(Map.of(
            "reports", new ListConsumerGroupOffsetsSpec(), "missing", new ListConsumerGroupOffsetsSpec().topicPartitions(some))).all());
        call("listGroups", () -> admin.listGroups().all());
        call("describeConsumerGroups", () -> admin.describeConsumerGroups(List.of("reports", "missing")).all());
        call("describeClassicGroups", () -> admin.describeClassicGroups(List.of("reports")).all());
        call("deleteConsumerGroupOffsets", () -> admin.deleteConsumerGroupOffsets("reports", some).all());
        call("deleteConsumerGroups", () -> admin.deleteConsumerGroups(List.of("reports")).all());
        call("alterShareGroupOffsets", () -> admin.alterShareGroupOffsets("sharers", Map.of(first, 1L)).all());
        call("describeShareGroups", () -> admin.describeShareGroups(List.of("sharers", "missing")).all());
        call("listShareGroupOffsets", () -> admin.listShareGroupOffsets(
            Map.of("sharers", new ListShareGroupOffsetsSpec().topicPartitions(some))).all());
        call("deleteShareGroupOffsets", () -> admin.deleteShareGroupOffsets("sharers", Set.of("orders")).all());
        call("deleteShareGroups", () -> admin.deleteShareGroups(List.of("sharers")).all());
        call("describeStreamsGroups", () -> admin.describeStreamsGroups(List.of("missing")).all());
    }

    public static void main(String[] arguments) throws Exception {
        Map<String, Object> config = Map.of("bootstrap.servers", System.getenv("BOOTSTRAP"), "client.id", "java-admin");
        try (Admin admin = Admin.create(config)) {
            topics(admin);
            cluster(admin);
            access(admin);
            transactions(admin);
            groups(admin);
            call("deleteTopics", () -> admin.deleteTopics(List.of("orders", "payments")).all());
        }
        Map<String, Object> told = new LinkedHashMap<>();
        told.put("client", "kafka-clients (Java)");
        told.put("version", AppInfoParser.getVersion());
        told.put("produced", List.of());
        told.put("consumed", Map.of());
        told.put("errors", errors);
        told.put("notes", notes);
        new ObjectMapper().writeValue(new File(System.getenv("FACTS")), told);
    }
}
