import java.io.FileWriter;
import java.io.Writer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import kafka.api.FetchRequestBuilder;
import kafka.api.PartitionOffsetRequestInfo;
import kafka.common.ErrorMapping;
import kafka.common.OffsetAndMetadata;
import kafka.common.TopicAndPartition;
import kafka.consumer.Consumer;
import kafka.consumer.ConsumerConfig;
import kafka.consumer.ConsumerTimeoutException;
import kafka.consumer.KafkaStream;
import kafka.javaapi.FetchResponse;
import kafka.javaapi.OffsetCommitRequest;
import kafka.javaapi.OffsetFetchRequest;
import kafka.javaapi.OffsetRequest;
import kafka.javaapi.PartitionMetadata;
import kafka.javaapi.TopicMetadataRequest;
import kafka.javaapi.consumer.SimpleConsumer;
import kafka.javaapi.consumer.ConsumerConnector;
import kafka.javaapi.producer.Producer;
import kafka.message.MessageAndMetadata;
import kafka.message.MessageAndOffset;
import kafka.producer.KeyedMessage;
import kafka.producer.ProducerConfig;

/** The Scala clients of 0.8.2: message sets with magic 0, version 0 of everything, offsets in ZooKeeper and Kafka. */
public class Ancient {
    static final String[] CODECS = {"none", "gzip", "snappy", "lz4"};
    static final List<String> produced = new ArrayList<>();
    static final List<String> errors = new ArrayList<>();
    static int consumed = 0;
    static int consumedByGroup = 0;

    static void produce(int codec, String acks) {
        String id = "ancient-" + CODECS[codec] + "-acks-" + acks;
        Properties config = new Properties();
        config.put("metadata.broker.list", System.getenv("BOOTSTRAP"));
        config.put("client.id", id);
        config.put("serializer.class", "kafka.serializer.StringEncoder");
        config.put("request.required.acks", acks);
        config.put("compression.codec", Integer.toString(codec));
        Producer<String, String> producer = new Producer<>(new ProducerConfig(config));
        List<KeyedMessage<String, String>> messages = new ArrayList<>();
        for (int number = 0; number < 5; number++)
            messages.add(new KeyedMessage<>("orders", "key-" + number, "an old value, old value, old value " + number));
        producer.send(messages);
        producer.close();
        produced.add(String.format("{\"client_id\": \"%s\", \"topic\": \"orders\", \"partition\": null, \"offset\": null, "
            + "\"acks\": \"%s\", \"codec\": \"%s\", \"records\": %d}", id, acks, CODECS[codec], messages.size()));
    }

    static void error(String what, short code) {
        if (code != 0)
            errors.add(String.format("{\"client_id\": \"ancient-reader\", \"what\": \"%s\", \"code\": %d, \"name\": \"%s\"}",
                what, code, ErrorMapping.exceptionFor(code).getClass().getSimpleName()));
    }

    static void read(String host, int port, int partition) {
        SimpleConsumer consumer = new SimpleConsumer(host, port, 10000, 65536, "ancient-reader");
        TopicAndPartition where = new TopicAndPartition("orders", partition);
        Map<TopicAndPartition, PartitionOffsetRequestInfo> asked = new HashMap<>();
        asked.put(where, new PartitionOffsetRequestInfo(kafka.api.OffsetRequest.LatestTime(), 1));
        long end = consumer.getOffsetsBefore(new OffsetRequest(asked, kafka.api.OffsetRequest.CurrentVersion(), "ancient-reader"))
            .offsets("orders", partition)[0];
        long next = 0;
        while (next < end) {
            FetchResponse answer = consumer.fetch(new FetchRequestBuilder().clientId("ancient-reader").maxWait(200).minBytes(1)
                .addFetch("orders", partition, next, 500).build());
            for (MessageAndOffset one : answer.messageSet("orders", partition)) {
                if (one.offset() < next) continue;
                consumed++;
                next = one.nextOffset();
            }
        }
        FetchResponse wrong = consumer.fetch(new FetchRequestBuilder().clientId("ancient-reader").addFetch("orders", partition, 9999, 500).build());
        error("fetch out of range", wrong.errorCode("orders", partition));
        for (short version = 0; version < 2; version++) {
            Map<TopicAndPartition, OffsetAndMetadata> offsets = new HashMap<>();
            offsets.put(where, new OffsetAndMetadata(next, "by version " + version, -1L));
            consumer.commitOffsets(new OffsetCommitRequest("ancient-group", offsets, version, "ancient-reader", version));
            consumer.fetchOffsets(new OffsetFetchRequest("ancient-group", Arrays.asList(where), version, 10 + version, "ancient-reader"));
        }
        consumer.close();
    }

    static void readAsGroup() {
        Properties config = new Properties();
        config.put("zookeeper.connect", "127.0.0.1:2181");
        config.put("group.id", "ancient-zookeeper-group");
        config.put("client.id", "ancient-group-reader");
        config.put("consumer.id", "ancient");
        config.put("auto.offset.reset", "smallest");
        config.put("offsets.storage", "kafka");
        config.put("fetch.wait.max.ms", "200");
        config.put("consumer.timeout.ms", "1500");
        ConsumerConnector connector = Consumer.createJavaConsumerConnector(new ConsumerConfig(config));
        KafkaStream<byte[], byte[]> stream = connector.createMessageStreams(Collections.singletonMap("orders", 1)).get("orders").get(0);
        try {
            for (MessageAndMetadata<byte[], byte[]> one : stream) consumedByGroup++;
        } catch (ConsumerTimeoutException done) {
            connector.commitOffsets();
        }
        connector.shutdown();
    }

    public static void main(String[] arguments) throws Exception {
        for (int codec = 0; codec < CODECS.length; codec++)
            for (String acks : new String[] {"0", "1", "-1"}) produce(codec, acks);
        SimpleConsumer first = new SimpleConsumer("127.0.0.1", 9092, 10000, 65536, "ancient-metadata");
        for (PartitionMetadata partition : first.send(new TopicMetadataRequest(Collections.singletonList("orders")))
                .topicsMetadata().get(0).partitionsMetadata())
            read(partition.leader().host(), partition.leader().port(), partition.partitionId());
        first.close();
        readAsGroup();
        try (Writer out = new FileWriter(System.getenv("FACTS"))) {
            out.write(String.format("{\"client\": \"Scala clients\", \"version\": \"0.8.2.2\", \"produced\": %s, "
                + "\"consumed\": {\"orders\": %d, \"orders (group)\": %d}, \"errors\": %s, \"notes\": []}",
                produced, consumed, consumedByGroup, errors));
        }
    }
}
