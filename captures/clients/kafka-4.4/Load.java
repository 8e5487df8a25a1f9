import java.time.Duration;
import java.util.*;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.config.ConfigResource;

/** The load of load_client.py by the Java client: ROLE SECONDS. */
public class Load {
    public static void main(String[] arguments) throws Exception {
        String role = arguments[0], bytes = "org.apache.kafka.common.serialization.ByteArray";
        long end = System.currentTimeMillis() + 1000 * Long.parseLong(arguments[1]);
        Random random = new Random();
        Map<String, Object> config = new HashMap<>(Map.of("bootstrap.servers", System.getenv("BOOTSTRAP"), "client.id", "load-" + role,
            "security.protocol", "SSL", "ssl.truststore.type", "PEM", "ssl.truststore.location", System.getenv("AUTHORITY")));
        if (role.equals("read")) {
            config.putAll(Map.of("group.id", "java", "auto.offset.reset", "latest", "fetch.max.wait.ms", 500, "heartbeat.interval.ms", 1000,
                "session.timeout.ms", 6000, "auto.commit.interval.ms", 1000, "key.deserializer", bytes + "Deserializer", "value.deserializer", bytes + "Deserializer"));
            try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(config)) {
                consumer.subscribe(List.of("orders"));
                while (System.currentTimeMillis() < end) consumer.poll(Duration.ofMillis(100));
            }
        } else if (role.equals("admin")) {
            try (Admin admin = Admin.create(config)) {
                while (System.currentTimeMillis() < end) {
                    admin.describeTopics(List.of("orders")).allTopicNames().get();
                    admin.listGroups().all().get();
                    admin.describeConfigs(List.of(new ConfigResource(ConfigResource.Type.BROKER, "1"))).all().get();
                    Thread.sleep(random.nextInt(20));
                }
            }
        } else {
            boolean big = role.equals("big");
            config.putAll(Map.of("acks", role.equals("none") ? "0" : "all", "enable.idempotence", !role.equals("none"), "linger.ms", big ? 20 : 0, "batch.size", 100000,
                "key.serializer", bytes + "Serializer", "value.serializer", bytes + "Serializer"));
            try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(config)) {
                while (System.currentTimeMillis() < end) {
                    int many = big ? 190 : 1 + random.nextInt(8);
                    for (int n = 0; n < many; n++) {
                        byte[] value = new byte[big ? 1000 : 20 + random.nextInt(380)];
                        random.nextBytes(value);
                        producer.send(new ProducerRecord<>("orders", value));
                        if (!big) Thread.sleep(0, 300000);
                    }
                    Thread.sleep(big ? 40 : random.nextInt(16));
                }
            }
        }
    }
}
