import com.fasterxml.jackson.databind.node.ObjectNode;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.processor.PunctuationType;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.KeyValueStore;

/** The meetings of each pair, told to both users: the third processor of meetings. */
final class Together implements Processor<String, byte[], String, byte[]> {
    static final String STORE = "pairs";
    private static final String TYPE = "meeting";

    private ProcessorContext<String, byte[]> context;
    private KeyValueStore<String, PairState> states;
    private long streamTime;
    private long sweepAt;
    private long heardMs;
    private long lookedMs;

    /** What is known of a time during which two devices were near each other. */
    static final class Company {
        public long first;
        public long last;
        public double south = 90;
        public double north = -90;
        public double west = 180;
        public double east = -180;
        public boolean told;
        public boolean convoy;
        public long knownMs;

        void take(Meetings.Near near, long nowMs) {
            if (near.metres() <= Meetings.NEAR_M) {
                if (first == 0 || near.time() < first && !told) {
                    first = near.time();
                    knownMs = nowMs;
                }
                last = Math.max(last, near.time());
            }
            south = Math.min(south, near.lat());
            north = Math.max(north, near.lat());
            west = Math.min(west, near.lon());
            east = Math.max(east, near.lon());
        }

        /** Adds a company that was earlier or later; `first` of one that was told stays. */
        void merge(Company other) {
            if (told == other.told) {
                boolean some = first > 0 && other.first > 0;
                first = some ? Math.min(first, other.first) : Math.max(first, other.first);
            } else if (other.told) {
                first = other.first;
            }
            last = Math.max(last, other.last);
            south = Math.min(south, other.south);
            north = Math.max(north, other.north);
            west = Math.min(west, other.west);
            east = Math.max(east, other.east);
            told |= other.told;
            convoy |= other.convoy;
            knownMs = Math.max(knownMs, other.knownMs);
        }

        double metres() {
            return north < south ? 0 : Sphere.metres(south, west, north, east);
        }
    }

    static final class Session {
        public long start;
        public long end;
        public Company company = new Company();
    }

    /** The open sessions of a pair, in the order of time. */
    static final class PairState {
        public long time;
        public List<Session> sessions = new ArrayList<>();
    }

    @Override
    public void init(ProcessorContext<String, byte[]> context) {
        this.context = context;
        this.states = context.getStateStore(STORE);
        heardMs = context.currentSystemTimeMs();
        for (KeyValue<String, PairState> each : all()) {
            streamTime = Math.max(streamTime, each.value.time);
        }
        context.schedule(
                Duration.ofSeconds(1), PunctuationType.WALL_CLOCK_TIME, this::punctuate);
    }

    @Override
    public void process(Record<String, byte[]> record) {
        heardMs = context.currentSystemTimeMs();
        Meetings.Near near = Json.read(record.value(), Meetings.Near.class);
        if (near == null) {
            return;
        }
        take(near, record.timestamp());
        if (streamTime >= sweepAt) {
            end(streamTime, record.timestamp());
        }
    }

    private void punctuate(long nowMs) {
        if (nowMs - heardMs >= Meetings.IDLE_MS) {
            end(Math.max(streamTime, nowMs), nowMs);
        } else if (nowMs - lookedMs >= Meetings.IDLE_MS) {
            lookedMs = nowMs;
            tellSettled(nowMs);
        }
    }

    private List<KeyValue<String, PairState>> all() {
        List<KeyValue<String, PairState>> found = new ArrayList<>();
        try (KeyValueIterator<String, PairState> all = states.all()) {
            all.forEachRemaining(found::add);
        }
        return found;
    }

    private void take(Meetings.Near near, long timestamp) {
        if (near.time() + Meetings.APART_MS + Meetings.WAIT_MS < streamTime) {
            return;
        }
        String key = near.device() + "\n" + near.other();
        PairState known = states.get(key);
        PairState state = known == null ? new PairState() : known;
        streamTime = Math.max(streamTime, near.time());
        Session session = sessionOf(state, near.time());
        session.company.take(near, heardMs);
        if (isSettled(session.company)) {
            tellBegun(key, session.company, timestamp);
        }
        state.time = Math.max(state.time, near.time());
        states.put(key, state);
    }

