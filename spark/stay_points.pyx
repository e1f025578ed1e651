# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Stay points: where a device stayed within some metres for some minutes.

The sliding algorithm of Li et al. (2008) as trackintel has it: the first fix of a candidate is its
anchor; the candidate ends with the first fix at least `distance_m` from the anchor, and is a stay
when that took at least `duration_ms`; a silence of more than `gap_ms` drops the candidate.

Nearly every distance is decided by a flat (equirectangular) square without any trigonometry. Only
what comes within 1 % of the limit, or lies beyond 80 degrees of latitude or across the date line,
is decided by the haversine formula, so that the answer is the same for every fix.
"""

from libc.math cimport asin, cos, fabs, sin, sqrt
from libc.stdint cimport int64_t
from libc.stdlib cimport free, realloc

import numpy as np

# trackintel's sphere; its stays are our truth.
cdef double _RADIUS_M = 6371000.0
cdef double _RADIANS = 0.017453292519943295
# Beyond this latitude (degrees) the flat square is not within 1 % of the sphere any more.
cdef double _FLAT_LATITUDE_MAX = 80.0
# The flat square is trusted up to this limit (m).
cdef double _FLAT_DISTANCE_MAX = 5000.0

EARTH_RADIUS_M = _RADIUS_M

cdef struct Stay:
    int64_t first
    int64_t finish
    int64_t stop


cdef double _haversine_m(double lat_1, double lon_1, double lat_2, double lon_2) noexcept nogil:
    cdef double phi_1 = lat_1 * _RADIANS
    cdef double phi_2 = lat_2 * _RADIANS
    cdef double half_lat = sin((phi_2 - phi_1) / 2.0)
    cdef double half_lon = sin((lon_2 - lon_1) * _RADIANS / 2.0)
    cdef double square = half_lat * half_lat + cos(phi_1) * cos(phi_2) * half_lon * half_lon
    if square > 1.0:
        square = 1.0
    return 2.0 * _RADIUS_M * asin(sqrt(square))


cdef int64_t _find_stays(
    const int64_t* time, const double* lat, const double* lon, int64_t count,
    double distance_m, int64_t duration_ms, int64_t gap_ms, bint include_last,
    Stay** found,
) noexcept nogil:
    """Returns how many stays `found` has, or -1 when memory ran out. The caller frees `found`."""
    cdef int64_t stays = 0
    cdef int64_t capacity = 0
    cdef int64_t start = 0
    cdef int64_t current
    cdef double metres = _RADIUS_M * _RADIANS
    # Both in squared degrees of latitude: certainly inside below the one, outside above the other.
    cdef double inside = (0.99 * distance_m / metres) ** 2
    cdef double outside = (1.01 * distance_m / metres) ** 2
    cdef double anchor_lat = 0.0
    cdef double anchor_lon = 0.0
    cdef double shrink = 0.0
    cdef bint flat = False
    cdef bint new_anchor = True
    cdef bint left
    cdef double north, east, square
    cdef Stay* grown
    for current in range(1, count + 1):
        if new_anchor:
            anchor_lat = lat[start]
            anchor_lon = lon[start]
            shrink = cos(anchor_lat * _RADIANS)
            flat = fabs(anchor_lat) < _FLAT_LATITUDE_MAX and distance_m <= _FLAT_DISTANCE_MAX
            new_anchor = False
        if current == count:
            # What is still open when the fixes end; `finish` is the last of its own fixes.
            if not include_last or time[count - 1] - time[start] < duration_ms:
                break
        else:
            if time[current] - time[current - 1] > gap_ms:
                start = current
                new_anchor = True
                continue
            north = lat[current] - anchor_lat
            east = lon[current] - anchor_lon
            if flat and fabs(east) < 180.0:
                east = east * shrink
                square = north * north + east * east
                if square < inside:
                    continue
                left = square > outside
            else:
                left = False
            if not left:
                left = _haversine_m(anchor_lat, anchor_lon, lat[current], lon[current]) \
                    >= distance_m
            if not left:
                continue
            if time[current] - time[start] < duration_ms:
                start = current
                new_anchor = True
                continue
        if stays == capacity:
            capacity = 64 if capacity == 0 else capacity * 2
            grown = <Stay*>realloc(found[0], capacity * sizeof(Stay))
            if grown == NULL:
                return -1
            found[0] = grown
        found[0][stays].first = start
        found[0][stays].finish = current if current < count else count - 1
        found[0][stays].stop = current
        stays += 1
        start = current
        new_anchor = True
    return stays


def find_stays(
    const int64_t[::1] time_ms, const double[::1] lat, const double[::1] lon,
    double distance_m=100.0, int64_t duration_ms=300_000, int64_t gap_ms=86_400_000,
    bint include_last=True,
):
    cdef int64_t count = time_ms.shape[0]
    cdef Stay* found = NULL
    cdef int64_t stays
    cdef int64_t[:, ::1] view
    if lat.shape[0] != count or lon.shape[0] != count:
        raise ValueError("times, latitudes and longitudes differ in number")
    if count == 0:
        return np.empty((0, 3), np.int64)
    try:
        with nogil:
            stays = _find_stays(
                &time_ms[0], &lat[0], &lon[0], count,
                distance_m, duration_ms, gap_ms, include_last, &found,
            )
        if stays < 0:
            raise MemoryError
        result = np.empty((stays, 3), np.int64)
        view = result
        for index in range(stays):
            view[index, 0] = found[index].first
            view[index, 1] = found[index].finish
            view[index, 2] = found[index].stop
        return result
    finally:
        free(found)


def haversine_m(double lat_1, double lon_1, double lat_2, double lon_2):
    return _haversine_m(lat_1, lon_1, lat_2, lon_2)


cdef int64_t _root(int64_t* parent, int64_t node) noexcept nogil:
    while parent[node] != node:
        parent[node] = parent[parent[node]]
        node = parent[node]
    return node


cdef void _link(
    const double* lat, const double* lon, const int64_t* by_lat, int64_t* parent,
    int64_t count, double distance_m,
) noexcept nogil:
    """Joins all that are within `distance_m`; `by_lat` lists the points from south to north."""
    cdef double reach = 1.0001 * distance_m / (_RADIUS_M * _RADIANS)
    cdef int64_t i, j, one, other, left, right
    for i in range(count):
        one = by_lat[i]
        for j in range(i + 1, count):
            other = by_lat[j]
            if lat[other] - lat[one] > reach:
                break
            left = _root(parent, one)
            right = _root(parent, other)
            # What is one place already needs no distance: most stays are at home.
            if left == right:
                continue
            if _haversine_m(lat[one], lon[one], lat[other], lon[other]) <= distance_m:
                if left < right:
                    parent[right] = left
                else:
                    parent[left] = right


def link_places(const double[::1] lat, const double[::1] lon, double distance_m=100.0):
    cdef int64_t count = lat.shape[0]
    cdef int64_t[::1] order, parents
    cdef int64_t node
    if lon.shape[0] != count:
        raise ValueError("latitudes and longitudes differ in number")
    parent = np.arange(count, dtype=np.int64)
    if count == 0:
        return parent
    parents = parent
    order = np.argsort(lat, kind="stable").astype(np.int64)
    with nogil:
        _link(&lat[0], &lon[0], &order[0], &parents[0], count, distance_m)
        for node in range(count):
            parents[node] = _root(&parents[0], node)
    # Numbered in the order of their first point.
    return np.unique(parent, return_inverse=True)[1].astype(np.int64)
