import java.io.FileWriter;
import java.io.Writer;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.utils.AppInfoParser;

/** SASL as 0.10 does it: SaslHandshake v0, then length-prefixed tokens that are no Kafka messages. */
public class OldSasl {
    static final List<String> produced = new ArrayList<>();

    static void produce(String mechanism, String module) throws Exception {
        String id = "old-java-" + mechanism.toLowerCase();
        Properties config = new Properties();
        config.put("bootstrap.servers", System.getenv("BOOTSTRAP"));
        config.put("client.id", id);
        config.put("security.protocol", "SASL_PLAINTEXT");
        config.put("sasl.mechanism", mechanism);
        config.put("sasl.jaas.config", module + " required username=\"alice\" password=\"throw-away-1\";");
        config.put("key.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        config.put("value.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(config)) {
            RecordMetadata done = producer.send(new ProducerRecord<>("orders", 0, "key", "authenticated")).get();
            produced.add(String.format("{\"client_id\": \"%s\", \"topic\": \"orders\", \"partition\": 0, \"offset\": %d, "
                + "\"acks\": \"1\", \"codec\": \"none\"}", id, done.offset()));
        }
    }

    public static void main(String[] arguments) throws Exception {
        produce("PLAIN", "org.apache.kafka.common.security.plain.PlainLoginModule");
        produce("SCRAM-SHA-256", "org.apache.kafka.common.security.scram.ScramLoginModule");
        try (Writer out = new FileWriter(System.getenv("FACTS"))) {
            out.write(String.format("{\"client\": \"kafka-clients (Java)\", \"version\": \"%s\", \"produced\": %s, "
                + "\"consumed\": {}, \"errors\": [], \"notes\": []}", AppInfoParser.getVersion(), produced));
        }
    }
}
