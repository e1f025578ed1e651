"""The part of appending that runs for every fix: receipts, and the appender that returns them.

A device receives its acknowledgement when the receipt is done: when every in-sync replica has the
record (acks=all), or when the log is known to have it already.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memcpy
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec

from gateway.fixes.device_times cimport DeviceTimes
from gateway.fixes.plain_positions cimport PlainRecords, Written
from gateway.fixes.known_fixes cimport FixKey, KnownFixes, key_of_device
from waylog.kafka.record_batch cimport Delivery

import os

from gateway.observability.metrics import LATENCY_BUCKETS_S
from waylog.kafka.clients import AppendError
from waylog.kafka.topics import LOCATION

#: Bytes of the largest record; the broker refuses larger ones (message.max.bytes is 1 MB).
RECORD_BYTES_MAX = 900_000

cdef enum:
    TRACE_BYTES = 55

cdef str TOPIC = LOCATION
cdef Py_ssize_t BUCKETS = len(LATENCY_BUCKETS_S)
cdef double[64] BOUNDS
for _bucket in range(BUCKETS):
    BOUNDS[_bucket] = LATENCY_BUCKETS_S[_bucket]
cdef Py_ssize_t BYTES_MAX = RECORD_BYTES_MAX


cdef inline double monotonic_s() noexcept:
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC, &now)
    return <double> now.tv_sec + now.tv_nsec * 1e-9


# No garbage collection: it releases its callbacks when it is done, which breaks reference cycles.
@cython.no_gc
cdef class Receipt(Delivery):
    """The log's answer to one record: a cheaper replacement for a future.

    Callbacks are called as soon as the log has answered and not through the event loop, as futures
    and their turns of the loop were the greatest part of a fix's cost.
    """

    cpdef bint done(self):
        """Return whether the log has answered."""
        return self._done

    def cancelled(self):
        """Return False: a receipt is never cancelled; exists for code that expects a future."""
        return False

    cpdef exception(self):
        """Return the error with which the log refused the record, or None."""
        return self._error

    cpdef add_done_callback(self, callback):
        """Call `callback(self)` when the log answers, or now if it has answered."""
        if self._done:
            tell(callback, self)
        elif self._callbacks is None:
            # One callback, or a list of them: nearly always there is exactly one.
            self._callbacks = callback
        elif type(self._callbacks) is list:
            self._callbacks.append(callback)
        else:
            self._callbacks = [self._callbacks, callback]

    cdef int delivered(self, int code) except -1:
        self.finish(None if code == 0 else AppendError.of(code))
        return 0

    def __call__(self, error, position):
        """Take the log's answer as a delivery callback."""
        self.finish(error)

    cpdef finish(self, error):
        """Record the log's answer, and call the callbacks."""
        cdef object callbacks = self._callbacks
        self._done = True
        self._error = error
        self._callbacks = None
        if callbacks is None:
            return
        if type(callbacks) is list:
            for callback in callbacks:
                tell(callback, self)
        else:
            tell(callbacks, self)


cdef inline int tell(callback, Receipt receipt) except -1:
    """Call a function, or count the answer for a batch."""
    if isinstance(callback, BatchReceipt):
        return (<BatchReceipt> callback).count(receipt._error)
    callback(receipt)
    return 0


cdef inline int64_t marker(int64_t device, int64_t sender) noexcept:
    """Return the key that marks a device as having sent over a connection."""
    cdef int64_t key = device ^ <int64_t> (<uint64_t> (sender + 1) * 0x9E3779B97F4A7C15ULL)
    return key if key else 1


@cython.no_gc
cdef class FixReceipt(Receipt):
    """The receipt of a fix; its key becomes known when the log has the record."""

    cpdef finish(self, error):
        self._appender._answered(self, error)
        Receipt.finish(self, error)


cdef class BatchReceipt(Receipt):
    """A receipt for several records, done when all are; it has the first error."""

    def __init__(self, Py_ssize_t count):
        self._missing = count

    def one_done(self, Receipt receipt):
        """Count one record's receipt; a callback for add_done_callback."""
        self.count(receipt._error)

    def future_done(self, future):
        """Count one record's future; a callback for add_done_callback."""
        self.count(AppendError("given up") if future.cancelled() else future.exception())

    cdef int count(self, error) except -1:
        """Count an answer of the log."""
        if self._first_error is None:
            self._first_error = error
        self._missing -= 1
        if not self._missing:
            self.finish(self._first_error)
        return 0


def together(list completions):
    """Combine receipts or futures into one receipt, done when all are; it has the first error."""
    cdef BatchReceipt batch = BatchReceipt(len(completions))
    for each in completions:
        if isinstance(each, Receipt):
            (<Receipt> each).add_done_callback(batch)
        else:
            each.add_done_callback(batch.future_done)
    return batch


