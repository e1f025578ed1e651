import org.apache.kafka.streams.processor.api.Record;

/** Where each device was at full intervals, by cell: the first processor of meetings. */
final class Positions extends Fixes<Positions.LastFix> {
    private static final Grid GRID = new Grid(Meetings.LEAVE_M);
    private final Meetings.Friends friends;

    /** The newest usable fix of a device. */
    static final class LastFix extends Fixes.State {
        public long at;
        public double lat;
        public double lon;
    }

    Positions(Meetings.Friends friends) {
        this.friends = friends;
    }

    @Override
    LastFix observe(Fix fix, long time, LastFix state, Record<String, byte[]> record) {
        if (!friends.hasAny(Fix.userOf(fix.device))) {
            return null;
        }
        Double accuracy = fix.accuracy;
        if (accuracy != null && !(accuracy >= 0 && accuracy <= Meetings.ACCURACY_MAX_M)) {
            return state;
        }
        if (state != null && time - state.at <= Meetings.FRESH_MS) {
            long first = state.at - state.at % Meetings.INTERVAL_MS + Meetings.INTERVAL_MS;
            for (long moment = first; moment <= time; moment += Meetings.INTERVAL_MS) {
                double part = (double) (moment - state.at) / (time - state.at);
                double lat = state.lat + part * (fix.lat - state.lat);
                double lon = turned(state.lon + part * turned(fix.lon - state.lon));
                write(fix.device, moment, lat, lon, record.timestamp());
            }
        }
        LastFix newest = new LastFix();
        newest.at = time;
        newest.lat = fix.lat;
        newest.lon = fix.lon;
        return newest;
    }

    /** Returns the same angle from -180 to 180 degrees. */
    private static double turned(double degrees) {
        double turn = (degrees + 180) % 360;
        return (turn < 0 ? turn + 360 : turn) - 180;
    }

    private void write(String device, long time, double lat, double lon, long timestamp) {
        Grid.Cell home = GRID.home(lat, lon);
        for (Grid.Cell cell : GRID.cells(lat, lon)) {
            Meetings.Position position = new Meetings.Position(
                    device, time, lat, lon, cell.row(), cell.column(), cell.equals(home));
            context.forward(
                    new Record<>(
                            cell.row() + " " + cell.column(), Json.bytes(position), timestamp),
                    Meetings.POSITIONS);
        }
    }
}
