import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.Properties;
import java.util.TreeMap;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** A compacted topic, read once to its present end: what changes later is not followed. */
final class TopicTable {
    private TopicTable() {}

    /** Returns the newest value of each key. */
    static TreeMap<String, byte[]> read(String servers, String topic) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", servers);
        TreeMap<String, byte[]> found = new TreeMap<>();
        try (KafkaConsumer<byte[], byte[]> consumer =
                new KafkaConsumer<>(
                        properties, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            List<TopicPartition> partitions = consumer.partitionsFor(topic).stream()
                    .map(each -> new TopicPartition(topic, each.partition()))
                    .toList();
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            long end = consumer.endOffsets(partitions).values().stream().mapToLong(n -> n).sum();
            while (partitions.stream().mapToLong(consumer::position).sum() < end) {
                consumer.poll(Duration.ofMillis(100)).forEach(record -> {
                    String key = new String(record.key(), StandardCharsets.UTF_8);
                    if (record.value() == null) {
                        found.remove(key);
                    } else {
                        found.put(key, record.value());
                    }
                });
            }
        }
        return found;
    }
}