cdef class FixesReceipt(BatchReceipt):
    """The receipt of one request's fixes; their keys become known when the log has them all."""

    cdef int delivered(self, int code) except -1:
        if code:
            self._failed += 1
        return self.count(None if code == 0 else AppendError.of(code))

    def __call__(self, error, position):
        """Take the log's answer to one record as a delivery callback."""
        if error is not None:
            self._failed += 1
        self.count(error)

    cpdef finish(self, error):
        self._appender._all_answered(self)
        Receipt.finish(self, error)


cdef class FixAppender:
    """The base of gateway.fixes.submit.Submitter: appends each fix once."""

    def __init__(self, log, KnownFixes known_fixes, metrics):
        self.known_fixes = known_fixes
        #: True if fixes that a client marks as repeated need a question to other workers.
        self.doubts_repeats = False
        self.repeated = False  # whether the fix being submitted is marked as repeated
        #: True if other fixes may need a question, too: those that are not newer than the newest
        #: known fix of their device, and the first fix of a device over a connection.
        self.doubts_late = False
        #: The number of the connection whose fixes are being submitted; 0: it has none.
        self.sender = 0
        self.metrics = metrics
        self._send = log.send
        # The accumulator of our own producer accepts raw memory in place of bytes objects.
        self._accumulator = getattr(log, "accumulator", None)
        self._in_flight = {}
        self._erased = {}
        self._stored = Receipt()
        self._stored.finish(None)
        # Trace ids are a random prefix of the process and a counter: unique, and cheap.
        self._traces = int.from_bytes(os.urandom(6), "big") + 1
        head = b"00-%b%016x-%016x-00" % (os.urandom(8).hex().encode(), 0, 0)
        memcpy(self._trace_head, PyBytes_AS_STRING(head), TRACE_BYTES)
        self._fixes = metrics.fixes
        self._latency_counts = metrics.latency_counts

    @property
    def in_flight(self):
        """The number of fixes that wait for the log's answer."""
        return len(self._in_flight)

    cdef Receipt known(self, const FixKey* key):
        """Return the receipt of a fix that the log has or is about to have; None for a new one."""
        cdef Receipt receipt = self._stored
        # Mostly no device was erased, and the dictionary is empty.
        if self._erased and key.time <= self._erased.get(key.device, key.time - 1):
            self.metrics.erased += 1
            return receipt
        if not self.known_fixes.holds(key.key):
            receipt = self._in_flight.get(key.key)
            if receipt is None:
                if not self.known_fixes.is_stored(key):
                    return None
                receipt = self._stored
        self.metrics.repeated += 1
        return receipt

    def forget_before(self, int64_t device, int64_t time_ms):
        """Refuse to store fixes of an erased device from this time (Unix ms) or earlier.

        `device` is its gateway.fixes.known_fixes.device_key.
        """
        self._erased[device] = time_ms

    cdef bint is_in_doubt(self, const FixKey* key) except -1:
        """Return whether a fix that is not known here may have come by another worker.

        If not, the fix counts as sent from now on.
        """
        cdef DeviceTimes times = self.known_fixes.times
        if not self.doubts_late or times is None:
            return False
        if not times.find(marker(key.device, self.sender)).device:
            return True
        if times.is_late(key.device, key.time):
            return True
        times.note(key.device, key.time, 0)
        return False

    def may_be_elsewhere(self, fix):
        """Return whether a parsed fix may have come by another worker; see `is_in_doubt`."""
        cdef FixKey key
        key.device = key_of_device(fix.device.encode())
        key.time = fix.time
        return self.is_in_doubt(&key)

    def trust(self, str device, int64_t sender, newest):
        """Record the newest time of a device that another worker has reported; None: none."""
        cdef DeviceTimes times = self.known_fixes.times
        cdef int64_t key = key_of_device(device.encode())
        if newest is not None:
            times.note(key, newest, 0)
        times.note(marker(key, sender), 0, 0)

    def receipt_of(self, int64_t key):
        """Return the receipt of a fix in memory or in flight, or None, without counting it."""
        return self._stored if self.known_fixes.holds(key) else self._in_flight.get(key)

    cdef bytes start_trace(self):
        """Return the `traceparent` of a new, unsampled trace (W3C Trace Context, level 1)."""
        cdef bytes text = PyBytes_FromStringAndSize(self._trace_head, TRACE_BYTES)
        cdef char* start = PyBytes_AS_STRING(text)
        cdef uint64_t number = self._traces
        cdef int digit
        self._traces += 1
        for digit in range(16):
            start[34 - digit] = b"0123456789abcdef"[number & 15]
            number >>= 4
        memcpy(start + 36, start + 19, 16)
        return text

    cdef int _append_value(
        self, bytes device, const char* value, Py_ssize_t size, bytes traceparent, Receipt receipt
    ) except -1:
        if size > BYTES_MAX:
            raise AppendError(f"a record of {size} bytes is too large")
        if self._accumulator is not None:
            self._accumulator.append(TOPIC, value, size, device, traceparent, receipt)
        else:
            self._send(TOPIC, value[:size], device, traceparent, receipt)
        return 0

    cdef Receipt append_new(
        self, int64_t key, bytes device, const char* value, Py_ssize_t size, str source,
        bytes traceparent,
    ):
        """Append a fix that is not `known`; never raises."""
        cdef FixReceipt receipt = FixReceipt.__new__(FixReceipt)
        receipt._appender = self
        receipt._key = key
        receipt._source = source
        receipt._started = monotonic_s()
        self._in_flight[key] = receipt
        try:
            self._append_value(
                device, value, size,
                self.start_trace() if traceparent is None else traceparent, receipt,
            )
        except AppendError as error:
            receipt.finish(error)
        return receipt

    def append_fix(self, int64_t key, fix, encode, bytes traceparent):
        """Append a fix, unless it is known by its key; `encode` makes its record."""
        cdef FixKey name
        cdef bytes device = fix.device.encode()
        name.key = key
        name.device = key_of_device(device)
        name.time = fix.time
        cdef Receipt receipt = self.known(&name)
        if receipt is not None:
            return receipt
        cdef bytes value = encode(fix)
        return self.append_new(
            key, device, PyBytes_AS_STRING(value), PyBytes_GET_SIZE(value),
            fix.source or "", traceparent,
        )

    def append_records(self, PlainRecords records, str source, bytes traceparent):
        """Append several encoded records, at least one, except those of known fixes.

        The receipt is done when the log has answered all of them.
        """
        cdef FixesReceipt batch
        cdef Receipt receipt
        cdef Written* written = records._written
        cdef Py_ssize_t index
        if records._count == 1:
            receipt = self.known(&written.key)
            return receipt if receipt is not None else self.append_new(
                written.key.key, records._devices[0], records._bytes, written.size, source, traceparent
            )
        # One request is one trace.
        traceparent = self.start_trace() if traceparent is None else traceparent
        batch = FixesReceipt.__new__(FixesReceipt)
        batch._appender = self
        batch._keys = []
        batch._source = source
        batch._started = monotonic_s()
        # Starts at one, so that the batch is not done before all records are submitted.
        batch._missing = 1
        for index in range(records._count):
            self.known_fixes.prefetch(records._written[index].key.key)
        for index in range(records._count):
            written = &records._written[index]
            receipt = self.known(&written.key)
            if receipt is None:
                key = written.key.key
                self._in_flight[key] = batch
                batch._keys.append(key)
                batch._missing += 1
                try:
                    self._append_value(
                        records._devices[index], records._bytes + written.start, written.size,
                        traceparent, batch,
                    )
                except AppendError as error:
                    batch._failed += 1
                    batch.count(error)
            elif receipt is not batch:
                batch._missing += 1
                receipt.add_done_callback(batch)
        batch.count(None)
        return batch

    cdef int _answered(self, FixReceipt receipt, error) except -1:
        del self._in_flight[receipt._key]
        if error is not None:
            self.metrics.append_failures += 1
            return 0
        self.known_fixes.add(receipt._key)
        self._measured(receipt._source, receipt._started, 1)
        return 0

    cdef int _all_answered(self, FixesReceipt receipt) except -1:
        cdef int64_t key
        for each in receipt._keys:
            del self._in_flight[each]
            self.known_fixes.prefetch(each)
        self.metrics.append_failures += receipt._failed
        if receipt._failed:
            # Which of them are stored is not known here; the view learns it from the log.
            return 0
        for key in receipt._keys:
            self.known_fixes.add(key)
        if receipt._keys:
            self._measured(receipt._source, receipt._started, len(receipt._keys))
        return 0

    cdef int _measured(self, str source, double started, Py_ssize_t count) except -1:
        cdef double seconds = monotonic_s() - started
        cdef Py_ssize_t bucket
        self._fixes[source] = self._fixes.get(source, 0) + count
        for bucket in range(BUCKETS):
            if seconds <= BOUNDS[bucket]:
                break
        else:
            bucket = BUCKETS
        self._latency_counts[bucket] += count
        self.metrics.latency_sum += seconds * count
        return 0
