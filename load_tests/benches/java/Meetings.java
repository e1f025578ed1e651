import java.util.HashMap;
import java.util.Map;
import org.apache.kafka.streams.Topology;

/**
 * Devices of two friends that are together for a while, and move together, to topic event.
 *
 * <p>As in topology `meetings`: Positions at the same moments go by cell of a grid over a topic to
 * Pairs, and what was near each other over another one to Together. The key of a position is its
 * cell; ours is the device, for sealing and erasing, and the partition that of the cell. Left out:
 * erasure, records that are refused, and following topic friendship, which is read at the start.
 */
final class Meetings {
    static final String POSITIONS = "streams-meetings-positions";
    static final String PAIRS = "streams-meetings-pairs";

    static final double NEAR_M = StreamsBench.number("near_m", 50);
    static final double LEAVE_M =
            NEAR_M * (1 + StreamsBench.number("hysteresis_percent", 50) / 100);
    static final long INTERVAL_MS = StreamsBench.milliseconds("interval_s", 30);
    static final long FRESH_MS = StreamsBench.milliseconds("fresh_s", 120);
    static final long LEAST_MS = StreamsBench.milliseconds("least_s", 300);
    static final long APART_MS = StreamsBench.milliseconds("apart_s", 120);
    static final double CONVOY_M = StreamsBench.number("convoy_m", 1000);
    static final double ACCURACY_MAX_M = StreamsBench.number("accuracy_max_m", NEAR_M);
    static final long WAIT_MS = StreamsBench.milliseconds("wait_s", 120);
    static final long IDLE_MS = StreamsBench.milliseconds("idle_s", 60);

    /** Where a device was at a full interval, in one cell of the grid. */
    record Position(
            String device, long time, double lat, double lon, int row, int column, boolean home) {}

    /** Two devices were near each other; `other` comes after `device`, whose place it is. */
    record Near(
            String device, String other, long time, double metres, double lat, double lon) {}

    /** Friendships that have begun, by user and friend. */
    static final class Friends {
        private final Map<String, Map<String, Long>> since = new HashMap<>();

        private record Friendship(long since) {}

        Friends(String servers) {
            TopicTable.read(servers, "friendship").forEach((key, value) -> {
                Friendship friendship = Json.read(value, Friendship.class);
                int line = key.indexOf('\n');
                if (friendship != null && line > 0) {
                    since.computeIfAbsent(key.substring(0, line), each -> new HashMap<>())
                            .put(key.substring(line + 1), friendship.since());
                }
            });
        }

        boolean hasAny(String user) {
            return since.containsKey(user);
        }

        boolean areFriends(String user, String other, long time) {
            Long one = since.getOrDefault(user, Map.of()).get(other);
            Long back = since.getOrDefault(other, Map.of()).get(user);
            return one != null && back != null && Math.max(one, back) <= time;
        }
    }

    private Meetings() {}

    static Topology topology(String servers) {
        Friends friends = new Friends(servers);
        return new Chain()
                .add(
                        Fixes.LOCATION, () -> new Positions(friends), Fixes.STORE,
                        Positions.LastFix.class, POSITIONS)
                .add(POSITIONS, () -> new Pairs(friends), Pairs.STORE, Position.class, PAIRS)
                .add(
                        PAIRS, Together::new, Together.STORE, Together.PairState.class,
                        Events.TOPIC)
                .topology();
    }
}
