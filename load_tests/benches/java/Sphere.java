/** Distances on the sphere. */
final class Sphere {
    static final double EARTH_M = 6_371_008.8;

    private Sphere() {}

    /** Returns the distance along the great circle (haversine). */
    static double metres(double lat, double lon, double otherLat, double otherLon) {
        double phi = Math.toRadians(lat);
        double otherPhi = Math.toRadians(otherLat);
        double north = Math.sin((otherPhi - phi) / 2);
        double east = Math.sin(Math.toRadians(otherLon - lon) / 2);
        double half = north * north + Math.cos(phi) * Math.cos(otherPhi) * east * east;
        return 2 * EARTH_M * Math.asin(Math.min(1.0, Math.sqrt(half)));
    }
}
