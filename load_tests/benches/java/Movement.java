import java.util.Iterator;
import java.util.Map;
import java.util.TreeMap;

/**
 * Trips of a device out of its fixes in the order of their times, as in waylog.movement.movement.
 *
 * <p>Parts of a way and totals are by day since 1970, UTC.
 */
final class Movement extends Fixes.State {
    private static final double STAY_M = StreamsBench.number("stay_m", 100);
    private static final long STAY_MS = StreamsBench.milliseconds("stay_s", 300);
    private static final long SILENCE_MS = StreamsBench.milliseconds("silence_s", 900);
    private static final double STEP_M = StreamsBench.number("step_m", 10);
    private static final double MINIMUM_M = StreamsBench.number("minimum_m", 300);
    private static final double SLOWEST = StreamsBench.number("slowest_kmh", 1.8) / 3.6;
    private static final double IMPLAUSIBLE = StreamsBench.number("implausible_kmh", 400) / 3.6;
    private static final long DAY_MS = 24 * 3_600_000;
    private static final long NO_TRIP_MS = DAY_MS;

    public Place anchor;
    public Place last;
    public Place step;
    public Course course;
    public Map<Long, Way> pending = new TreeMap<>();
    public Map<Long, Day> days = new TreeMap<>();
    public long told;

    record Place(long time, double lat, double lon, double accuracy) {
        double metresTo(Place other) {
            return Sphere.metres(lat, lon, other.lat, other.lon);
        }
    }

    static final class Way {
        public double metres;
        public double movingMs;
        public double fastest;

        void add(Way other) {
            add(other.metres, other.movingMs);
            fastest = Math.max(fastest, other.fastest);
        }

        void add(double moreMetres, double moreMs) {
            metres += moreMetres;
            movingMs += moreMs;
        }
    }

    static final class Day {
        public Way way = new Way();
        public int trips;
        public double unseen;
        public boolean changed = true;
    }

    static final class Course {
        public Place origin;
        public Way way = new Way();
        public Map<Long, Way> waiting = new TreeMap<>();
        public boolean isTrip;
    }

    record Ended(Course course, Place end) {}

    /** Takes the next place, and the speed that the device has said, or null. */
    Ended take(Place place, Double said) {
        if (last == null || anchor == null) {
            restAt(place);
            return null;
        }
        if (place.time() - last.time() > SILENCE_MS) {
            Ended ended = end();
            double metres = last.metresTo(place);
            if (metres - last.accuracy() - place.accuracy() > STAY_M) {
                Day day = dayOf(place.time() / DAY_MS);
                day.unseen += metres;
                day.changed = true;
            }
            restAt(place);
            return ended;
        }
        Place before = last;
        if (before.metresTo(place) * 1000 > IMPLAUSIBLE * (place.time() - before.time())) {
            return null;
        }
        last = place;
        double fromAnchor = anchor.metresTo(place);
        boolean isAway = fromAnchor - place.accuracy() > STAY_M;
        if (course == null) {
            if (!isAway) {
                return null;
            }
            course = new Course();
            course.origin =
                    new Place(before.time(), anchor.lat(), anchor.lon(), anchor.accuracy());
            step = course.origin;
            fromAnchor = 0;
        }
        countStep(before, place);
        double speed = 0;
        if (said != null && said <= IMPLAUSIBLE) {
            speed = said;
        } else if (isAway) {
            speed = fromAnchor * 1000 / (place.time() - anchor.time());
        }
        if (speed > 0) {
            Way way = pendingOf(place.time() / DAY_MS);
            way.fastest = Math.max(way.fastest, speed);
        }
        if (isAway) {
            anchor = place;
            settle();
            return null;
        }
        return place.time() - anchor.time() >= STAY_MS ? end() : null;
    }

    /** Forgets the days that are told, and that nothing can be added to any more. */
    void forgetDays() {
        if (days.size() < 2) {
            return;
        }
        long time = anchor.time();
        if (course != null && !course.isTrip) {
            time = Math.min(time, course.origin.time());
        }
        long first = time / DAY_MS;
        Iterator<Map.Entry<Long, Day>> all = days.entrySet().iterator();
        while (all.hasNext()) {
            Map.Entry<Long, Day> each = all.next();
            if (each.getKey() < first && !each.getValue().changed) {
                all.remove();
            }
        }
    }

    private void restAt(Place place) {
        anchor = place;
        last = place;
        step = place;
        course = null;
        pending.clear();
    }

    private Ended end() {
        Course ended = course;
        course = null;
        pending.clear();
        return ended != null && ended.isTrip ? new Ended(ended, anchor) : null;
    }

    private void countStep(Place before, Place place) {
        Place from = step;
        double metres = from.metresTo(place);
        if (metres <= Math.max(STEP_M, from.accuracy() + place.accuracy())) {
            return;
        }
        step = place;
        double movingMs = movingMs(before, place);
        if (from.time() < before.time()) {
            movingMs += movingMs(from, before);
        }
        double took = place.time() - from.time();
        for (long at = from.time(); at < place.time();) {
            long until = Math.min(place.time(), (at / DAY_MS + 1) * DAY_MS);
            double part = (until - at) / took;
            pendingOf(at / DAY_MS).add(metres * part, movingMs * part);
            at = until;
        }
    }

    private static double movingMs(Place one, Place other) {
        return Math.min(other.time() - one.time(), one.metresTo(other) * 1000 / SLOWEST);
    }

    /** Counts what is pending, now that the device is known to have moved on. */
    private void settle() {
        pending.values().forEach(course.way::add);
        if (!course.isTrip) {
            pending.forEach((date, way) ->
                    course.waiting.computeIfAbsent(date, each -> new Way()).add(way));
            if (course.origin.metresTo(anchor) < MINIMUM_M) {
                pending.clear();
                if (anchor.time() - course.origin.time() > NO_TRIP_MS) {
                    course = null;
                }
                return;
            }
            course.isTrip = true;
            Day began = dayOf(course.origin.time() / DAY_MS);
            began.trips += 1;
            began.changed = true;
            pending = course.waiting;
            course.waiting = new TreeMap<>();
        }
        pending.forEach((date, way) -> {
            Day day = dayOf(date);
            day.way.add(way);
            day.changed = true;
        });
        pending = new TreeMap<>();
    }

    private Way pendingOf(long date) {
        return pending.computeIfAbsent(date, each -> new Way());
    }

    private Day dayOf(long date) {
        return days.computeIfAbsent(date, each -> new Day());
    }
}
