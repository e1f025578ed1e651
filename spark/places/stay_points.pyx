# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Stay-point detection: finds where a device stayed within some metres for some minutes.

The sliding algorithm of Li et al. (2008), as implemented in trackintel: the first fix of a
candidate is its anchor. The candidate ends with the first fix at least `distance_m` from the
anchor, and is a stay if it lasted at least `duration_ms`. A silence of more than `gap_ms` drops the
candidate.

Fixes come in any number of chunks; the state between two chunks is a small struct that can be
stored. Positions are integers in units of 1e-7 degrees, so that sums are exact: a history gives the
same stays in one chunk and day by day.

With cleaning, a candidate is also reported if it may have lasted that long: nobody knows what a
device did in the silence before its first and after its last fix. Each stay says how long these
silences were and how far the device was before and after, so that who knows how it reports
(spark.places.reporting) can decide.

Nearly every distance is compared by a flat (equirectangular) square without any trigonometry. The
haversine formula is used only for distances within 1 % of the limit, beyond 80 degrees of latitude,
and for limits above 5 km, so that the result is the same as with that formula for every fix.
"""

from libc.math cimport asin, cos, fabs, sin, sqrt
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, memset

import numpy as np

from spark.fixes.fixes import EARTH_RADIUS_M

cdef double _RADIUS_M = EARTH_RADIUS_M
cdef double _RADIANS = 0.017453292519943295
cdef double _UNIT = 1e-7
cdef int64_t _TURN = 3_600_000_000
# Beyond this latitude (degrees) the flat square differs by more than 1 % from the sphere.
cdef double _FLAT_LATITUDE_MAX = 80.0
# Upper limit (m) of `distance_m` for the flat square.
cdef double _FLAT_DISTANCE_MAX = 5000.0

# A spike leaves a place and comes back to it within one fix (m).
cdef double _SPIKE_LEG_M = 300.0
cdef double _SPIKE_BASE_M = 200.0
# Faster than an airliner both there and back means that the fix is wrong.
cdef double _SPEED_MAX_M_PER_MS = 1000.0 / 3600.0
# Two fixes this near (less than 285 m) and at least this far apart in time need no check.
cdef int64_t _NEAR_UNITS = 18_000
cdef int64_t _NEAR_MS = 1_030
# A device that is this far away (m) after a silence has left during it.
cdef double _SILENT_MOVE_M = 300.0
# The assumed speed of that movement: 36 km/h.
cdef double _TRAVEL_M_PER_MS = 0.01
# A fix is a spike only if the device was away for at most this time (ms). Between the fixes of a
# device that reports seldom there is time for a visit.
cdef int64_t _SPIKE_MS = 2_220_000
# Distance (m) from which the time of a journey is not guessed.
cdef double _FLAT_JOURNEY_M = 50_000.0
# Milliseconds between two fixes from which the time in between counts as silent.
cdef int64_t _SILENCE_MS = 900_000
# A stay is assumed to have lasted, before its first fix and after its last, at most this many times
# as long as it was observed: a larger factor invents as many visits as it finds.
cdef int64_t _UNSEEN_FACTOR = 2


cdef struct Fix:
    int64_t time
    int64_t lat
    int64_t lon

cdef struct Stay:
    int64_t start
    int64_t end
    int64_t seen  # time of the last of its fixes
    int64_t silent  # ms of it in silences
    int64_t fixes
    int64_t lat
    int64_t lon
    int64_t first  # time of the first of its fixes
    int64_t quiet  # ms in silences between its fixes
    int64_t longest  # ms of the longest of these
    Fix before  # the fix before these
    Fix after  # the fix after these

cdef struct State:
    int64_t active
    Fix anchor
    int64_t fixes
    int64_t sum_lat  # relative to the anchor
    int64_t sum_lon
    int64_t silent
    int64_t lead  # assumed time of arrival before the anchor, ms
    int64_t seen  # time of the last fix of the candidate
    int64_t accepted
    Fix last
    int64_t waiting  # a fix is pending: it is not judged yet
    Fix pending
    int64_t newest  # time of the newest fix that was taken
    Fix before  # the fix before the anchor
    int64_t quiet
    int64_t longest

STATE_BYTES = sizeof(State)

STAY_TYPE = np.dtype(
    [
        (name, np.int64)
        for name in (
            "start", "end", "seen", "silent", "fixes", "lat", "lon",
            "first", "quiet", "longest",
            "before", "before_lat", "before_lon", "after", "after_lat", "after_lon",
        )
    ]
)


cdef double _haversine_m(double lat_1, double lon_1, double lat_2, double lon_2) noexcept nogil:
    cdef double phi_1 = lat_1 * _RADIANS
    cdef double phi_2 = lat_2 * _RADIANS
    cdef double half_lat = sin((phi_2 - phi_1) / 2.0)
    cdef double half_lon = sin((lon_2 - lon_1) * _RADIANS / 2.0)
    cdef double square = half_lat * half_lat + cos(phi_1) * cos(phi_2) * half_lon * half_lon
    if square > 1.0:
        square = 1.0
    return 2.0 * _RADIUS_M * asin(sqrt(square))


cdef double _distance_m(const Fix* one, const Fix* other) noexcept nogil:
    return _haversine_m(
        one.lat * _UNIT, one.lon * _UNIT, other.lat * _UNIT, other.lon * _UNIT
    )


cdef inline int64_t _around(int64_t units) noexcept nogil:
    """Return a difference of longitudes the short way round."""
    if units > _TURN // 2:
        return units - _TURN
    if units < -(_TURN // 2):
        return units + _TURN
    return units


cdef inline int64_t _mean(int64_t total, int64_t count) noexcept nogil:
    """Return the mean, rounded to the nearest unit, the same for both signs."""
    if total >= 0:
        return (total + count // 2) // count
    return -((-total + count // 2) // count)


cdef class StayFinder:
    cdef State state
    cdef Stay* found
    cdef int64_t stays, capacity
    cdef double distance_m, inside, outside, shrink
    cdef int64_t duration_ms, gap_ms
    cdef bint cleaning, flat
    cdef double accuracy_max

    def __cinit__(
        self, double distance_m=100.0, int64_t duration_ms=300_000, int64_t gap_ms=86_400_000,
        bint clean=True, double accuracy_max=100.0,
    ):
        cdef double metres = _RADIUS_M * _RADIANS * _UNIT
        self.found = NULL
        self.distance_m = distance_m
        self.duration_ms = duration_ms
        self.gap_ms = gap_ms
        self.cleaning = clean
        self.accuracy_max = accuracy_max
        # In squared units of latitude: a distance is certainly inside below the first one and
        # certainly outside above the second.
        self.inside = (0.99 * distance_m / metres) ** 2
        self.outside = (1.01 * distance_m / metres) ** 2
        self.reset()

    def __dealloc__(self):
        free(self.found)

    def reset(self):
        memset(&self.state, 0, sizeof(State))
        self.state.newest = -(1 << 62)
        self.stays = 0

    def resume(self, int64_t time_ms, int32_t lat, int32_t lon):
        self.reset()
        self.state.last = Fix(time_ms, lat, lon)
        self.state.accepted = True
        self.state.newest = time_ms

    @property
    def newest(self):
        return self.state.newest if self.state.newest > -(1 << 62) else None

    def state_bytes(self):
        return (<char*>&self.state)[:sizeof(State)]

    def restore(self, bytes state):
        if len(state) != sizeof(State):
            raise ValueError(f"a state has {sizeof(State)} bytes, not {len(state)}")
        memcpy(&self.state, <char*>state, sizeof(State))
        self.stays = 0
        if self.state.active:
            self._measure_anchor()

    cdef void _measure_anchor(self) noexcept nogil:
        cdef double degrees = self.state.anchor.lat * _UNIT
        self.shrink = cos(degrees * _RADIANS)
        self.flat = fabs(degrees) < _FLAT_LATITUDE_MAX and self.distance_m <= _FLAT_DISTANCE_MAX

    cdef void _begin(self, const Fix* fix) noexcept nogil:
        cdef State* state = &self.state
        state.active = True
        state.anchor = fix[0]
        state.fixes = 1
        state.sum_lat = 0
        state.sum_lon = 0
        state.silent = 0
        state.lead = 0
        state.seen = fix.time
        state.before = fix[0]
        state.quiet = 0
        state.longest = 0
        self._measure_anchor()

    cdef int64_t _possible(self, const Fix* one, const Fix* other) noexcept nogil:
        """Return how much of the silence between two fixes may have been spent at one of them."""
        cdef double north = other.lat - one.lat
        cdef double east = _around(other.lon - one.lon) * self.shrink
        cdef double metres = _RADIUS_M * _RADIANS * _UNIT * sqrt(north * north + east * east)
        cdef int64_t gap = other.time - one.time
        if metres > _FLAT_JOURNEY_M:
            # By air, or not at all.
            return gap
        return max(gap - <int64_t>(metres / _TRAVEL_M_PER_MS), 0)

    cdef int64_t _believed(self, int64_t lead) noexcept nogil:
        return min(lead, _UNSEEN_FACTOR * (self.state.seen - self.state.anchor.time))

    cdef int _emit(self, int64_t end, const Fix* after) except -1 nogil:
        cdef State* state = &self.state
        cdef Stay* stay
        cdef Stay* grown
        cdef int64_t lead = self._believed(state.lead)
        if self.stays == self.capacity:
            self.capacity = 64 if self.capacity == 0 else self.capacity * 2
            grown = <Stay*>realloc(self.found, self.capacity * sizeof(Stay))
            if grown == NULL:
                with gil:
                    raise MemoryError
            self.found = grown
        stay = &self.found[self.stays]
        self.stays += 1
        stay.start = state.anchor.time - lead
        stay.end = end
        stay.seen = state.seen
        stay.silent = state.silent + lead
        stay.fixes = state.fixes
        stay.lat = state.anchor.lat + _mean(state.sum_lat, state.fixes)
        stay.lon = _around(state.anchor.lon + _mean(state.sum_lon, state.fixes))
        stay.first = state.anchor.time
        stay.before = state.before
        stay.after = after[0]
        stay.quiet = state.quiet
        stay.longest = state.longest
        return 0

    cdef int _accept(self, const Fix* fix) except -1 nogil:
        """Process one fix that may leave the candidate."""
        cdef State* state = &self.state
        cdef int64_t east, silence
        cdef double north_square, east_flat, square
        cdef bint left
        if not state.active:
            self._begin(fix)
            if self.cleaning and state.accepted:
                state.before = state.last
            return 0
        silence = fix.time - state.seen
        if silence > self.gap_ms:
            if self.cleaning:
                return self._leave(fix, silence)
            self._begin(fix)
            return 0
        east = _around(fix.lon - state.anchor.lon)
        left = False
        square = -1.0
        if self.flat:
            north_square = <double>(fix.lat - state.anchor.lat)
            north_square *= north_square
            east_flat = east * self.shrink
            square = north_square + east_flat * east_flat
            left = square > self.outside
        if not left and (square < 0 or square >= self.inside):
            left = _distance_m(&state.anchor, fix) >= self.distance_m
        if left and self.cleaning:
            return self._leave(fix, silence)
        if silence > _SILENCE_MS:
            state.silent += silence
            state.quiet += silence
            state.longest = max(state.longest, silence)
        if not left:
            state.fixes += 1
            state.sum_lat += fix.lat - state.anchor.lat
            state.sum_lon += east
            state.seen = fix.time
            return 0
        if fix.time - state.anchor.time >= self.duration_ms:
            self._emit(fix.time, fix)
        self._begin(fix)
        return 0

    cdef int _leave(self, const Fix* fix, int64_t silence) except -1 nogil:
        """End the candidate before a fix elsewhere, or after a long silence; begin the next."""
        cdef State* state = &self.state
        cdef Fix before = state.last
        cdef int64_t end = fix.time
        cdef int64_t lead = 0
        cdef int64_t possible
        cdef double moved
        if silence > _SILENCE_MS:
            state.silent += silence
            moved = _distance_m(&state.anchor, fix)
            if moved > _SILENT_MOVE_M or silence > self.gap_ms:
                # The device left during the silence and arrived at its new position, at unknown
                # times. The travel time is subtracted, and half of the rest is given to each place.
                lead = silence - <int64_t>(moved / _TRAVEL_M_PER_MS)
                lead = lead // 2 if lead > 0 else 0
                end = state.seen + self._believed(lead)
                state.silent -= silence - (end - state.seen)
        possible = state.seen - state.anchor.time
        if possible < self.duration_ms <= fix.time - state.before.time:
            possible += self._possible(&state.before, &state.anchor)
            possible += self._possible(&state.last, fix)
        if possible >= self.duration_ms:
            self._emit(end, fix)
        self._begin(fix)
        state.lead = lead
        state.before = before
        return 0

    cdef int _judge(self, const Fix* fix) except -1 nogil:
        """Decide about the pending fix, now that the next one is known."""
        cdef State* state = &self.state
        cdef double there, back
        if state.waiting:
            if state.accepted:
                back = _distance_m(&state.pending, fix)
                if back > _SPIKE_LEG_M or back > _SPEED_MAX_M_PER_MS * (
                    fix.time - state.pending.time
                ):
                    there = _distance_m(&state.last, &state.pending)
                    if (
                        there > _SPIKE_LEG_M and back > _SPIKE_LEG_M
                        and fix.time - state.last.time <= _SPIKE_MS
                        and _distance_m(&state.last, fix) < _SPIKE_BASE_M
                    ) or (
                        there > _SPEED_MAX_M_PER_MS * (state.pending.time - state.last.time)
                        and back > _SPEED_MAX_M_PER_MS * (fix.time - state.pending.time)
                    ):
                        state.pending = fix[0]
                        return 0
            self._accept(&state.pending)
            state.last = state.pending
            state.accepted = True
        state.pending = fix[0]
        state.waiting = True
        return 0

    cdef int _feed(
        self, const int64_t* time, const int32_t* lat, const int32_t* lon, const float* accuracy,
        int64_t count,
    ) except -1 nogil:
        cdef State* state = &self.state
        cdef Fix fix
        cdef int64_t i, north, east, seen
        cdef int64_t anchor_lat, anchor_lon, fixes, sum_lat, sum_lon
        cdef double north_flat, east_flat, shrink
        cdef double inside = self.inside
        # Longer pauses are handled by `_accept`.
        cdef int64_t pause_max = min(_SILENCE_MS, self.gap_ms)
        i = 0
        while i < count:
            if self.cleaning:
                # A fix near its neighbours is neither a spike nor too fast.
                if time[i] <= state.newest:
                    i += 1
                    continue
                if accuracy != NULL and accuracy[i] > self.accuracy_max:
                    i += 1
                    continue
                fix.time = time[i]
                fix.lat = lat[i]
                fix.lon = lon[i]
                state.newest = fix.time
                i += 1
                north = fix.lat - state.pending.lat
                east = fix.lon - state.pending.lon
                if (
                    state.waiting
                    and -_NEAR_UNITS < north < _NEAR_UNITS
                    and -_NEAR_UNITS < east < _NEAR_UNITS
                    and fix.time - state.pending.time >= _NEAR_MS
                ):
                    north = state.pending.lat - state.anchor.lat
                    east = state.pending.lon - state.anchor.lon
                    east_flat = east * self.shrink
                    if (
                        state.active and self.flat
                        and state.pending.time - state.seen <= pause_max
                        and north * <double>north + east_flat * east_flat < inside
                    ):
                        state.fixes += 1
                        state.sum_lat += north
                        state.sum_lon += east
                        state.seen = state.pending.time
                    else:
                        self._accept(&state.pending)
                    state.last = state.pending
                    state.accepted = True
                    state.pending = fix
                else:
                    self._judge(&fix)
                continue
            if state.active and self.flat:
                # Most fixes are near the anchor: this loop keeps all its variables in registers.
                anchor_lat = state.anchor.lat
                anchor_lon = state.anchor.lon
                shrink = self.shrink
                fixes = i
                sum_lat = state.sum_lat
                sum_lon = state.sum_lon
                seen = state.seen
                while i < count:
                    north = lat[i] - anchor_lat
                    east = lon[i] - anchor_lon
                    north_flat = <double>north
                    east_flat = <double>east * shrink
                    if (
                        north_flat * north_flat + east_flat * east_flat >= inside
                        or time[i] - seen > pause_max
                    ):
                        break
                    sum_lat += north
                    sum_lon += east
                    seen = time[i]
                    i += 1
                state.fixes += i - fixes
                state.sum_lat = sum_lat
                state.sum_lon = sum_lon
                state.seen = seen
                if i > fixes:
                    state.newest = seen
                if i == count:
                    break
            fix.time = time[i]
            fix.lat = lat[i]
            fix.lon = lon[i]
            state.newest = fix.time
            self._accept(&fix)
            i += 1
        return 0

    def feed(
        self, const int64_t[::1] time_ms, const int32_t[::1] lat, const int32_t[::1] lon,
        const float[::1] accuracy=None,
    ):
        cdef int64_t count = time_ms.shape[0]
        cdef const float* accuracies = NULL
        if lat.shape[0] != count or lon.shape[0] != count:
            raise ValueError("times, latitudes and longitudes differ in number")
        if accuracy is not None:
            if accuracy.shape[0] != count:
                raise ValueError("times and accuracies differ in number")
            if count:
                accuracies = &accuracy[0]
        if count:
            with nogil:
                self._feed(&time_ms[0], &lat[0], &lon[0], accuracies, count)

    def take(self):
        cdef int64_t[:, ::1] view
        result = np.empty(self.stays, STAY_TYPE)
        if self.stays:
            view = result.view(np.int64).reshape(-1, 16)
            memcpy(&view[0, 0], self.found, self.stays * sizeof(Stay))
        self.stays = 0
        return result

    def take_open(self):
        """Return what would come if no fix followed; the state does not change."""
        cdef State before = self.state
        cdef Fix waiting = self.state.last
        if self.state.waiting:
            waiting = self.state.pending
            self._accept(&waiting)
        if self.state.active and self.state.seen - self.state.anchor.time >= self.duration_ms:
            waiting.time = self.state.seen
            self._emit(self.state.seen, &waiting)
        result = self.take()
        self.state = before
        if self.state.active:
            self._measure_anchor()
        return result


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
    """Link all points within `distance_m`; `by_lat` lists the points from south to north."""
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
            # Points that are linked already need no distance: most stays are at home.
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
    # Renumber the groups in the order of their first points.
    return np.unique(parent, return_inverse=True)[1].astype(np.int64)