    /** Returns the session that a time belongs to, which may join others or be new. */
    private static Session sessionOf(PairState state, long time) {
        Session joined = null;
        List<Session> others = new ArrayList<>();
        for (Session each : state.sessions) {
            boolean isNear = each.start - Meetings.APART_MS <= time
                    && time <= each.end + Meetings.APART_MS;
            if (!isNear) {
                others.add(each);
            } else if (joined == null) {
                joined = each;
            } else {
                joined.start = Math.min(joined.start, each.start);
                joined.end = Math.max(joined.end, each.end);
                joined.company.merge(each.company);
            }
        }
        if (joined == null) {
            joined = new Session();
            joined.start = time;
            joined.end = time;
        }
        joined.start = Math.min(joined.start, time);
        joined.end = Math.max(joined.end, time);
        others.add(joined);
        others.sort(Comparator.comparingLong(each -> each.start));
        state.sessions = others;
        return joined;
    }

    /** Tells whether nothing before the begin of a meeting is to be expected any more. */
    private boolean isSettled(Company company) {
        return company.told
                || company.first + Meetings.APART_MS + Meetings.WAIT_MS <= streamTime
                || company.knownMs + Meetings.IDLE_MS <= context.currentSystemTimeMs();
    }

    private boolean tellBegun(String key, Company company, long timestamp) {
        boolean some = false;
        if (!company.told && company.first > 0
                && company.last - company.first >= Meetings.LEAST_MS) {
            company.told = true;
            some = true;
            tell(key, "begin", company, timestamp);
        }
        if (company.told && !company.convoy && company.metres() >= Meetings.CONVOY_M) {
            company.convoy = true;
            some = true;
            tell(key, "convoy", company, timestamp);
        }
        return some;
    }

    private void tellSettled(long timestamp) {
        for (KeyValue<String, PairState> each : all()) {
            boolean some = false;
            for (Session session : each.value.sessions) {
                if (isSettled(session.company)) {
                    some |= tellBegun(each.key, session.company, timestamp);
                }
            }
            if (some) {
                states.put(each.key, each.value);
            }
        }
    }

    /** Ends the sessions that nothing can be added to. */
    private void end(long time, long timestamp) {
        sweepAt = time + Meetings.INTERVAL_MS;
        tellSettled(timestamp);
        long over = time - Meetings.APART_MS - Meetings.WAIT_MS;
        for (KeyValue<String, PairState> each : all()) {
            List<Session> left = new ArrayList<>();
            for (Session session : each.value.sessions) {
                if (session.end >= over) {
                    left.add(session);
                    continue;
                }
                tellBegun(each.key, session.company, timestamp);
                if (session.company.told) {
                    tell(each.key, "end", session.company, timestamp);
                }
            }
            if (left.isEmpty()) {
                states.delete(each.key);
            } else if (left.size() < each.value.sessions.size()) {
                each.value.sessions = left;
                states.put(each.key, each.value);
            }
        }
    }

    private void tell(String key, String transition, Company company, long timestamp) {
        int line = key.indexOf('\n');
        String device = key.substring(0, line);
        String other = key.substring(line + 1);
        tell(device, other, transition, company, timestamp);
        tell(other, device, transition, company, timestamp);
    }

    private void tell(
            String own, String friend, String transition, Company company, long timestamp) {
        boolean begins = transition.equals("begin");
        Fix at = new Fix();
        at.id = Long.toString(company.first);
        at.device = own;
        at.received = begins ? company.first + Meetings.LEAST_MS : company.last;
        ObjectNode attributes = Json.MAPPER.createObjectNode();
        attributes.put("with", friend).put("since", company.first);
        attributes.putArray("area")
                .add(Math.floor(company.south * 1000) / 1000)
                .add(Math.floor(company.west * 1000) / 1000)
                .add(Math.ceil(company.north * 1000) / 1000)
                .add(Math.ceil(company.east * 1000) / 1000);
        attributes.put("near_m", Meetings.LEAVE_M);
        if (transition.equals("end")) {
            attributes.put("until", company.last).put("convoy", company.convoy);
        }
        context.forward(
                Events.event(
                        at, TYPE, transition, at.received, friend, attributes, timestamp),
                Events.TOPIC);
    }
}
