import java.util.HashMap;
import java.util.Map;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.KeyValueStore;

/**
 * Which devices of friends were near each other at a moment: the second processor of meetings.
 *
 * <p>A pair is found in the home cell of the one whose name comes first, by whichever comes second.
 */
final class Pairs implements Processor<String, byte[], String, byte[]> {
    static final String STORE = "positions";
    private static final int DEVICES_MAX = 5000;

    private final Meetings.Friends friends;
    private final Map<Moment, Map<String, Map<String, Meetings.Position>>> byCell =
            new HashMap<>();
    private ProcessorContext<String, byte[]> context;
    private KeyValueStore<String, Meetings.Position> states;
    private long streamTime;
    private long sweepAt;

    private record Moment(long time, int row, int column) {}

    Pairs(Meetings.Friends friends) {
        this.friends = friends;
    }

    @Override
    public void init(ProcessorContext<String, byte[]> context) {
        this.context = context;
        this.states = context.getStateStore(STORE);
        try (KeyValueIterator<String, Meetings.Position> all = states.all()) {
            all.forEachRemaining(each -> {
                streamTime = Math.max(streamTime, each.value.time());
                usersBeside(each.value);
            });
        }
    }

    @Override
    public void process(Record<String, byte[]> record) {
        Meetings.Position position = Json.read(record.value(), Meetings.Position.class);
        if (position == null || position.time() + Meetings.WAIT_MS < streamTime) {
            return;
        }
        streamTime = Math.max(streamTime, position.time());
        states.put(keyOf(position), position);
        compare(position, usersBeside(position), record.timestamp());
        forget();
    }

    private static String keyOf(Meetings.Position position) {
        return position.device() + "\n" + position.time() + "\n" + position.row()
                + "\n" + position.column();
    }

    /** Adds a position; returns all of its cell and moment, by user and device. */
    private Map<String, Map<String, Meetings.Position>> usersBeside(Meetings.Position position) {
        Moment moment = new Moment(position.time(), position.row(), position.column());
        Map<String, Map<String, Meetings.Position>> users =
                byCell.computeIfAbsent(moment, each -> new HashMap<>());
        users.computeIfAbsent(Fix.userOf(position.device()), each -> new HashMap<>())
                .put(position.device(), position);
        return users;
    }

    private void compare(
            Meetings.Position position, Map<String, Map<String, Meetings.Position>> users,
            long timestamp) {
        String own = Fix.userOf(position.device());
        int left = DEVICES_MAX;
        for (Map.Entry<String, Map<String, Meetings.Position>> user : users.entrySet()) {
            if (user.getKey().equals(own)
                    || !friends.areFriends(own, user.getKey(), position.time())) {
                continue;
            }
            for (Meetings.Position other : user.getValue().values()) {
                left -= 1;
                if (left < 0) {
                    return;
                }
                boolean isFirst = position.device().compareTo(other.device()) < 0;
                Meetings.Position first = isFirst ? position : other;
                Meetings.Position second = isFirst ? other : position;
                if (first.home()) {
                    tellIfNear(first, second, timestamp);
                }
            }
        }
    }

    private void tellIfNear(
            Meetings.Position first, Meetings.Position second, long timestamp) {
        double metres = Sphere.metres(first.lat(), first.lon(), second.lat(), second.lon());
        if (metres <= Meetings.LEAVE_M) {
            Meetings.Near near = new Meetings.Near(
                    first.device(), second.device(), first.time(), metres,
                    first.lat(), first.lon());
            String key = first.device() + "\n" + second.device();
            context.forward(new Record<>(key, Json.bytes(near), timestamp), Meetings.PAIRS);
        }
    }

    /** Forgets what nobody can be compared with any more, once an interval. */
    private void forget() {
        if (streamTime < sweepAt) {
            return;
        }
        sweepAt = streamTime + Meetings.INTERVAL_MS;
        long over = streamTime - Meetings.WAIT_MS;
        byCell.entrySet().removeIf(each -> {
            boolean isOver = each.getKey().time() < over;
            if (isOver) {
                each.getValue().values().forEach(devices ->
                        devices.values().forEach(position -> states.delete(keyOf(position))));
            }
            return isOver;
        });
    }
}
