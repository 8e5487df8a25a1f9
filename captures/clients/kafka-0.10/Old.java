import java.io.FileWriter;
import java.io.Writer;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.utils.AppInfoParser;

/** The Java client of 0.10.2: message sets with magic 1, compressed wrappers, a group of two. */
public class Old {
    static final List<String> produced = new ArrayList<>();
    static final List<String> notes = new ArrayList<>();
    static int consumed = 0;

    static Properties config(String clientId) {
        String prefix = "org.apache.kafka.common.serialization.String";
        Properties config = new Properties();
        config.put("bootstrap.servers", System.getenv("BOOTSTRAP"));
        config.put("client.id", clientId);
        config.put("key.serializer", prefix + "Serializer");
        config.put("value.serializer", prefix + "Serializer");
        config.put("key.deserializer", prefix + "Deserializer");
        config.put("value.deserializer", prefix + "Deserializer");
        return config;
    }

    static void produce(String codec, String acks) throws Exception {
        String id = "old-java-" + codec + "-acks-" + acks;
        Properties config = config(id);
        config.put("compression.type", codec);
        config.put("acks", acks);
        config.put("linger.ms", "30");
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(config)) {
            List<java.util.concurrent.Future<RecordMetadata>> sent = new ArrayList<>();
            for (int number = 0; number < 5; number++)
                sent.add(producer.send(new ProducerRecord<>("orders", number % 2, "key-" + number, "a value, a value, a value " + number)));
            for (java.util.concurrent.Future<RecordMetadata> one : sent) {
                RecordMetadata done = one.get();
                String offset = acks.equals("0") ? "null" : Long.toString(done.offset());
                produced.add(String.format("{\"client_id\": \"%s\", \"topic\": \"%s\", \"partition\": %d, \"offset\": %s, "
                    + "\"acks\": \"%s\", \"codec\": \"%s\"}", id, done.topic(), done.partition(), offset, acks, codec));
            }
        }
    }

    static KafkaConsumer<String, String> member(String clientId) {
        Properties config = config(clientId);
        config.put("group.id", "old-group");
        config.put("auto.offset.reset", "earliest");
        config.put("heartbeat.interval.ms", "500");
        config.put("session.timeout.ms", "6000");
        config.put("fetch.max.wait.ms", "200");
        config.put("auto.commit.interval.ms", "1000");
        KafkaConsumer<String, String> consumer = new KafkaConsumer<>(config);
        consumer.subscribe(Collections.singletonList("orders"));
        return consumer;
    }

    static Thread poll(KafkaConsumer<String, String> consumer, String name, long millis) {
        // A member that polls blocks while the group rebalances, so each has its own thread.
        Thread thread = new Thread(() -> {
            long end = System.currentTimeMillis() + millis;
            while (System.currentTimeMillis() < end) {
                int count = consumer.poll(200).count();
                synchronized (notes) { consumed += count; }
            }
            synchronized (notes) { notes.add(String.format("{\"member\": \"%s\", \"assignment\": \"%s\"}", name, consumer.assignment())); }
            consumer.close();
        });
        thread.start();
        return thread;
    }

    public static void main(String[] arguments) throws Exception {
        for (String codec : new String[] {"none", "gzip", "snappy", "lz4"})
            for (String acks : new String[] {"0", "1", "all"}) produce(codec, acks);
        Thread first = poll(member("old-java-first"), "first", 7000);
        Thread.sleep(2500);
        Thread second = poll(member("old-java-second"), "second", 2500);
        first.join();
        second.join();
        try (Writer out = new FileWriter(System.getenv("FACTS"))) {
            out.write(String.format("{\"client\": \"kafka-clients (Java)\", \"version\": \"%s\", \"produced\": %s, "
                + "\"consumed\": {\"orders\": %d}, \"errors\": [], \"notes\": %s}", AppInfoParser.getVersion(), produced, consumed, notes));
        }
    }
}
