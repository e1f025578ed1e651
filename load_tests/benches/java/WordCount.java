import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.state.Stores;

/** Fixes by user, made of operators, through a repartition topic. */
final class WordCount {
    private WordCount() {}

    static Topology topology() {
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream("location", Consumed.with(Serdes.String(), Serdes.ByteArray()))
                .mapValues(value -> Json.read(value, Fix.class))
                .mapValues(fix -> fix == null ? "" : fix.user)
                .groupBy((key, user) -> user, Grouped.with(Serdes.String(), Serdes.String()))
                .count(Materialized.as(Stores.inMemoryKeyValueStore("counts")))
                .toStream()
                .mapValues(count -> Long.toString(count))
                .to("fixes-by-user", Produced.with(Serdes.String(), Serdes.String()));
        return builder.build();
    }
}
