import com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.processor.api.Record;

/** Devices that are faster than 130 km/h, by what they say or the way from the fix before. */
final class Speed extends Fixes<Speed.Motion> {
    private static final double LIMIT = 130 / 3.6;
    private static final double IMPLAUSIBLE = 400 / 3.6;

    static final class Motion extends Fixes.State {
        public long at;
        public double lat;
        public double lon;
        public double accuracy;
        public long since;
    }

    static Topology topology() {
        return new Chain()
                .add(LOCATION, Speed::new, STORE, Motion.class, Events.TOPIC)
                .topology();
    }

    @Override
    Motion observe(Fix fix, long time, Motion known, Record<String, byte[]> record) {
        Motion state = known == null ? new Motion() : known;
        double accuracy = fix.accuracy == null ? 0 : fix.accuracy;
        double speed = fix.speed == null ? -1 : fix.speed;
        if (known != null && time - state.at >= 1000) {
            double way = Sphere.metres(state.lat, state.lon, fix.lat, fix.lon);
            double measured =
                    Math.max(0, way - accuracy - state.accuracy) * 1000 / (time - state.at);
            if (measured > IMPLAUSIBLE) {
                return state;
            }
            if (speed < 0) {
                speed = measured;
            }
        }
        state.at = time;
        state.lat = fix.lat;
        state.lon = fix.lon;
        state.accuracy = accuracy;
        boolean speeding = state.since > 0;
        if (speed > LIMIT && !speeding) {
            state.since = time;
            tell(fix, "begin", time, record);
        } else if (speeding && speed <= LIMIT * 0.9) {
            state.since = 0;
            tell(fix, "end", time, record);
        }
        return state;
    }

    private void tell(Fix fix, String transition, long time, Record<String, byte[]> record) {
        ObjectNode attributes = Json.MAPPER.createObjectNode();
        attributes.put("lat", fix.lat).put("lon", fix.lon);
        tell(fix, "speeding", transition, time, "", attributes, record.timestamp());
    }
}
