"""Records of topic `location` on their way into the view of fixes: the part run for each record."""

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE, PyByteArray_Resize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.math cimport llrint
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memcpy

from gateway.fixes.known_fixes cimport KnownFixes, key_of, key_of_device
from gateway.fixes.record_head cimport RecordHead, read_record
from gateway.views.live_positions cimport LivePositions
from waylog.kafka.fetched_records cimport FetchedRecord

from gateway.formats.values import YEAR_2000_MS
from gateway.limits.user_weights import WEIGHT_BYTES
from gateway.views.track_store import CHUNK_BYTES
from waylog.messages import CLOCK_AHEAD_MS

cdef int64_t LATEST_AHEAD_MS = CLOCK_AHEAD_MS
cdef int64_t EARLIEST_MS = YEAR_2000_MS
cdef Py_ssize_t CHUNK_BYTES_MAX = CHUNK_BYTES
cdef Py_ssize_t SIZE_CLASS_BYTES = WEIGHT_BYTES


cdef packed struct Point:
    # The layout of gateway.views.track_store.
    int64_t time
    int32_t lat
    int32_t lon
    float altitude
    float accuracy
    float speed
    float course


def take_fixes(
    view, records, KnownFixes known_fixes, list events, make_event, dict positions,
    bint recent=True,
):
    """Take records for a LocationView; `events` is None if nobody watches.

    The offsets after them are stored in `positions`. Only `recent` records become part of tracks.

    Records that are not in the plain form go to `view.take_record`. New devices are reported to
    `view.index`, values of another size class to `view.resized`.
    """
    cdef RecordHead head
    cdef Point point
    cdef bytes key, value
    cdef str device
    cdef tuple entry
    cdef int64_t live, known
    cdef Py_ssize_t tracked = 0, size
    cdef bytearray chunk
    cdef bint kept
    cdef dict newest = view.newest
    # None unless somebody looks at the map by area.
    cdef LivePositions followed = view.followed
    tracks = view.tracks
    cdef dict chunks = tracks.chunks
    for record in records:
        if type(record) is FetchedRecord:
            raw_key, raw_value = (<FetchedRecord> record)._key, (<FetchedRecord> record)._value
            partition = (<FetchedRecord> record)._partition
            offset = (<FetchedRecord> record)._offset
        else:
            raw_key, raw_value = record.key(), record.value()
            partition, offset = record.partition(), record.offset()
        positions[partition] = offset + 1
        if (
            type(raw_key) is not bytes or type(raw_value) is not bytes
            or not read_record(<bytes> raw_value, &head)
        ):
            view.take_record(record, events, recent=recent)
            continue
        key, value = raw_key, raw_value
        try:
            device = key.decode()
        except UnicodeDecodeError:
            view.take_record(record, events, recent=recent)
            continue
        known = key_of(key, head.identity.start, head.identity.size)
        known_fixes.prefetch(known)
        live = head.time
        if live > head.received + LATEST_AHEAD_MS or live < EARLIEST_MS:
            live = head.received
        point.time = live
        point.lat = <int32_t> llrint(head.lat * 1e7)
        point.lon = <int32_t> llrint(head.lon * 1e7)
        point.altitude = <float> head.altitude
        point.accuracy = <float> head.accuracy
        point.speed = <float> head.speed
        point.course = <float> head.course
        own = chunks.get(device) if recent else None
        chunk = own[-1] if own is not None else None
        if not recent:
            pass
        elif chunk is None or PyByteArray_GET_SIZE(chunk) >= CHUNK_BYTES_MAX:
            tracks.append_packed(device, PyBytes_FromStringAndSize(<char*> &point, sizeof(Point)))
        else:
            size = PyByteArray_GET_SIZE(chunk)
            PyByteArray_Resize(chunk, size + sizeof(Point))
            memcpy(PyByteArray_AS_STRING(chunk) + size, &point, sizeof(Point))
            tracked += sizeof(Point)
        if recent:
            known_fixes.add(known)
        else:
            known_fixes.add_old(known)
        if known_fixes.times is not None:
            known_fixes.times.note(key_of_device(key), head.time, head.received)
        entry = newest.pop(device, None)
        kept = True
        if entry is None:
            newest[device] = (live, value)
            view.index(device, PyBytes_GET_SIZE(value))
        elif <int64_t> entry[0] > live:
            newest[device] = entry
            kept = False
        else:
            newest[device] = (live, value)
            size = PyBytes_GET_SIZE(<bytes> entry[1])
            if size // SIZE_CLASS_BYTES != PyBytes_GET_SIZE(value) // SIZE_CLASS_BYTES:
                view.resized(device, size, PyBytes_GET_SIZE(value))
        if followed is not None and kept:
            followed.move(
                device, live, head.received, head.lat, head.lon,
                head.speed, head.course, head.accuracy,
            )
        if events is not None:
            events.append(
                make_event(partition, offset, device, head.lat, head.lon, raw_value, live)
            )
    tracks.grew(tracked)


def take_keys(view, records, KnownFixes known_fixes, dict positions, bint recent=True):
    """Add the ids of fixes in records for a KeyView, as `take_fixes` does."""
    cdef RecordHead head
    cdef int64_t known
    for record in records:
        raw_key, raw_value = record.key(), record.value()
        positions[record.partition()] = record.offset() + 1
        if (
            type(raw_key) is not bytes or type(raw_value) is not bytes
            or not read_record(<bytes> raw_value, &head)
        ):
            view.take_record(record, recent=recent)
            continue
        try:
            (<bytes> raw_key).decode()
        except UnicodeDecodeError:
            view.take_record(record, recent=recent)
            continue
        known = key_of(<bytes> raw_key, head.identity.start, head.identity.size)
        if recent:
            known_fixes.add(known)
        else:
            known_fixes.add_old(known)
        if known_fixes.times is not None:
            known_fixes.times.note(key_of_device(<bytes> raw_key), head.time, head.received)
