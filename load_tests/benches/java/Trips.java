import com.fasterxml.jackson.annotation.JsonProperty;
import java.time.LocalDate;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.processor.api.Record;

/**
 * Trips of each device to topic trip, and the totals of its days to topic trip-day.
 *
 * <p>As in topology `trips` (the state is that of Movement). Days are those of UTC; other time
 * zones are left out, and so is erasure.
 */
final class Trips extends Fixes<Movement> {
    private static final String TRIP = "trip";
    private static final String TRIP_DAY = "trip-day";

    private final double accuracy = StreamsBench.number("accuracy_m", 10);
    private final double accuracyMax = StreamsBench.number("accuracy_max_m", 100);
    private final long updateMs = StreamsBench.milliseconds("update_s", 60);

    record Trip(
            String device, String user, long start, long end, boolean ended,
            @JsonProperty("origin_lat") double originLat,
            @JsonProperty("origin_lon") double originLon,
            double lat, double lon,
            @JsonProperty("distance_m") double distance,
            @JsonProperty("moving_s") double moving,
            double fastest) {}

    record TripDay(
            String device, String user, String date,
            @JsonProperty("time_zone") String timeZone,
            int trips,
            @JsonProperty("distance_m") double distance,
            @JsonProperty("moving_s") double moving,
            double fastest,
            @JsonProperty("unseen_m") double unseen) {}

    static Topology topology() {
        return new Chain()
                .add(LOCATION, Trips::new, STORE, Movement.class, TRIP, TRIP_DAY)
                .topology();
    }

    @Override
    Movement observe(Fix fix, long time, Movement known, Record<String, byte[]> record) {
        Movement state = known == null ? new Movement() : known;
        double within = fix.accuracy == null ? accuracy : fix.accuracy;
        if (!(within >= 0 && within <= accuracyMax)) {
            return state;
        }
        boolean says = fix.speed != null && fix.speed >= 0 && Double.isFinite(fix.speed);
        Movement.Place place = new Movement.Place(time, fix.lat, fix.lon, within);
        Movement.Ended ended = state.take(place, says ? fix.speed : null);
        long timestamp = record.timestamp();
        if (ended != null) {
            tellTrip(fix.device, ended.course(), ended.end(), true, timestamp);
        } else if (time - state.told < updateMs) {
            return state;
        }
        List<Map.Entry<Long, Movement.Day>> changed = new ArrayList<>();
        for (Map.Entry<Long, Movement.Day> each : state.days.entrySet()) {
            if (each.getValue().changed) {
                changed.add(each);
            }
        }
        Movement.Course course = state.course;
        boolean goesOn = ended == null && course != null && course.isTrip;
        if (!changed.isEmpty() && goesOn) {
            tellTrip(fix.device, course, state.anchor, false, timestamp);
        }
        for (Map.Entry<Long, Movement.Day> each : changed) {
            tellDay(fix.device, each.getKey(), each.getValue(), timestamp);
            each.getValue().changed = false;
        }
        if (!changed.isEmpty() || ended != null) {
            state.told = time;
        }
        state.forgetDays();
        return state;
    }

    private void tellTrip(
            String device, Movement.Course course, Movement.Place end, boolean ended,
            long timestamp) {
        Movement.Place origin = course.origin;
        Trip trip = new Trip(
                device, Fix.userOf(device), origin.time(), end.time(), ended,
                origin.lat(), origin.lon(), end.lat(), end.lon(),
                rounded(course.way.metres, 10),
                rounded(course.way.movingMs / 1000, 10),
                rounded(course.way.fastest, 100));
        forward(TRIP, device + "\n" + origin.time(), trip, timestamp);
    }

    private void tellDay(String device, long epochDay, Movement.Day day, long timestamp) {
        String date = LocalDate.ofEpochDay(epochDay).toString();
        TripDay told = new TripDay(
                device, Fix.userOf(device), date, "UTC", day.trips,
                rounded(day.way.metres, 10),
                rounded(day.way.movingMs / 1000, 10),
                rounded(day.way.fastest, 100),
                rounded(day.unseen, 10));
        forward(TRIP_DAY, device + "\n" + date, told, timestamp);
    }

    private void forward(String topic, String key, Object value, long timestamp) {
        context.forward(new Record<>(key, Json.bytes(value), timestamp), topic);
    }

    private static double rounded(double value, int parts) {
        return Math.rint(value * parts) / parts;
    }
}
