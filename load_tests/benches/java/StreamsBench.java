import java.time.Duration;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;

/**
 * Topologies of `waylog streams` in Kafka Streams, for a comparison of what they cost.
 *
 * <p>Arguments: bootstrap servers, topology, processing guarantee, folder. The application is
 * `java-TOPOLOGY`; states are in memory, with a changelog, as ours are. What the topologies have
 * properties for is what ours have without any, but for system properties `waylog.NAME`.
 */
public final class StreamsBench {
    private StreamsBench() {}

    public static void main(String[] arguments) throws InterruptedException {
        Properties properties = new Properties();
        properties.put(StreamsConfig.APPLICATION_ID_CONFIG, "java-" + arguments[1]);
        properties.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[0]);
        properties.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, arguments[2]);
        properties.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 500);
        properties.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, 1);
        properties.put(StreamsConfig.STATE_DIR_CONFIG, arguments[3]);
        properties.put("auto.offset.reset", "earliest");
        KafkaStreams streams = new KafkaStreams(topology(arguments[1], arguments[0]), properties);
        CountDownLatch ending = new CountDownLatch(1);
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            streams.close(Duration.ofSeconds(10));
            ending.countDown();
        }));
        streams.start();
        ending.await();
    }

    private static Topology topology(String name, String servers) {
        return switch (name) {
            case "speed" -> Speed.topology();
            case "geofences" -> Geofences.topology(servers);
            case "word-count" -> WordCount.topology();
            case "silence" -> Silence.topology();
            case "trips" -> Trips.topology();
            case "heat-map" -> HeatMap.topology();
            case "meetings" -> Meetings.topology(servers);
            default -> throw new IllegalArgumentException("no topology " + name);
        };
    }

    /** Returns a property of the topology, in ms where it is in seconds. */
    static long milliseconds(String name, double seconds) {
        return Math.round(number(name, seconds) * 1000);
    }

    static double number(String name, double otherwise) {
        String given = System.getProperty("waylog." + name);
        return given == null ? otherwise : Double.parseDouble(given);
    }
}
