import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.TreeMap;
import java.util.UUID;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;

/**
 * Topologies of `waylog streams` in Kafka Streams, for a comparison of what they cost.
 *
 * <p>Arguments: bootstrap servers, topology (speed, geofences, word-count), processing guarantee.
 * The application is `java-TOPOLOGY`; states are in memory, with a changelog, as ours are.
 */
public final class StreamsBench {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final double EARTH_M = 6_371_008.8;
    private static final String STATES = "states";

    private StreamsBench() {}

    public static void main(String[] arguments) throws InterruptedException {
        String servers = arguments[0];
        String name = arguments[1];
        StreamsBuilder builder = new StreamsBuilder();
        if (name.equals("word-count")) {
            wordCount(builder);
        } else {
            List<Fence> fences = name.equals("geofences") ? fences(servers) : List.of();
            builder.addStateStore(
                    Stores.keyValueStoreBuilder(
                            Stores.inMemoryKeyValueStore(STATES),
                            Serdes.String(),
                            Serdes.ByteArray()));
            builder.stream("location", Consumed.with(Serdes.String(), Serdes.ByteArray()))
                    .process(() -> name.equals("speed") ? new Speed() : new Geofences(fences), STATES)
                    .to("event", Produced.with(Serdes.String(), Serdes.ByteArray()));
        }
        Properties properties = new Properties();
        properties.put(StreamsConfig.APPLICATION_ID_CONFIG, "java-" + name);
        properties.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, servers);
        properties.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, arguments[2]);
        properties.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 500);
        properties.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, 1);
        properties.put(StreamsConfig.STATE_DIR_CONFIG, arguments[3]);
        properties.put("auto.offset.reset", "earliest");
        KafkaStreams streams = new KafkaStreams(builder.build(), properties);
        CountDownLatch ending = new CountDownLatch(1);
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            streams.close(Duration.ofSeconds(10));
            ending.countDown();
        }));
        streams.start();
        ending.await();
    }

    /** Counts fixes by user, through a repartition topic. */
    private static void wordCount(StreamsBuilder builder) {
        builder.stream("location", Consumed.with(Serdes.String(), Serdes.ByteArray()))
                .mapValues(StreamsBench::parsed)
                .mapValues(fix -> fix == null ? "" : fix.path("user").asText())
                .groupBy((key, user) -> user, Grouped.with(Serdes.String(), Serdes.String()))
                .count(Materialized.as(Stores.inMemoryKeyValueStore("counts")))
                .toStream()
                .mapValues(count -> Long.toString(count))
                .to("fixes-by-user", Produced.with(Serdes.String(), Serdes.String()));
    }

    private static JsonNode parsed(byte[] value) {
        try {
            return JSON.readTree(value);
        } catch (java.io.IOException error) {
            return null;
        }
    }

    private static double metres(double lat, double lon, double otherLat, double otherLon) {
        double phi = Math.toRadians(lat);
        double otherPhi = Math.toRadians(otherLat);
        double north = Math.sin((otherPhi - phi) / 2);
        double east = Math.sin(Math.toRadians(otherLon - lon) / 2);
        double half = north * north + Math.cos(phi) * Math.cos(otherPhi) * east * east;
        return 2 * EARTH_M * Math.asin(Math.min(1.0, Math.sqrt(half)));
    }

    private record Fence(String key, double lat, double lon, double radius) {}

    /** Reads the circles of topic geofence to its present end. */
    private static List<Fence> fences(String servers) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", servers);
        TreeMap<String, Fence> found = new TreeMap<>();
        try (KafkaConsumer<byte[], byte[]> consumer =
                new KafkaConsumer<>(
                        properties, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            List<TopicPartition> partitions = new ArrayList<>();
            for (PartitionInfo each : consumer.partitionsFor("geofence")) {
                partitions.add(new TopicPartition("geofence", each.partition()));
            }
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            long end = consumer.endOffsets(partitions).values().stream().mapToLong(n -> n).sum();
            while (partitions.stream().mapToLong(consumer::position).sum() < end) {
                consumer.poll(Duration.ofMillis(100)).forEach(record -> {
                    JsonNode circle = parsed(record.value()).path("circle");
                    String key = new String(record.key(), StandardCharsets.UTF_8);
                    found.put(key, new Fence(
                            key,
                            circle.path("lat").asDouble(),
                            circle.path("lon").asDouble(),
                            circle.path("radius").asDouble()));
                });
            }
        }
        return new ArrayList<>(found.values());
    }

    /** Hands each fix that is newer than those before to `observe`, with its device's state. */
    private abstract static class Fixes implements Processor<String, byte[], String, byte[]> {
        private ProcessorContext<String, byte[]> context;
        private KeyValueStore<String, byte[]> states;

        @Override
        public void init(ProcessorContext<String, byte[]> context) {
            this.context = context;
            this.states = context.getStateStore(STATES);
        }

        @Override
        public void process(Record<String, byte[]> record) {
            JsonNode fix = parsed(record.value());
            if (fix == null || !fix.path("device").isTextual()) {
                return;
            }
            String device = fix.path("device").asText();
            long time = fix.path("time").asLong();
            byte[] known = states.get(device);
            ObjectNode state = known == null ? JSON.createObjectNode() : (ObjectNode) parsed(known);
            if (known != null && time <= state.path("time").asLong()) {
                return;
            }
            observe(fix, time, state, record);
            state.put("time", time);
            states.put(device, bytes(state));
        }

        abstract void observe(
                JsonNode fix, long time, ObjectNode state, Record<String, byte[]> record);

        void tell(JsonNode fix, String type, String transition, long time, String about,
                Record<String, byte[]> record) {
            String name = type + "\0" + transition + "\0" + about + "\0" + fix.path("id").asText();
            ObjectNode event = JSON.createObjectNode();
            event.put("id", UUID.nameUUIDFromBytes(
                    name.getBytes(StandardCharsets.UTF_8)).toString());
            event.put("device", fix.path("device").asText());
            event.put("user", fix.path("user").asText());
            event.put("type", type);
            event.put("time", time);
            event.put("received", fix.path("received").asLong());
            event.put("source", "java");
            ObjectNode attributes = event.putObject("attributes");
            attributes.put("transition", transition);
            attributes.put("fence", about);
            attributes.put("lat", fix.path("lat").asDouble());
            attributes.put("lon", fix.path("lon").asDouble());
            attributes.put("fix_id", fix.path("id").asText());
            context.forward(record.withKey(fix.path("device").asText()).withValue(bytes(event)));
        }

        static byte[] bytes(JsonNode node) {
            try {
                return JSON.writeValueAsBytes(node);
            } catch (java.io.IOException error) {
                throw new IllegalStateException(error);
            }
        }
    }

    /** Devices that are faster than 130 km/h, by what they say or the way from the fix before. */
    private static final class Speed extends Fixes {
        private static final double LIMIT = 130 / 3.6;
        private static final double IMPLAUSIBLE = 400 / 3.6;

        @Override
        void observe(JsonNode fix, long time, ObjectNode state, Record<String, byte[]> record) {
            double lat = fix.path("lat").asDouble();
            double lon = fix.path("lon").asDouble();
            double accuracy = fix.path("accuracy").asDouble(0);
            double speed = fix.path("speed").asDouble(-1);
            if (state.has("lat") && time - state.path("at").asLong() >= 1000) {
                double way = metres(
                        state.path("lat").asDouble(), state.path("lon").asDouble(), lat, lon);
                double measured = Math.max(0, way - accuracy - state.path("accuracy").asDouble())
                        * 1000 / (time - state.path("at").asLong());
                if (measured > IMPLAUSIBLE) {
                    return;
                }
                if (speed < 0) {
                    speed = measured;
                }
            }
            state.put("at", time).put("lat", lat).put("lon", lon).put("accuracy", accuracy);
            boolean speeding = state.path("since").asLong() > 0;
            if (speed > LIMIT && !speeding) {
                state.put("since", time);
                tell(fix, "speeding", "begin", time, "", record);
            } else if (speeding && speed <= LIMIT * 0.9) {
                state.put("since", 0);
                tell(fix, "speeding", "end", time, "", record);
            }
        }
    }

    /** Devices that enter circles, leave them, and dwell in them. */
    private static final class Geofences extends Fixes {
        private static final long DWELL_MS = 600_000;
        private final List<Fence> fences;

        Geofences(List<Fence> fences) {
            this.fences = fences;
        }

        @Override
        void observe(JsonNode fix, long time, ObjectNode state, Record<String, byte[]> record) {
            double lat = fix.path("lat").asDouble();
            double lon = fix.path("lon").asDouble();
            double accuracy = fix.path("accuracy").asDouble(10);
            ObjectNode stays = state.withObject("/stays");
            for (Fence fence : fences) {
                ArrayNode stay = (ArrayNode) stays.get(fence.key());
                // A degree of latitude has 111 km: most circles are left out by that alone.
                if (stay == null && Math.abs(lat - fence.lat()) * 111_000 > fence.radius()) {
                    continue;
                }
                double depth = fence.radius() - metres(lat, lon, fence.lat(), fence.lon());
                if (depth >= accuracy && stay == null) {
                    stays.putArray(fence.key()).add(time).add(false);
                    tell(fix, "geofence", "enter", time, fence.key(), record);
                } else if (depth >= accuracy && !stay.get(1).asBoolean()
                        && time - stay.get(0).asLong() >= DWELL_MS) {
                    stays.putArray(fence.key()).add(stay.get(0).asLong()).add(true);
                    tell(fix, "geofence", "dwell", time, fence.key(), record);
                } else if (depth < -accuracy && stay != null) {
                    stays.remove(fence.key());
                    tell(fix, "geofence", "leave", time, fence.key(), record);
                }
            }
        }
    }
}
