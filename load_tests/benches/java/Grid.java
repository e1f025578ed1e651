import java.util.TreeSet;

/** A grid over the earth, in which what is near each other has a cell in common. */
final class Grid {
    private static final double METRES_OF_DEGREE = Math.toRadians(Sphere.EARTH_M);
    private static final int WIDTHS = 20;

    private final double nearM;
    private final int rows;

    record Cell(int row, int column) implements Comparable<Cell> {
        @Override
        public int compareTo(Cell other) {
            int byRow = Integer.compare(row, other.row);
            return byRow != 0 ? byRow : Integer.compare(column, other.column);
        }
    }

    Grid(double nearM) {
        this.nearM = nearM;
        this.rows = Math.max(1, (int) Math.floor(180 * METRES_OF_DEGREE / (WIDTHS * nearM)));
    }

    /** Returns the cell of a place. */
    Cell home(double lat, double lon) {
        int row = rowOf(lat);
        int columns = columns(row);
        return new Cell(row, Math.floorMod(columnOf(lon, columns), columns));
    }

    /** Returns the cells of all places that are near: the home, and up to three or four more. */
    TreeSet<Cell> cells(double lat, double lon) {
        double dlat = nearM / METRES_OF_DEGREE * 1.01;
        // Where the circle is widest, in degrees.
        double cosine = Math.cos(Math.toRadians(Math.min(90, Math.abs(lat) + dlat)));
        double dlon = Math.min(180, dlat / Math.max(cosine, 1e-9));
        TreeSet<Cell> found = new TreeSet<>();
        for (double edge : new double[] {lat - dlat, lat, lat + dlat}) {
            int row = rowOf(edge);
            int columns = columns(row);
            int first = columnOf(lon - dlon, columns);
            int last = Math.min(columnOf(lon + dlon, columns), first + columns);
            for (int column = first; column <= last; column++) {
                found.add(new Cell(row, Math.floorMod(column, columns)));
            }
        }
        return found;
    }

    private int rowOf(double lat) {
        return Math.min(rows - 1, Math.max(0, (int) Math.floor((lat + 90) / 180 * rows)));
    }

    private static int columnOf(double lon, int columns) {
        return (int) Math.floor((lon + 180) / 360 * columns);
    }

    private int columns(int row) {
        double south = row * 180.0 / rows - 90;
        double north = (row + 1) * 180.0 / rows - 90;
        double farther = Math.toRadians(Math.max(Math.abs(south), Math.abs(north)));
        return Math.max(1, (int) Math.floor(2 * rows * Math.cos(farther)));
    }
}
