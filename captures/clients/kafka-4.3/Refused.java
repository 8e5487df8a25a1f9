import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.File;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.CreatePartitionsOptions;
import org.apache.kafka.clients.admin.CreateTopicsOptions;
import org.apache.kafka.clients.admin.DeleteTopicsOptions;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.TopicCollection;
import org.apache.kafka.common.errors.ThrottlingQuotaExceededException;
import org.apache.kafka.common.quota.ClientQuotaAlteration;
import org.apache.kafka.common.quota.ClientQuotaEntity;
import org.apache.kafka.common.utils.AppInfoParser;

/** A client that makes and deletes topics faster than its quota of changes allows, and one that has none. */
public class Refused {
    static final List<Map<String, Object>> errors = new ArrayList<>();
    static final List<Map<String, Object>> notes = new ArrayList<>();

    public static void main(String[] arguments) throws Exception {
        String bootstrap = System.getenv("BOOTSTRAP");
        Map<String, Object> settings = Map.of("bootstrap.servers", bootstrap, "client.id", "java-deployer");
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap, "client.id", "java-setup"))) {
            ClientQuotaEntity entity = new ClientQuotaEntity(Map.of(ClientQuotaEntity.CLIENT_ID, "java-deployer"));
            admin.alterClientQuotas(List.of(new ClientQuotaAlteration(entity, List.of(
                new ClientQuotaAlteration.Op("controller_mutation_rate", 1.0))))).all().get(10, TimeUnit.SECONDS);
            admin.createTopics(List.of(new NewTopic("shared", 12, (short) 1))).all().get(10, TimeUnit.SECONDS);
        }
        Thread.sleep(500);
        try (Admin admin = Admin.create(settings)) {
            for (int number = 0; number < 6; number++) {
                String name = "tenant-" + number;
                outcome("create " + name, admin.createTopics(List.of(new NewTopic(name, 6, (short) 1)),
                    new CreateTopicsOptions().retryOnQuotaViolation(false)).all());
            }
            outcome("enlarge shared", admin.createPartitions(Map.of("shared", NewPartitions.increaseTo(18)),
                new CreatePartitionsOptions().retryOnQuotaViolation(false)).all());
            outcome("delete shared", admin.deleteTopics(TopicCollection.ofTopicNames(List.of("shared")),
                new DeleteTopicsOptions().retryOnQuotaViolation(false)).all());
            // As clients do of themselves: they wait for what the answer says, and ask again.
            outcome("create patient", admin.createTopics(List.of(new NewTopic("patient", 1, (short) 1))).all());
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

    static void outcome(String what, KafkaFuture<Void> result) throws Exception {
        Map<String, Object> note = new LinkedHashMap<>(Map.of("asked", what, "result", "done"));
        try {
            result.get(40, TimeUnit.SECONDS);
        } catch (ExecutionException failed) {
            ThrottlingQuotaExceededException refused = (ThrottlingQuotaExceededException) failed.getCause();
            note.putAll(Map.of("result", "refused", "throttle_ms", refused.throttleTimeMs()));
            errors.add(Map.of("client_id", "java-deployer", "what", what, "code", 89, "name", "THROTTLING_QUOTA_EXCEEDED"));
        }
        notes.add(note);
    }
}
