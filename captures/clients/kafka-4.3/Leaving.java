import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.File;
import java.time.Duration;
import java.util.HashMap;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.utils.AppInfoParser;

/** A group one of whose members leaves and joins again, four times: first by closing, then by not polling in time. */
public class Leaving {
    static final String STRING = "org.apache.kafka.common.serialization.String";
    static final List<Map<String, Object>> notes = new ArrayList<>();

    static KafkaConsumer<String, String> member(String clientId, int maxPollIntervalMs) {
        Map<String, Object> config = new HashMap<>();
        config.put("bootstrap.servers", System.getenv("BOOTSTRAP"));
        config.put("client.id", clientId);
        config.put("group.id", "shipping");
        config.put("group.protocol", "classic");
        config.put("heartbeat.interval.ms", 200);
        config.put("session.timeout.ms", 6000);
        config.put("max.poll.interval.ms", maxPollIntervalMs);
        config.put("fetch.max.wait.ms", 300);
        config.put("key.deserializer", STRING + "Deserializer");
        config.put("value.deserializer", STRING + "Deserializer");
        KafkaConsumer<String, String> consumer = new KafkaConsumer<>(config);
        consumer.subscribe(List.of("orders"));
        return consumer;
    }

    static void poll(long milliseconds, List<KafkaConsumer<String, String>> consumers) {
        for (long end = System.currentTimeMillis() + milliseconds; System.currentTimeMillis() < end; )
            for (KafkaConsumer<String, String> consumer : consumers) consumer.poll(Duration.ofMillis(50));
    }

    public static void main(String[] arguments) throws Exception {
        String bootstrap = System.getenv("BOOTSTRAP");
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap, "client.id", "java-setup"))) {
            admin.createTopics(List.of(new NewTopic("orders", 2, (short) 1))).all().get(10, TimeUnit.SECONDS);
        }
        try (KafkaConsumer<String, String> steady = member("shipping-steady", 60000)) {
            poll(1500, List.of(steady));
            for (int time = 0; time < 3; time++) {
                try (KafkaConsumer<String, String> fickle = member("shipping-fickle", 60000)) {
                    poll(1500, List.of(steady, fickle));
                    notes.add(Map.of("client_id", "shipping-fickle", "event", "closes"));
                }
                poll(1000, List.of(steady));
            }
            try (KafkaConsumer<String, String> busy = member("shipping-busy", 1500)) {
                poll(1500, List.of(steady, busy));
                notes.add(Map.of("client_id", "shipping-busy", "event", "does not poll"));
                poll(3000, List.of(steady));
            }
        }
        Map<String, Object> told = new HashMap<>();
        told.put("client", "kafka-clients (Java)");
        told.put("version", AppInfoParser.getVersion());
        told.put("produced", List.of());
        told.put("consumed", Map.of());
        told.put("errors", List.of());
        told.put("notes", notes);
        new ObjectMapper().writeValue(new File(System.getenv("FACTS")), told);
    }
}
