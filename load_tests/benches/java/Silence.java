import com.fasterxml.jackson.databind.node.ObjectNode;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashSet;
import java.util.List;
import java.util.PriorityQueue;
import java.util.Set;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.processor.PunctuationType;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueIterator;

/**
 * Devices that are silent for longer than is usual for them, and those that are back.
 *
 * <p>As in topology `silence`: the state of a device, beside it what is usual (UsualGaps), and a
 * heap of when to look at whom. Left out: erasure, and states of earlier versions.
 */
final class Silence extends Fixes<Silence.Hearing> {
    private static final String TYPE = "silence";
    private static final long HOUR_MS = 3_600_000;
    private static final long LEARNING_MS = 60_000;
    private static final String GAPS = "\ngaps";

    private final double factor = StreamsBench.number("factor", 1.5);
    private final long minimumMs = StreamsBench.milliseconds("minimum_s", 900);
    private final long unlearnedMs = StreamsBench.milliseconds("unlearned_s", 86_400);
    private final double learnDays = StreamsBench.number("learn_days", 3);
    private final long idleMs = StreamsBench.milliseconds("idle_s", 60);
    private final long forgetMs = Math.round(StreamsBench.number("forget_days", 90) * 24 * HOUR_MS);

    private final PriorityQueue<Due> due = new PriorityQueue<>(Comparator.comparingLong(Due::at));
    private final Set<String> waiting = new HashSet<>();
    private long heardMs;
    private long sweepMs;

    static final class Hearing extends Fixes.State {
        public String fixId = "";
        public boolean told;
        public long hour;
        /** In the value of the key `device LF gaps` alone. */
        public String gaps = "";
        public long heard;

        long since() {
            return Math.max(heard, time);
        }
    }

    private record Due(long at, String device) {}

    static Topology topology() {
        return new Chain()
                .add(LOCATION, Silence::new, STORE, Hearing.class, Events.TOPIC)
                .topology();
    }

    @Override
    public void init(ProcessorContext<String, byte[]> context) {
        super.init(context);
        heardMs = context.currentSystemTimeMs();
        try (KeyValueIterator<String, Hearing> all = states.all()) {
            all.forEachRemaining(each -> {
                streamTime = Math.max(streamTime, each.value.time);
                if (each.key.indexOf('\n') < 0 && !each.value.told) {
                    await(each.value.since(), each.key);
                }
            });
        }
        context.schedule(
                Duration.ofSeconds(1), PunctuationType.WALL_CLOCK_TIME, this::punctuate);
    }

    @Override
    public void process(Record<String, byte[]> record) {
        heardMs = context.currentSystemTimeMs();
        super.process(record);
        tellSilent(streamTime, record.timestamp());
    }

    @Override
    Hearing observe(Fix fix, long time, Hearing known, Record<String, byte[]> record) {
        long heard = Math.max(time, streamTime);
        Hearing state = known;
        long since = time;
        if (state == null) {
            state = new Hearing();
            state.told = true;
        } else {
            since = state.since();
            if (!state.told && heard - since > minimumMs) {
                tellIfSilent(fix.device, state, heard, record.timestamp());
            }
            if (state.told) {
                ObjectNode attributes = Json.MAPPER.createObjectNode();
                attributes.put("since", since).put("seconds", (heard - since) / 1000.0);
                tell(fix, TYPE, "end", heard, "", attributes, record.timestamp());
            }
        }
        if (state.told) {
            state.told = false;
            await(heard + minimumMs, fix.device);
        }
        long hour = heard / HOUR_MS;
        if (hour != state.hour || heard - since > LEARNING_MS) {
            learn(fix.device, since, heard);
            state.hour = hour;
        }
        state.fixId = fix.id;
        state.heard = heard;
        return state;
    }

    private void punctuate(long nowMs) {
        long now = streamTime;
        if (nowMs - heardMs >= idleMs) {
            now = Math.max(now, nowMs);
            tellSilent(now, nowMs);
        }
        if (nowMs < sweepMs) {
            return;
        }
        sweepMs = nowMs + HOUR_MS;
        List<String> old = new ArrayList<>();
        try (KeyValueIterator<String, Hearing> all = states.all()) {
            while (all.hasNext()) {
                KeyValue<String, Hearing> each = all.next();
                if (each.value.since() < now - forgetMs) {
                    old.add(each.key);
                }
            }
        }
        old.forEach(states::delete);
    }

    private void await(long at, String device) {
        if (waiting.add(device)) {
            due.add(new Due(at, device));
        }
    }

    private void tellSilent(long now, long timestamp) {
        while (!due.isEmpty() && due.peek().at() <= now) {
            String device = due.poll().device();
            waiting.remove(device);
            Hearing state = states.get(device);
            if (state == null || state.told) {
                continue;
            }
            long limit = tellIfSilent(device, state, now, timestamp);
            if (state.told) {
                states.put(device, state);
            } else {
                await(Math.min(state.since() + limit, now + minimumMs) + 1, device);
            }
        }
    }

    /** Tells a device to be silent if it is; returns its limit. */
    private long tellIfSilent(String device, Hearing state, long now, long timestamp) {
        long since = state.since();
        long limit = limitMs(device, since);
        if (now - since > limit) {
            state.told = true;
            Fix last = new Fix();
            last.id = state.fixId;
            last.device = device;
            last.received = since + limit;
            ObjectNode attributes = Json.MAPPER.createObjectNode();
            attributes.put("since", since).put("limit", limit / 1000.0);
            tell(last, TYPE, "begin", since + limit, "", attributes, timestamp);
        }
        return limit;
    }

    private long limitMs(String device, long since) {
        Hearing known = states.get(device + GAPS);
        if (known == null || UsualGaps.knownDays(known.gaps) < learnDays) {
            return Math.max(minimumMs, unlearnedMs);
        }
        double usual = UsualGaps.usualSeconds(known.gaps, since);
        return Math.max(minimumMs, Math.round(factor * usual * 1000));
    }

    private void learn(String device, long since, long heard) {
        Hearing known = states.get(device + GAPS);
        String before = known == null ? UsualGaps.UNKNOWN : known.gaps;
        String gaps =
                UsualGaps.withGap(before, known == null ? since : known.time, since, heard);
        if (!gaps.equals(before)) {
            Hearing state = new Hearing();
            state.time = heard;
            state.gaps = gaps;
            states.put(device + GAPS, state);
        }
    }
}
