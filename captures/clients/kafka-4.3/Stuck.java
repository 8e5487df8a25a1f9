import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.File;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.utils.AppInfoParser;

/** A consumer that hangs in its own code while its heartbeats go on, one that is slower than the producer, and one
 * that keeps up. */
public class Stuck {
    static final String STRING = "org.apache.kafka.common.serialization.String";
    static volatile boolean done = false;

    static KafkaConsumer<String, String> member(String clientId, String group, int maxPollRecords) {
        Map<String, Object> config = new HashMap<>();
        config.put("bootstrap.servers", System.getenv("BOOTSTRAP"));
        config.put("client.id", clientId);
        config.put("group.id", group);
        config.put("group.protocol", "classic");
        config.put("auto.offset.reset", "earliest");
        config.put("auto.commit.interval.ms", 1000);
        config.put("heartbeat.interval.ms", 1000);
        config.put("session.timeout.ms", 6000);
        config.put("max.poll.records", maxPollRecords);
        config.put("max.partition.fetch.bytes", 4000);
        config.put("fetch.max.wait.ms", 1000);
        config.put("key.deserializer", STRING + "Deserializer");
        config.put("value.deserializer", STRING + "Deserializer");
        KafkaConsumer<String, String> consumer = new KafkaConsumer<>(config);
        consumer.subscribe(List.of("orders"));
        return consumer;
    }

    static Thread consume(String clientId, String group, int maxPollRecords, long pauseMs, long hangAfterMs) {
        Thread thread = new Thread(() -> {
            long start = System.currentTimeMillis();
            try (KafkaConsumer<String, String> consumer = member(clientId, group, maxPollRecords)) {
                while (!done) {
                    consumer.poll(Duration.ofMillis(200));
                    boolean hangs = System.currentTimeMillis() - start > hangAfterMs;
                    for (long slept = 0; !done && slept < (hangs ? 60000 : pauseMs); slept += 50) Thread.sleep(50);
                }
            } catch (InterruptedException interrupted) {
                Thread.currentThread().interrupt();
            }
        });
        thread.start();
        return thread;
    }

    public static void main(String[] arguments) throws Exception {
        String bootstrap = System.getenv("BOOTSTRAP");
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap, "client.id", "java-setup"))) {
            admin.createTopics(List.of(new NewTopic("orders", 2, (short) 1))).all().get(10, TimeUnit.SECONDS);
        }
        List<Thread> threads = List.of(
            consume("billing-stuck", "billing", 500, 0, 4000),
            consume("reports-slow", "reports", 20, 500, Long.MAX_VALUE),
            consume("audit-quick", "audit", 500, 0, Long.MAX_VALUE));
        Map<String, Object> config = new HashMap<>();
        config.put("bootstrap.servers", bootstrap);
        config.put("client.id", "java-feeder");
        config.put("linger.ms", 500);
        config.put("compression.type", "lz4");
        config.put("key.serializer", STRING + "Serializer");
        config.put("value.serializer", STRING + "Serializer");
        int sent = 0;
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(config)) {
            for (long end = System.currentTimeMillis() + 20000; System.currentTimeMillis() < end; sent++) {
                producer.send(new ProducerRecord<>("orders", sent % 2, null, "order order order " + sent));
                Thread.sleep(6);
            }
        }
        done = true;
        for (Thread thread : threads) thread.join();
        Map<String, Object> told = new HashMap<>();
        told.put("client", "kafka-clients (Java)");
        told.put("version", AppInfoParser.getVersion());
        told.put("produced", List.of());
        told.put("consumed", Map.of());
        told.put("errors", List.of());
        told.put("notes", new ArrayList<>(List.of(Map.of("sent", sent))));
        new ObjectMapper().writeValue(new File(System.getenv("FACTS")), told);
    }
}
