import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.File;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.DescribeStreamsGroupsOptions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.internals.AsyncKafkaConsumer;
import org.apache.kafka.clients.consumer.internals.StreamsRebalanceData;
import org.apache.kafka.clients.consumer.internals.StreamsRebalanceListener;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.ApiException;
import org.apache.kafka.common.message.StreamsGroupTopologyDescriptionUpdateRequestData.TopologyDescription;
import org.apache.kafka.common.message.StreamsGroupTopologyDescriptionUpdateRequestData.TopologyDescriptionGlobalStore;
import org.apache.kafka.common.message.StreamsGroupTopologyDescriptionUpdateRequestData.TopologyDescriptionNode;
import org.apache.kafka.common.message.StreamsGroupTopologyDescriptionUpdateRequestData.TopologyDescriptionSubtopology;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.utils.internals.AppInfoParser;

/**
 * What 4.4 brought: members of streams groups that describe their topology, offsets committed by topic id in a
 * transaction, groups deleted with a reason if not, a controller unregistered.
 */
public class Streams {
    static final String STRING = "org.apache.kafka.common.serialization.String";
    static final List<Map<String, Object>> produced = new ArrayList<>();
    static final List<Map<String, Object>> errors = new ArrayList<>();
    static final List<Map<String, Object>> notes = new ArrayList<>();

    static Map<String, Object> config(String clientId, Object... more) {
        Map<String, Object> config = new HashMap<>();
        config.put("bootstrap.servers", System.getenv("BOOTSTRAP"));
        config.put("client.id", clientId);
        for (String role : List.of("key", "value")) {
            config.put(role + ".serializer", STRING + "Serializer");
            config.put(role + ".deserializer", STRING + "Deserializer");
        }
        for (int i = 0; i < more.length; i += 2) config.put((String) more[i], more[i + 1]);
        return config;
    }

    static void call(String what, KafkaFuture<?> future) throws Exception {
        try {
            notes.add(Map.of("call", what, "outcome", String.valueOf(future.get(20, TimeUnit.SECONDS))));
        } catch (ExecutionException failed) {
            Errors error = Errors.forException(failed.getCause());
            Map<String, Object> row = new LinkedHashMap<>();
            row.put("client_id", "java-44-admin");
            row.put("what", what);
            row.put("code", failed.getCause() instanceof ApiException ? (int) error.code() : null);
            row.put("name", error.name());
            row.put("message", failed.getCause().getMessage());
            errors.add(row);
        }
    }

    /** One subtopology that counts orders, and a global store. */
    static TopologyDescription description() {
        TopologyDescriptionNode source = node("KSTREAM-SOURCE-0", 1).setSourceTopics(List.of("orders")).setSuccessors(List.of("KSTREAM-AGGREGATE-1"));
        TopologyDescriptionNode count = node("KSTREAM-AGGREGATE-1", 2).setStores(List.of("counts")).setSuccessors(List.of("KSTREAM-SINK-2"));
        TopologyDescriptionNode sink = node("KSTREAM-SINK-2", 3).setSinkTopic("totals");
        TopologyDescriptionNode dynamic = node("KSTREAM-SINK-3", 3);
        return new TopologyDescription()
            .setSubtopologies(List.of(new TopologyDescriptionSubtopology().setSubtopologyId("0").setNodes(List.of(source, count, sink, dynamic))))
            .setGlobalStores(List.of(new TopologyDescriptionGlobalStore()
                .setSource(node("KSTREAM-SOURCE-4", 1).setSourceTopics(List.of("totals")).setSuccessors(List.of("KTABLE-SOURCE-5")))
                .setProcessor(node("KTABLE-SOURCE-5", 2).setStores(List.of("global")))));
    }

    static TopologyDescriptionNode node(String name, int type) {
        return new TopologyDescriptionNode().setName(name).setNodeType((byte) type);
    }

    /** A member of a streams group. Kafka Streams makes its consumers in the same way. */
    static class Member implements AutoCloseable, StreamsRebalanceListener {
        final StreamsRebalanceData data;
        final AsyncKafkaConsumer<String, String> consumer;

        Member(String group, String clientId) {
            StreamsRebalanceData.Subtopology counting = new StreamsRebalanceData.Subtopology(
                Set.of("orders"), Set.of(), Map.of(),
                Map.of("counting-changelog", new StreamsRebalanceData.TopicInfo(Optional.empty(), Optional.of((short) 1), Map.of("cleanup.policy", "compact"))),
                List.of());
            StreamsRebalanceData.TaskId task = new StreamsRebalanceData.TaskId("0", 0);
            data = new StreamsRebalanceData(UUID.randomUUID(), Optional.of(new StreamsRebalanceData.HostInfo("127.0.0.1", 8080)),
                Optional.of("rack-1"), Map.of("0", counting), Map.of("zone", "a"), () -> Map.of(task, 7L), () -> Map.of(task, 9L));
            data.setWireTopologyDescription(description());
            ConsumerConfig config = new ConsumerConfig(config(clientId, "group.id", group, "group.protocol", "consumer",
                "auto.offset.reset", "earliest", "enable.auto.commit", false, "fetch.max.wait.ms", 400));
            consumer = new AsyncKafkaConsumer<>(config, new StringDeserializer(), new StringDeserializer(), Optional.of(data));
            consumer.subscribe(List.of("orders"), this);
        }

