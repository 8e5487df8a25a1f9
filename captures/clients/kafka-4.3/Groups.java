import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.File;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.utils.AppInfoParser;

/** The Java client of today: topic ids, transactions of KIP-890, KIP-848 and share groups, client telemetry. */
public class Groups {
    static final String BOOTSTRAP = System.getenv("BOOTSTRAP");
    static final String STRING = "org.apache.kafka.common.serialization.String";
    static final List<Map<String, Object>> produced = new ArrayList<>();
    static final List<Map<String, Object>> notes = new ArrayList<>();
    static final Map<String, Integer> consumed = new HashMap<>();

    static Map<String, Object> config(String clientId, Object... more) {
        Map<String, Object> config = new HashMap<>();
        config.put("bootstrap.servers", BOOTSTRAP);
        config.put("client.id", clientId);
        config.put("key.serializer", STRING + "Serializer");
        config.put("value.serializer", STRING + "Serializer");
        config.put("key.deserializer", STRING + "Deserializer");
        config.put("value.deserializer", STRING + "Deserializer");
        for (int i = 0; i < more.length; i += 2) config.put((String) more[i], more[i + 1]);
        return config;
    }

    static void produce(String clientId, String codec, String acks, int count, Object... more) throws Exception {
        Map<String, Object> config = config(clientId, more);
        config.put("compression.type", codec);
        config.put("acks", acks);
        config.put("enable.idempotence", acks.equals("all"));
        config.put("linger.ms", 20);
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(config)) {
            for (int number = 0; number < count; number++) {
                ProducerRecord<String, String> record =
                    new ProducerRecord<>("orders", number % 2, "key-" + number, "value value value " + number);
                if (number % 3 == 0) record.headers().add("trace", new byte[] {1, 2, 3});
                producer.send(record, (done, failed) -> told(clientId, codec, acks, done, null));
            }
            producer.flush();
        }
    }

    static void told(String clientId, String codec, String acks, RecordMetadata done, String transaction) {
        Map<String, Object> row = new HashMap<>();
        row.put("client_id", clientId);
        row.put("topic", done.topic());
        row.put("partition", done.partition());
        row.put("offset", done.hasOffset() ? done.offset() : null);
        row.put("acks", acks);
        row.put("codec", codec);
        if (transaction != null) row.put("transaction", transaction);
        synchronized (produced) { produced.add(row); }
    }

    static void transactions() throws Exception {
        String id = "java-transactional";
        Map<String, Object> config = config(id, "transactional.id", "java-tx");
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(config);
             KafkaConsumer<String, String> reader = new KafkaConsumer<>(config("java-tx-reader", "group.id", "java-tx-group"))) {
            producer.initTransactions();
            for (String outcome : List.of("commit", "abort", "commit")) {
                producer.beginTransaction();
                for (int partition = 0; partition < 2; partition++) {
                    producer.send(new ProducerRecord<>("orders", partition, null, outcome),
                        (done, failed) -> told(id, "none", "all", done, outcome));
                }
                if (outcome.equals("commit")) {
                    Map<TopicPartition, OffsetAndMetadata> offsets =
                        Map.of(new TopicPartition("orders", 0), new OffsetAndMetadata(3));
                    producer.sendOffsetsToTransaction(offsets, reader.groupMetadata());
                    producer.commitTransaction();
                } else {
                    producer.flush();
                    producer.abortTransaction();
                }
                notes.add(Map.of("transaction", outcome, "client_id", id));
            }
        }
    }

    static void consume(List<KafkaConsumer<String, String>> consumers, int rounds) {
        for (int round = 0; round < rounds; round++) {
            for (KafkaConsumer<String, String> consumer : consumers) {
                int count = consumer.poll(Duration.ofMillis(100)).count();
                if (count > 0) consumed.merge("consumer group", count, Integer::sum);
            }
        }
    }

    static KafkaConsumer<String, String> member(String clientId) {
        KafkaConsumer<String, String> consumer = new KafkaConsumer<>(config(clientId, "group.id", "java-kip848",
            "group.protocol", "consumer", "auto.offset.reset", "earliest", "fetch.max.wait.ms", 200));
        consumer.subscribe(List.of("orders"));
        return consumer;
    }

    static void consumerGroup() {
        KafkaConsumer<String, String> first = member("java-first");
        consume(List.of(first), 20);
        KafkaConsumer<String, String> second = member("java-second");
        consume(List.of(first, second), 25);
        notes.add(Map.of("group", "java-kip848", "first", first.assignment().toString(), "second", second.assignment().toString()));
        second.close();
        consume(List.of(first), 15);
        first.commitSync();
        first.close();
    }

    static KafkaShareConsumer<String, String> sharer(String clientId) {
        KafkaShareConsumer<String, String> consumer = new KafkaShareConsumer<>(config(clientId, "group.id", "java-share",
            "share.acknowledgement.mode", "explicit", "fetch.max.wait.ms", 200, "max.poll.records", 5));
        consumer.subscribe(List.of("orders"));
        return consumer;
    }

    static void shareGroup() throws Exception {
        try (KafkaShareConsumer<String, String> first = sharer("java-share-first");
             KafkaShareConsumer<String, String> second = sharer("java-share-second")) {
            for (int round = 0; round < 25; round++) {
                for (KafkaShareConsumer<String, String> consumer : List.of(first, second)) {
                    for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(120))) {
                        AcknowledgeType type = record.offset() % 5 == 4 && record.deliveryCount().orElse((short) 1) == 1
                            ? AcknowledgeType.RELEASE
                            : record.offset() % 7 == 6 ? AcknowledgeType.REJECT : AcknowledgeType.ACCEPT;
                        consumer.acknowledge(record, type);
                        consumed.merge("share group " + type, 1, Integer::sum);
                    }
                    consumer.commitSync();
                }
                if (round == 5) produce("java-share-feeder", "lz4", "1", 10);
            }
        }
    }

    static void set(Admin admin, ConfigResource.Type type, String name, String... pairs) throws Exception {
        List<AlterConfigOp> changes = new ArrayList<>();
        for (int i = 0; i < pairs.length; i += 2)
            changes.add(new AlterConfigOp(new ConfigEntry(pairs[i], pairs[i + 1]), AlterConfigOp.OpType.SET));
        admin.incrementalAlterConfigs(Map.of(new ConfigResource(type, name), changes)).all().get(10, TimeUnit.SECONDS);
    }

    public static void main(String[] arguments) throws Exception {
        try (Admin admin = Admin.create(config("java-setup"))) {
            admin.createTopics(List.of(new NewTopic("orders", 2, (short) 1))).all().get(10, TimeUnit.SECONDS);
            set(admin, ConfigResource.Type.CLIENT_METRICS, "sample", "metrics", "org.apache.kafka.producer.connection",
                "interval.ms", "1000", "match", "client_id=java-.*");
            set(admin, ConfigResource.Type.GROUP, "java-share", "share.auto.offset.reset", "earliest");
        }
        for (String codec : List.of("none", "gzip", "snappy", "lz4", "zstd")) {
            for (String acks : List.of("0", "1", "all")) produce("java-" + codec + "-acks-" + acks, codec, acks, 4);
        }
        transactions();
        consumerGroup();
        shareGroup();
        Map<String, Object> told = new HashMap<>();
        told.put("client", "kafka-clients (Java)");
        told.put("version", AppInfoParser.getVersion());
        told.put("produced", produced);
        told.put("consumed", consumed);
        told.put("errors", List.of());
        told.put("notes", notes);
        new ObjectMapper().writeValue(new File(System.getenv("FACTS")), told);
    }
}
