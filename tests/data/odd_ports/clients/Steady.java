import java.nio.file.*;
import java.time.Duration;
import java.util.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;

/** A producer and a consumer in a group (classic or KIP-848) that keep their connections for some seconds. */
public class Steady {
    static Map<String, Object> config(String id, Object... more) {
        Map<String, Object> c = new HashMap<>();
        c.put("bootstrap.servers", System.getenv("BOOTSTRAP"));
        c.put("client.id", id);
        String s = "org.apache.kafka.common.serialization.String";
        for (String k : List.of("key", "value")) { c.put(k + ".serializer", s + "Serializer"); c.put(k + ".deserializer", s + "Deserializer"); }
        for (int i = 0; i < more.length; i += 2) c.put((String) more[i], more[i + 1]);
        return c;
    }
    public static void main(String[] args) throws Exception {
        long end = System.currentTimeMillis() + (long) (1000 * Double.parseDouble(args[0]));
        String protocol = args.length > 1 ? args[1] : "classic";
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(config("java-producer", "compression.type", "zstd", "linger.ms", 5))) {
            Thread reader = new Thread(() -> {
                try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(config("java-consumer", "group.id", "java-" + protocol,
                        "group.protocol", protocol, "auto.offset.reset", "earliest", "fetch.max.wait.ms", 300, "auto.commit.interval.ms", 1000))) {
                    consumer.subscribe(List.of("orders"));
                    while (System.currentTimeMillis() < end) consumer.poll(Duration.ofMillis(200));
                }
            });
            reader.start();
            StringBuilder rows = new StringBuilder();
            while (System.currentTimeMillis() < end) {
                RecordMetadata m = producer.send(new ProducerRecord<>("orders", "steady")).get();
                if (rows.length() > 0) rows.append(",");
                rows.append("{\"partition\":" + m.partition() + ",\"offset\":" + m.offset() + "}");
                Thread.sleep(60);
            }
            reader.join();
            Files.writeString(Path.of(System.getenv("FACTS")), "{\"produced\":[" + rows + "]}");
        }
    }
}