        @Override public void onTasksRevoked(Set<StreamsRebalanceData.TaskId> tasks) { }

        @Override public void onAllTasksLost() { }

        @Override public void onTasksAssigned(StreamsRebalanceData.Assignment assignment) { data.setReconciledAssignment(assignment); }

        @Override public void close() { consumer.close(); }
    }

    static void poll(int rounds, Member... members) {
        for (int round = 0; round < rounds; round++)
            for (Member member : members) member.consumer.poll(Duration.ofMillis(100));
    }

    static void streams(Admin admin) throws Exception {
        DescribeStreamsGroupsOptions described = new DescribeStreamsGroupsOptions().includeTopologyDescription(true).includeAuthorizedOperations(true);
        try (Member first = new Member("streams-app", "java-44-streams-1")) {
            poll(25, first);
            try (Member second = new Member("streams-app", "java-44-streams-2")) {
                poll(15, first, second);
                call("describeStreamsGroups with topology", admin.describeStreamsGroups(List.of("streams-app"), described).all());
                call("describeStreamsGroups", admin.describeStreamsGroups(List.of("streams-app")).all());
                call("deleteStreamsGroups with members", admin.deleteStreamsGroups(List.of("streams-app")).all());
            }
            poll(5, first);
        }
        try (Member refused = new Member("streams-refused", "java-44-streams-3")) { poll(20, refused); }
        try (Member kept = new Member("streams-kept", "java-44-streams-4")) { poll(20, kept); }
        for (String group : List.of("streams-app", "streams-refused", "streams-kept", "streams-missing")) {
            call("describeStreamsGroups " + group, admin.describeStreamsGroups(List.of(group), described).all());
            call("deleteStreamsGroups " + group, admin.deleteStreamsGroups(List.of(group)).all());
        }
    }

    static void transactions() throws Exception {
        String id = "java-44-transactional";
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(config(id, "transactional.id", "java-44-tx"));
             KafkaConsumer<String, String> reader = new KafkaConsumer<>(config("java-44-reader", "group.id", "tx-group", "group.protocol", "consumer"))) {
            producer.initTransactions();
            for (String outcome : List.of("commit", "abort")) {
                producer.beginTransaction();
                for (int partition = 0; partition < 2; partition++) {
                    producer.send(new ProducerRecord<>("orders", partition, "key", outcome), (done, failed) -> told(id, done, outcome));
                }
                producer.sendOffsetsToTransaction(Map.of(new TopicPartition("orders", 0), new OffsetAndMetadata(3, Optional.of(0), "by " + id)),
                    reader.groupMetadata());
                if (outcome.equals("commit")) producer.commitTransaction(); else producer.abortTransaction();
                notes.add(Map.of("transaction", outcome, "client_id", id));
            }
        }
    }

    static void told(String clientId, RecordMetadata done, String transaction) {
        Map<String, Object> row = new LinkedHashMap<>();
        row.put("client_id", clientId);
        row.put("topic", done.topic());
        row.put("partition", done.partition());
        row.put("offset", done.offset());
        row.put("acks", "all");
        row.put("codec", "none");
        row.put("transaction", transaction);
        synchronized (produced) { produced.add(row); }
    }

    public static void main(String[] arguments) throws Exception {
        try (Admin admin = Admin.create(config("java-44-admin"))) {
            call("createTopics", admin.createTopics(List.of(new NewTopic("orders", 2, (short) 1), new NewTopic("totals", 1, (short) 1))).all());
            transactions();
            streams(admin);
            call("deleteConsumerGroups", admin.deleteConsumerGroups(List.of("tx-group", "missing")).all());
            call("unregisterController", admin.unregisterController(2).all());
            call("unregisterController once more", admin.unregisterController(2).all());
        }
        Map<String, Object> told = new LinkedHashMap<>();
        told.put("client", "kafka-clients (Java)");
        told.put("version", AppInfoParser.getVersion());
        told.put("produced", produced);
        told.put("consumed", Map.of());
        told.put("errors", errors);
        told.put("notes", notes);
        new ObjectMapper().writeValue(new File(System.getenv("FACTS")), told);
    }
}
