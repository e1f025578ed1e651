import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.processor.api.ProcessorSupplier;
import org.apache.kafka.streams.state.Stores;

/** Processors that hand records on over topics: each reads one topic and has one store. */
final class Chain {
    private final Topology topology = new Topology();

    /** Adds a processor, its store in memory with a changelog, and a sink for each output. */
    Chain add(
            String topic, ProcessorSupplier<String, byte[], String, byte[]> supplier,
            String store, Class<?> stateType, String... outputs) {
        String processor = "of-" + topic;
        topology.addSource(
                "from-" + topic, new StringDeserializer(), new ByteArrayDeserializer(), topic);
        topology.addProcessor(processor, supplier, "from-" + topic);
        topology.addStateStore(
                Stores.keyValueStoreBuilder(
                        Stores.inMemoryKeyValueStore(store),
                        Serdes.String(),
                        Json.serde(stateType)),
                processor);
        for (String output : outputs) {
            topology.addSink(
                    output, output, new StringSerializer(), new ByteArraySerializer(), processor);
        }
        return this;
    }

    Topology topology() {
        return topology;
    }
}
