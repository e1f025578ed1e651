import org.apache.kafka.streams.Topology;

/**
 * Fixes and devices by H3 cell, in windows of a minute and of an hour, to topic heat-map.
 *
 * <p>As in topology `heat-map`: PartialCounts counts the devices of a partition, and what it tells
 * goes over a topic to CellCounts, which adds the partitions up. Left out: erasure, sealed keys,
 * and records that are refused.
 */
final class HeatMap {
    static final String COUNTS = "streams-heat-map-counts";
    static final String RESULTS = "heat-map";

    /** What one partition has of a cell and window. */
    record PartialCount(
            int partition, long cell, int window, long start, long fixes, int devices) {}

    private HeatMap() {}

    static Topology topology() {
        return new Chain()
                .add(
                        Fixes.LOCATION, PartialCounts::new, PartialCounts.STORE,
                        PartialCounts.Heat.class, COUNTS)
                .add(
                        COUNTS, CellCounts::new, CellCounts.STORE,
                        CellCounts.CellState.class, RESULTS)
                .topology();
    }
}
