import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.File;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.utils.internals.AppInfoParser;

/** The same over plaintext, TLS 1.3 and TLS 1.2. A client's second connection resumes the session of its first. */
public class Encrypted {
    static final String STRING = "org.apache.kafka.common.serialization.String";
    static final List<Map<String, Object>> produced = new ArrayList<>();
    static final List<Map<String, Object>> errors = new ArrayList<>();
    static int consumed = 0;

    static Map<String, Object> settings(String clientId, Map<String, Object> security) {
        Map<String, Object> made = new HashMap<>(security);
        made.put("client.id", clientId);
        made.put("enable.metrics.push", false);
        return made;
    }

    static void create(Admin admin, String clientId) throws Exception {
        try {
            admin.createTopics(List.of(new NewTopic("orders", 1, (short) 1))).all().get(10, TimeUnit.SECONDS);
        } catch (ExecutionException failed) {
            errors.add(Map.of("client_id", clientId, "what", "create_topics", "code", 36, "name", failed.getCause().getClass().getSimpleName()));
        }
    }

    static void everything(String name, Map<String, Object> security) throws Exception {
        String adminId = "java-" + name + "-admin";
        try (Admin admin = Admin.create(settings(adminId, security))) {
            create(admin, adminId);
            create(admin, adminId);
            Map<String, Object> config = settings("java-" + name, security);
            config.put("key.serializer", STRING + "Serializer");
            config.put("value.serializer", STRING + "Serializer");
            try (KafkaProducer<String, String> producer = new KafkaProducer<>(config)) {
                for (int number = 0; number < 3; number++) {
                    long offset = producer.send(new ProducerRecord<>("orders", 0, "key", "secret " + number)).get(5, TimeUnit.SECONDS).offset();
                    produced.add(Map.of("client_id", "java-" + name, "topic", "orders", "partition", 0, "offset", offset, "acks", "all", "codec", "none"));
                }
            }
            config = settings("java-" + name + "-reader", security);
            config.put("group.id", "readers-" + name);
            config.put("auto.offset.reset", "earliest");
            config.put("fetch.max.wait.ms", 300);
            config.put("key.deserializer", STRING + "Deserializer");
            config.put("value.deserializer", STRING + "Deserializer");
            try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(config)) {
                consumer.assign(List.of(new TopicPartition("orders", 0)));
                int read = 0;
                for (long end = System.currentTimeMillis() + 10000; read < 3 && System.currentTimeMillis() < end; )
                    read += consumer.poll(Duration.ofMillis(300)).count();
                consumer.commitSync();
                consumed += read;
            }
            admin.deleteTopics(List.of("orders")).all().get(10, TimeUnit.SECONDS);
        }
        Thread.sleep(500);
    }

    static Map<String, Object> tls(String version) {
        return Map.of("bootstrap.servers", System.getenv("BOOTSTRAP"), "security.protocol", "SSL", "ssl.enabled.protocols", version,
            "ssl.protocol", version, "ssl.truststore.type", "PEM", "ssl.truststore.location", System.getenv("AUTHORITY"));
    }

    public static void main(String[] arguments) throws Exception {
        everything("plaintext", Map.of("bootstrap.servers", System.getenv("PLAINTEXT")));
        everything("tls1.3", tls("TLSv1.3"));
        everything("tls1.2", tls("TLSv1.2"));
        Map<String, Object> told = new HashMap<>();
        told.put("client", "kafka-clients (Java)");
        told.put("version", AppInfoParser.getVersion());
        told.put("produced", produced);
        told.put("consumed", Map.of("orders", consumed));
        told.put("errors", errors);
        told.put("notes", List.of());
        new ObjectMapper().writeValue(new File(System.getenv("FACTS")), told);
    }
}
