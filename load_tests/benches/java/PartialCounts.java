import com.uber.h3core.H3Core;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.processor.PunctuationType;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.KeyValueStore;

/**
 * Counts the fixes and devices of one partition by cell and window: the first processor of the heat
 * map.
 *
 * <p>A device counts once a second. A short window is closed when the newest fix is later than its
 * end by the grace, and is added to its long one.
 */
final class PartialCounts implements Processor<String, byte[], String, byte[]> {
    static final String STORE = "heat";
    private static final int CELLS_MAX = 2000;
    private static final H3Core H3 = h3();

    private final int resolution = (int) StreamsBench.number("resolution", 8);
    private final int windowS = (int) StreamsBench.number("window_s", 60);
    private final int longS = (int) StreamsBench.number("long_window_s", 3600);
    private final long graceMs = StreamsBench.milliseconds("grace_s", 120);
    private final long updateMs = StreamsBench.milliseconds("update_s", 10);

    private final Map<Place, long[]> counts = new HashMap<>();
    private final Set<Place> changed = new LinkedHashSet<>();
    private final TreeSet<Long> open = new TreeSet<>();
    private ProcessorContext<String, byte[]> context;
    private KeyValueStore<String, Heat> states;
    private long streamTime;
    private long toldMs;

    /** The seconds of a short window that have a fix, as bits, and how many by cell. */
    static final class Minute {
        public long seconds;
        public Map<Long, Integer> cells = new HashMap<>();
    }

    /** What is remembered of a device, or of a device and long window. */
    static final class Heat {
        public long time;
        public Map<Long, Minute> minutes = new HashMap<>();
        public Map<Long, Integer> hour = new HashMap<>();
    }

    private record Place(int window, long start, long cell) {}

    private static H3Core h3() {
        try {
            return H3Core.newInstance();
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    @Override
    public void init(ProcessorContext<String, byte[]> context) {
        this.context = context;
        this.states = context.getStateStore(STORE);
        try (KeyValueIterator<String, Heat> all = states.all()) {
            all.forEachRemaining(each -> {
                streamTime = Math.max(streamTime, each.value.time);
                long start = longStart(each.key);
                each.value.hour.forEach((cell, fixes) -> add(longS, start, cell, fixes, 1));
                each.value.minutes.forEach((minute, heat) -> {
                    open.add(minute);
                    heat.cells.forEach((cell, fixes) -> add(windowS, minute, cell, fixes, 1));
                });
            });
        }
        context.schedule(Duration.ofSeconds(1), PunctuationType.WALL_CLOCK_TIME, now -> {
            if (now - toldMs >= updateMs) {
                toldMs = now;
                tell(now);
            }
        });
    }

    @Override
    public void process(Record<String, byte[]> record) {
        Fix fix = Json.read(record.value(), Fix.class);
        if (fix == null || fix.device == null) {
            return;
        }
        count(fix, fix.eventTime());
        close(record.timestamp());
    }

    /** Returns the start in the key of a long window, -1 in that of a device. */
    private static long longStart(String key) {
        int line = key.indexOf('\n');
        return line < 0 ? -1 : Long.parseLong(key.substring(line + 1));
    }

    private void add(int window, long start, long cell, long fixes, int devices) {
        Place place = new Place(window, start, cell);
        long[] count = counts.computeIfAbsent(place, each -> new long[2]);
        count[0] += fixes;
        count[1] += devices;
        changed.add(place);
    }

    private void count(Fix fix, long time) {
        long start = time - time % (windowS * 1000L);
        if (start + windowS * 1000L + graceMs <= streamTime) {
            return;
        }
        Heat known = states.get(fix.device);
        Heat state = known == null ? new Heat() : known;
        Minute minute = state.minutes.computeIfAbsent(start, each -> new Minute());
        open.add(start);
        long second = 1L << (time - start) / 1000;
        if ((minute.seconds & second) != 0) {
            return;
        }
        long cell = H3.latLngToCell(fix.lat, fix.lon, resolution);
        Integer fixes = minute.cells.get(cell);
        if (fixes == null && minute.cells.size() >= CELLS_MAX) {
            return;
        }
        minute.seconds |= second;
        minute.cells.merge(cell, 1, Integer::sum);
        add(windowS, start, cell, 1, fixes == null ? 1 : 0);
        state.time = Math.max(state.time, time);
        states.put(fix.device, state);
        streamTime = Math.max(streamTime, time);
    }

    /** Closes the short windows that take no more fixes, and the long ones that get no more. */
    private void close(long timestamp) {
        long openMs = streamTime - graceMs;
        List<Long> closed = new ArrayList<>();
        while (!open.isEmpty() && open.first() + windowS * 1000L <= openMs) {
            closed.add(open.pollFirst());
        }
        if (closed.isEmpty()) {
            return;
        }
        List<KeyValue<String, Heat>> devices = new ArrayList<>();
        List<String> over = new ArrayList<>();
        try (KeyValueIterator<String, Heat> all = states.all()) {
            while (all.hasNext()) {
                long longStart = longStart(all.peekNextKey());
                KeyValue<String, Heat> each = all.next();
                if (longStart < 0) {
                    devices.add(each);
                }
            }
        }
        for (KeyValue<String, Heat> each : devices) {
            closeOf(each.key, each.value, closed);
        }
        tell(timestamp);
        try (KeyValueIterator<String, Heat> all = states.all()) {
            while (all.hasNext()) {
                String key = all.peekNextKey();
                long longStart = longStart(key);
                if (longStart >= 0 && longStart + longS * 1000L <= openMs) {
                    over.add(key);
                }
                all.next();
            }
        }
        over.forEach(states::delete);
        counts.keySet().removeIf(place -> place.start() + place.window() * 1000L <= openMs);
    }

    private void closeOf(String device, Heat state, List<Long> closed) {
        boolean some = false;
        for (long start : closed) {
            Minute minute = state.minutes.remove(start);
            if (minute == null) {
                continue;
            }
            some = true;
            if (longS > windowS) {
                addToLong(device, start, minute, state.time);
            }
        }
        if (state.minutes.isEmpty()) {
            states.delete(device);
        } else if (some) {
            states.put(device, state);
        }
    }

    private void addToLong(String device, long start, Minute minute, long time) {
        long longStart = start - start % (longS * 1000L);
        String key = device + "\n" + longStart;
        Heat known = states.get(key);
        Heat state = known == null ? new Heat() : known;
        minute.cells.forEach((cell, fixes) -> {
            Integer before = state.hour.get(cell);
            if (before == null && state.hour.size() >= CELLS_MAX) {
                return;
            }
            state.hour.merge(cell, fixes, Integer::sum);
            add(longS, longStart, cell, fixes, before == null ? 1 : 0);
        });
        state.time = Math.max(state.time, time);
        states.put(key, state);
    }

    private void tell(long timestamp) {
        int partition = context.taskId().partition();
        for (Place place : changed) {
            long[] count = counts.getOrDefault(place, new long[2]);
            HeatMap.PartialCount partial = new HeatMap.PartialCount(
                    partition, place.cell(), place.window(), place.start(),
                    count[0], (int) count[1]);
            context.forward(
                    new Record<>(
                            Long.toHexString(place.cell()), Json.bytes(partial), timestamp),
                    HeatMap.COUNTS);
        }
        changed.clear();
    }
}
