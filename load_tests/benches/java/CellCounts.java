import com.fasterxml.jackson.annotation.JsonProperty;
import java.time.Duration;
import java.util.HashMap;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.kafka.streams.processor.PunctuationType;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.KeyValueStore;

/**
 * Adds the counts of all partitions up, and tells the cells that enough devices are in: the second
 * processor of the heat map.
 *
 * <p>It tells a cell with each count that comes; ours does once for all counts of a batch.
 */
final class CellCounts implements Processor<String, byte[], String, byte[]> {
    static final String STORE = "cells";
    private static final int PLACES_MAX = 200_000;

    private final int devicesMin = (int) StreamsBench.number("devices_min", 5);
    private final long keepMs = StreamsBench.milliseconds("keep_s", 900);
    /** When the places changed last, by the wall clock, the oldest first. */
    private final Map<String, Long> changes = new LinkedHashMap<>();
    private ProcessorContext<String, byte[]> context;
    private KeyValueStore<String, CellState> states;

    /** Fixes and devices by partition of topic location. */
    static final class CellState {
        public Map<Integer, long[]> counts = new HashMap<>();
        public boolean told;
    }

    record CellCount(
            String cell, @JsonProperty("window_s") int window, long start,
            long fixes, long devices) {}

    @Override
    public void init(ProcessorContext<String, byte[]> context) {
        this.context = context;
        this.states = context.getStateStore(STORE);
        long now = context.currentSystemTimeMs();
        try (KeyValueIterator<String, CellState> all = states.all()) {
            all.forEachRemaining(each -> changes.put(each.key, now));
        }
        context.schedule(Duration.ofSeconds(1), PunctuationType.WALL_CLOCK_TIME, this::forget);
    }

    @Override
    public void process(Record<String, byte[]> record) {
        HeatMap.PartialCount partial = Json.read(record.value(), HeatMap.PartialCount.class);
        if (partial == null) {
            return;
        }
        String cell = Long.toHexString(partial.cell());
        String key = cell + "\n" + partial.window() + "\n" + partial.start();
        CellState known = states.get(key);
        CellState state = known == null ? new CellState() : known;
        state.counts.put(
                partial.partition(), new long[] {partial.fixes(), partial.devices()});
        changes.remove(key);
        changes.put(key, context.currentSystemTimeMs());
        long fixes = 0;
        long devices = 0;
        for (long[] each : state.counts.values()) {
            fixes += each[0];
            devices += each[1];
        }
        boolean isEnough = devices >= devicesMin;
        if (isEnough || state.told) {
            CellCount count = new CellCount(
                    cell, partial.window(), partial.start(),
                    isEnough ? fixes : 0, isEnough ? devices : 0);
            context.forward(
                    new Record<>(key, Json.bytes(count), record.timestamp()), HeatMap.RESULTS);
        }
        state.told = isEnough;
        states.put(key, state);
    }

    private void forget(long now) {
        Iterator<Map.Entry<String, Long>> oldest = changes.entrySet().iterator();
        while (oldest.hasNext()) {
            Map.Entry<String, Long> each = oldest.next();
            if (each.getValue() >= now - keepMs && changes.size() <= PLACES_MAX) {
                return;
            }
            states.delete(each.getKey());
            oldest.remove();
        }
    }
}
