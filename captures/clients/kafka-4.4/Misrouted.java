import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.File;
import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.utils.internals.AppInfoParser;

/** Asks one cluster for its brokers and is led to a broker of another, which tells it so (KIP-1242). */
public class Misrouted {
    public static void main(String[] arguments) throws Exception {
        String serializer = "org.apache.kafka.common.serialization.StringSerializer";
        Map<String, Object> config = Map.of("bootstrap.servers", System.getenv("MISLEADING"), "client.id", "java-44-misrouted",
            "metadata.cluster.check.enable", true, "enable.idempotence", false, "max.block.ms", 2500, "delivery.timeout.ms", 3000,
            "request.timeout.ms", 2000, "linger.ms", 0, "key.serializer", serializer, "value.serializer", serializer);
        String outcome = "produced";
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(config)) {
            producer.send(new ProducerRecord<>("orders", "key", "value")).get(5, TimeUnit.SECONDS);
        } catch (Exception failed) {
            outcome = failed.toString();
        }
        Map<String, Object> told = new LinkedHashMap<>();
        told.put("client", "kafka-clients (Java)");
        told.put("version", AppInfoParser.getVersion());
        told.put("produced", List.of());
        told.put("consumed", Map.of());
        told.put("errors", List.of());
        told.put("notes", List.of(Map.of("outcome", outcome)));
        new ObjectMapper().writeValue(new File(System.getenv("FACTS")), told);
    }
}
