import java.util.Arrays;

/** How long a device usually is silent: a character for each hour of the last seven days. */
final class UsualGaps {
    private static final long HOUR_MS = 3_600_000;
    private static final int DAYS = 7;
    private static final int HOURS = 24;
    private static final int STEPS_OF_OCTAVE = 4;
    private static final double SHORTEST_S = 60;
    private static final int LEVELS = 90;
    static final String UNKNOWN = " ".repeat(DAYS * HOURS);

    private UsualGaps() {}

    /** Returns the characters with a silence more; `newest` is the time up to which they are. */
    static String withGap(String gaps, long newest, long begin, long end) {
        char[] cells = gaps.toCharArray();
        long lastDay = end / (HOUR_MS * HOURS);
        long firstNew = Math.max(newest / (HOUR_MS * HOURS) + 1, lastDay - DAYS + 1);
        for (long day = firstNew; day <= lastDay; day++) {
            int start = (int) (day % DAYS) * HOURS;
            Arrays.fill(cells, start, start + HOURS, ' ');
        }
        long first = begin / HOUR_MS;
        for (long hour = first; hour <= Math.min(end / HOUR_MS, first + HOURS - 1); hour++) {
            if (hour / HOURS <= lastDay - DAYS) {
                continue;
            }
            int cell = (int) (hour / HOURS % DAYS * HOURS + hour % HOURS);
            char level = levelOf((end - Math.max(begin, hour * HOUR_MS)) / 1000.0);
            cells[cell] = (char) Math.max(cells[cell], level);
        }
        return new String(cells);
    }

    static int knownDays(String gaps) {
        int known = 0;
        for (int day = 0; day < DAYS; day++) {
            known += gaps.substring(day * HOURS, (day + 1) * HOURS).isBlank() ? 0 : 1;
        }
        return known;
    }

    /** Returns the second longest of the seven days, of the hour and those beside it. */
    static double usualSeconds(String gaps, long time) {
        int hour = (int) (time / HOUR_MS % HOURS);
        char[] longest = new char[DAYS];
        for (int day = 0; day < DAYS; day++) {
            for (int each = hour + HOURS - 1; each <= hour + HOURS + 1; each++) {
                char level = gaps.charAt(day * HOURS + each % HOURS);
                longest[day] = (char) Math.max(longest[day], level);
            }
        }
        Arrays.sort(longest);
        char level = longest[DAYS - 2];
        return level < '!' ? 0 : SHORTEST_S * Math.pow(2, (level - '!') / (double) STEPS_OF_OCTAVE);
    }

    private static char levelOf(double seconds) {
        if (seconds <= SHORTEST_S) {
            return '!';
        }
        // The logarithm of a power of two may come out a little larger.
        double octaves = Math.log(seconds / SHORTEST_S) / Math.log(2) - 1e-12;
        return (char) ('!' + Math.min((int) Math.ceil(STEPS_OF_OCTAVE * octaves), LEVELS));
    }
}
