import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.processor.api.Record;

/** Devices that enter circles of topic geofence, leave them, and dwell in them. */
final class Geofences extends Fixes<Geofences.Stays> {
    private static final long DWELL_MS = 600_000;
    private final List<Fence> fences;

    private record Fence(String key, double lat, double lon, double radius) {}

    static final class Stay {
        public long since;
        public boolean dwells;
    }

    static final class Stays extends Fixes.State {
        public Map<String, Stay> stays = new HashMap<>();
    }

    private Geofences(List<Fence> fences) {
        this.fences = fences;
    }

    static Topology topology(String servers) {
        List<Fence> fences = new ArrayList<>();
        TopicTable.read(servers, "geofence").forEach((key, value) -> {
            JsonNode circle = Json.read(value, JsonNode.class).path("circle");
            fences.add(new Fence(
                    key,
                    circle.path("lat").asDouble(),
                    circle.path("lon").asDouble(),
                    circle.path("radius").asDouble()));
        });
        return new Chain()
                .add(LOCATION, () -> new Geofences(fences), STORE, Stays.class, Events.TOPIC)
                .topology();
    }

    @Override
    Stays observe(Fix fix, long time, Stays known, Record<String, byte[]> record) {
        Stays state = known == null ? new Stays() : known;
        double accuracy = fix.accuracy == null ? 10 : fix.accuracy;
        for (Fence fence : fences) {
            Stay stay = state.stays.get(fence.key());
            // A degree of latitude has 111 km: most circles are left out by that alone.
            if (stay == null && Math.abs(fix.lat - fence.lat()) * 111_000 > fence.radius()) {
                continue;
            }
            double depth =
                    fence.radius() - Sphere.metres(fix.lat, fix.lon, fence.lat(), fence.lon());
            if (depth >= accuracy && stay == null) {
                Stay begun = new Stay();
                begun.since = time;
                state.stays.put(fence.key(), begun);
                tell(fix, "enter", time, fence, record);
            } else if (depth >= accuracy && !stay.dwells && time - stay.since >= DWELL_MS) {
                stay.dwells = true;
                tell(fix, "dwell", time, fence, record);
            } else if (depth < -accuracy && stay != null) {
                state.stays.remove(fence.key());
                tell(fix, "leave", time, fence, record);
            }
        }
        return state;
    }

    private void tell(
            Fix fix, String transition, long time, Fence fence, Record<String, byte[]> record) {
        ObjectNode attributes = Json.MAPPER.createObjectNode();
        attributes.put("fence", fence.key()).put("lat", fix.lat).put("lon", fix.lon);
        tell(fix, "geofence", transition, time, fence.key(), attributes, record.timestamp());
    }
}
