import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.File;
import java.time.Duration;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.quota.ClientQuotaAlteration;
import org.apache.kafka.common.quota.ClientQuotaEntity;
import org.apache.kafka.common.utils.AppInfoParser;

/** A producer and a consumer above their quotas: the broker answers with throttle times. */
public class Throttled {
    static final String STRING = "org.apache.kafka.common.serialization.String";

    public static void main(String[] arguments) throws Exception {
        String bootstrap = System.getenv("BOOTSTRAP");
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap, "client.id", "java-setup"))) {
            admin.createTopics(List.of(new NewTopic("orders", 1, (short) 1))).all().get(10, TimeUnit.SECONDS);
            ClientQuotaEntity entity = new ClientQuotaEntity(Map.of(ClientQuotaEntity.CLIENT_ID, "java-greedy"));
            admin.alterClientQuotas(List.of(new ClientQuotaAlteration(entity, List.of(
                new ClientQuotaAlteration.Op("producer_byte_rate", 2000.0),
                new ClientQuotaAlteration.Op("consumer_byte_rate", 2500.0))))).all().get(10, TimeUnit.SECONDS);
        }
        Thread.sleep(500);
        List<Map<String, Object>> produced = new ArrayList<>();
        Map<String, Object> metrics = new LinkedHashMap<>();
        String value = "throttled ".repeat(220);
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(Map.of("bootstrap.servers", bootstrap,
                "client.id", "java-greedy", "key.serializer", STRING + "Serializer", "value.serializer", STRING + "Serializer"))) {
            for (int number = 0; number < 14; number++) {
                long offset = producer.send(new ProducerRecord<>("orders", 0, null, value)).get().offset();
                Map<String, Object> row = new LinkedHashMap<>(Map.of("client_id", "java-greedy", "topic", "orders", "partition", 0));
                row.putAll(Map.of("offset", offset, "acks", "all", "codec", "none"));
                produced.add(row);
            }
            producer.metrics().forEach((name, metric) -> {
                if (name.name().startsWith("produce-throttle-time")) metrics.put(name.name(), metric.metricValue());
            });
        }
        int consumed = 0;
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(Map.of("bootstrap.servers", bootstrap,
                "client.id", "java-greedy", "key.deserializer", STRING + "Deserializer", "value.deserializer", STRING + "Deserializer",
                "fetch.max.wait.ms", 200, "max.partition.fetch.bytes", 5000))) {
            consumer.assign(List.of(new TopicPartition("orders", 0)));
            consumer.seekToBeginning(consumer.assignment());
            for (long end = System.currentTimeMillis() + 8000; consumed < 14 && System.currentTimeMillis() < end; )
                consumed += consumer.poll(Duration.ofMillis(200)).count();
            consumer.metrics().forEach((name, metric) -> {
                if (name.name().startsWith("fetch-throttle-time")) metrics.put(name.name(), metric.metricValue());
            });
        }
        Map<String, Object> told = new LinkedHashMap<>();
        told.put("client", "kafka-clients (Java)");
        told.put("version", AppInfoParser.getVersion());
        told.put("produced", produced);
        told.put("consumed", Map.of("orders", consumed));
        told.put("errors", List.of());
        told.put("notes", List.of(metrics));
        new ObjectMapper().writeValue(new File(System.getenv("FACTS")), told);
    }
}
