/** A fix of topic location, with what the topologies need of it. */
final class Fix {
    private static final long CLOCK_AHEAD_MS = 5 * 60 * 1000;
    private static final long YEAR_2000_MS = 946_684_800_000L;

    public String id;
    public String device;
    public String user;
    public double lat;
    public double lon;
    public long time;
    public long received;
    public Double accuracy;
    public Double speed;

    /** Returns its own time, or that of its arrival if its own is absurd. */
    long eventTime() {
        boolean absurd = time - received > CLOCK_AHEAD_MS || time < YEAR_2000_MS;
        return absurd ? received : time;
    }

    static String userOf(String device) {
        int slash = device.indexOf('/');
        return slash < 0 ? device : device.substring(0, slash);
    }
}
