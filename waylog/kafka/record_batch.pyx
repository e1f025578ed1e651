"""The send buffer of a producer: record batches (version 2), a queue of them for each partition.

A record is encoded into its batch as soon as it is given; only these bytes and its delivery
callback are kept. Layout of a batch (big-endian), `DefaultRecordBatch` of Apache Kafka:
base offset 8, length 4 (of what follows), partition leader epoch 4, magic 1, CRC-32C 4 (of what
follows), attributes 2, last offset delta 4, base timestamp 8, max timestamp 8, producer id 8,
producer epoch 2, base sequence 4, record count 4, then the records.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Malloc, PyMem_Realloc
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.string cimport memcpy
from posix.time cimport CLOCK_MONOTONIC, CLOCK_REALTIME, clock_gettime, timespec

from waylog.kafka.protocol.record_format cimport (
    HEADER_SIZE,
    LZ4,
    MAGIC,
    NO_COMPRESSION,
    put_varint,
    varint_size,
)

import logging
import struct
from collections import deque

import google_crc32c
import lz4.frame

from waylog.kafka.clients import AppendError, AppendQueueFull

logger = logging.getLogger(__name__)

#: A batch is closed at this many bytes; a larger record is a batch by itself.
BATCH_BYTES = 256 * 1024

cdef enum:
    SMALL_BATCH_BYTES = 4096
    COMPRESSED_FROM = 200      # bytes of records; below, compression is not worth its cost
    RECORD_OVERHEAD = 40       # upper bound for the lengths, deltas and counts of a record
    TRACE_NAME_BYTES = 13

# A bit less than a broker accepts by default (message.max.bytes 1 MB).
cdef Py_ssize_t RECORD_BYTES_MAX = 1_000_000
cdef size_t BATCH_BYTES_MAX = BATCH_BYTES

cdef object _after_crc = struct.Struct(">hiqqqhii")
cdef object _before_crc = struct.Struct(">qiibI")
cdef enum:
    BEFORE_LENGTH_BYTES = 12


cdef inline int64_t milliseconds(int clock) noexcept:
    cdef timespec now
    clock_gettime(clock, &now)
    return <int64_t> now.tv_sec * 1000 + now.tv_nsec // 1_000_000


def monotonic_ms():
    """Return the time on the clock of `RecordBatch.created`."""
    return milliseconds(CLOCK_MONOTONIC)


cdef inline unsigned char* put_text(
    unsigned char* out, const char* text, Py_ssize_t size
) noexcept:
    """Write a length (-1 for none) and the bytes; return the end."""
    out = put_varint(out, size)
    if size <= 0:
        return out
    memcpy(out, text, size)
    return out + size


cdef inline unsigned char* put_bytes(unsigned char* out, bytes value) noexcept:
    if value is None:
        return put_varint(out, -1)
    return put_text(out, PyBytes_AS_STRING(value), PyBytes_GET_SIZE(value))


cdef uint32_t murmur2(const unsigned char* data, Py_ssize_t size) noexcept nogil:
    """Compute `org.apache.kafka.common.utils.Utils.murmur2`."""
    cdef uint32_t m = 0x5bd1e995
    cdef uint32_t h = <uint32_t> 0x9747b28c ^ <uint32_t> size
    cdef uint32_t k
    cdef Py_ssize_t left = size
    while left >= 4:
        k = data[0] | <uint32_t> data[1] << 8 | <uint32_t> data[2] << 16 | <uint32_t> data[3] << 24
        k *= m
        k ^= k >> 24
        k *= m
        h *= m
        h ^= k
        data += 4
        left -= 4
    if left == 3:
        h ^= <uint32_t> data[2] << 16
    if left >= 2:
        h ^= <uint32_t> data[1] << 8
    if left >= 1:
        h ^= data[0]
        h *= m
    h ^= h >> 13
    h *= m
    h ^= h >> 15
    return h


cpdef int partition_of(bytes key, int partitions) noexcept:
    """Return the partition into which Kafka's own clients put a record with this key."""
    return <int> ((
        murmur2(<const unsigned char*> PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key)) & 0x7fffffff
    ) % <uint32_t> partitions)


cdef bytes encode_headers(headers):
    """Encode headers as in a record: their count, then the name and value of each."""
    cdef bytes name, value
    cdef bytes encoded
    cdef unsigned char* out
    cdef list pairs = []
    cdef Py_ssize_t size = 5
    if headers is None:
        return b"\0"
    if type(headers) is bytes:
        size = PyBytes_GET_SIZE(headers)
        encoded = PyBytes_FromStringAndSize(NULL, TRACE_NAME_BYTES + varint_size(size) + size)
        out = <unsigned char*> PyBytes_AS_STRING(encoded)
        # The count, 1, and the name with its length.
        memcpy(out, b"\x02\x16traceparent", TRACE_NAME_BYTES)
        put_bytes(out + TRACE_NAME_BYTES, headers)
        return encoded
    for each, given in headers:
        name = each.encode()
        value = given.encode() if isinstance(given, str) else given
        pairs.append((name, value))
        size += 10 + len(name) + (0 if value is None else len(value))
    encoded = PyBytes_FromStringAndSize(NULL, size)
    out = put_varint(<unsigned char*> PyBytes_AS_STRING(encoded), len(pairs))
    for name, value in pairs:
        out = put_bytes(put_bytes(out, name), value)
    return encoded[:out - <unsigned char*> PyBytes_AS_STRING(encoded)]


cdef class Delivery:
    """A cheap delivery callback: `delivered` is called when the log has answered a record."""

    cdef int delivered(self, int code) except -1:
        """Called when the log has stored a record (code 0) or refused it (an ErrorCode).

        This implementation does nothing; subclasses override it.
        """
        return 0

    def __call__(self, error, position):
        """Called as a plain callback, by code that stands between the log and the sender.

        This implementation does nothing; subclasses override it.
        """


cdef class RecordBatch:
    """Records of one partition. No record can be added once the batch is sealed."""

    def __cinit__(self):
        self.deliveries = []
        self._codec = NO_COMPRESSION
        self.created = milliseconds(CLOCK_MONOTONIC)
        self.reserve(SMALL_BATCH_BYTES)

    def __dealloc__(self):
        PyMem_Free(self._start)

    cdef int reserve(self, size_t more) except -1:
        cdef size_t wanted = self._size + more
        cdef size_t capacity = max(self._capacity, <size_t> SMALL_BATCH_BYTES)
        cdef void* grown
        if wanted <= self._capacity:
            return 0
        while capacity < wanted:
            capacity *= 2
        grown = PyMem_Realloc(self._start, capacity)
        if grown is NULL:
            raise MemoryError
        self._start = <unsigned char*> grown
        self._capacity = capacity
        return 0

    cdef int add(
        self, int64_t timestamp, bytes key, const char* value, Py_ssize_t value_size,
        bytes headers, object delivery,
    ) except -1:
        """Add a record (`value_size` -1: without a value); return its number of bytes."""
        cdef Py_ssize_t key_size = 0 if key is None else PyBytes_GET_SIZE(key)
        cdef Py_ssize_t headers_size = PyBytes_GET_SIZE(headers)
        cdef Py_ssize_t size
        cdef size_t before = self._size
        cdef unsigned char* out
        self.reserve(key_size + max(value_size, 0) + headers_size + RECORD_OVERHEAD)
        if not self.count:
            self._base_timestamp = self._max_timestamp = timestamp
        elif timestamp > self._max_timestamp:
            self._max_timestamp = timestamp
        size = (
            1 + varint_size(timestamp - self._base_timestamp) + varint_size(self.count)
            + varint_size(-1 if key is None else key_size) + key_size
            + varint_size(value_size) + max(value_size, 0) + headers_size
        )
        out = put_varint(self._start + before, size)
        out[0] = 0  # attributes
        out = put_varint(put_varint(out + 1, timestamp - self._base_timestamp), self.count)
        out = put_text(put_bytes(out, key), value, value_size)
        memcpy(out, PyBytes_AS_STRING(headers), headers_size)
        self._size = out + headers_size - self._start
        self.count += 1
        self.deliveries.append(delivery)
        self.bytes_held += self._size - before
        return <int> (self._size - before)

    def seal(self):
        """Compress the records, if not done yet; none can be added afterwards."""
        if self._sealed is not None:
            return
        self._sealed = PyBytes_FromStringAndSize(<char*> self._start, self._size)
        PyMem_Free(self._start)
        self._start = NULL
        self._capacity = 0
        if self._size >= COMPRESSED_FROM:
            # Kafka's Java clients cannot read LZ4 blocks that depend on previous ones.
            compressed = lz4.frame.compress(
                self._sealed, block_size=lz4.frame.BLOCKSIZE_MAX256KB, block_linked=False,
                compression_level=-1, store_size=False,
            )
            if len(compressed) < self._size:
                self._sealed = compressed
                self._codec = LZ4

    @property
    def is_sealed(self):
        """True once no record can be added any more."""
        return self._sealed is not None

    def encoded(self, int64_t producer_id, int producer_epoch, int base_sequence):
        """Seal the batch and return it as it is sent."""
        self.seal()
        self.sent = True
        after = _after_crc.pack(
            self._codec, self.count - 1, self._base_timestamp, self._max_timestamp, producer_id,
            producer_epoch, base_sequence, self.count,
        )
        crc = google_crc32c.extend(google_crc32c.value(after), self._sealed)
        length = HEADER_SIZE - BEFORE_LENGTH_BYTES + len(self._sealed)
        return b"".join((_before_crc.pack(0, length, -1, MAGIC, crc), after, self._sealed))

    def tell(self, str topic, int partition, int64_t base_offset, int code):
        """Call all delivery callbacks: stored (code 0), or an ErrorCode."""
        cdef Py_ssize_t index
        for index in range(len(self.deliveries)):
            tell(self.deliveries[index], topic, partition, base_offset + index, code)
        self.deliveries = []

    def give_up(self, str topic, int partition, int code):
        """Call the plain callbacks; a Delivery goes on waiting for the log's answer.

        Whoever passes a Delivery recognises a repetition of its record as long as it waits.
        """
        cdef Py_ssize_t index
        for index in range(len(self.deliveries)):
            delivery = self.deliveries[index]
            if delivery is not None and not isinstance(delivery, Delivery):
                self.deliveries[index] = None
                tell(delivery, topic, partition, -1, code)


cdef int tell(delivery, str topic, int partition, int64_t offset, int code) except -1:
    if delivery is None:
        return 0  # was told that the record timed out
    try:
        if isinstance(delivery, Delivery):
            (<Delivery> delivery).delivered(code)
        elif code:
            delivery(AppendError.of(code), None)
        else:
            delivery(None, (topic, partition, offset))
    except Exception:
        # An error in one callback must not keep the others from being called.
        logger.exception("a callback of a delivery failed")
    return 0


cdef class Partition:
    """The batches that wait for one partition, and its leader (-1: none, or not known)."""

    def __init__(self, str topic, int index):
        self.topic = topic
        self.index = index
        self.batches = deque()
        self.leader = -1
        self.producer_id = -1

    def identify(self, int64_t producer_id, int producer_epoch):
        """Number the following batches from 0, under an id or an epoch not used here before."""
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.next_sequence = 0

    def take(self):
        """Remove and return the oldest batch, to be sent."""
        batch = self.batches.popleft()
        if batch is self._open:
            self._open = None
        return batch

    def put_back(self, RecordBatch batch):
        """Put a batch that was not stored back to the front of the queue."""
        self.batches.appendleft(batch)


cdef class RecordAccumulator:
    """Holds records until they can be sent.

    `on_first()` is called when a record comes and no batch waits. `on_unknown_topic(name)` is
    called for a topic whose number of partitions is unknown; the owner reports it with `placed`.
    """

    def __init__(self, size_t bytes_max, on_first, on_unknown_topic):
        self._topics = {}
        self._unplaced = {}
        self.waiting = {}
        self._bytes_max = bytes_max
        self._on_first = on_first
        self._on_unknown_topic = on_unknown_topic
        #: The reason why nothing can be appended any more, or None.
        self.refusing = None

    cpdef send(self, str topic, bytes value, bytes key, headers, delivery):
        """Queue one record; `delivery` is called when the log has acknowledged or refused it.

        It is called with an AppendError and None, or with None and the record's place. A `value` of
        None is a tombstone: it deletes the key from a compacted topic.

        Raises AppendQueueFull if too many records wait already, AppendError if nothing can be
        appended any more.
        """
        if value is None:
            self.append(topic, NULL, -1, key, headers, delivery)
        else:
            self.append(
                topic, PyBytes_AS_STRING(value), PyBytes_GET_SIZE(value), key, headers, delivery
            )

    cdef int append(
        self, str topic, const char* value, Py_ssize_t value_size, bytes key, headers, delivery
    ) except -1:
        """Queue a record whose value is in memory, without an object (`value_size` -1: none)."""
        cdef list partitions
        cdef bytes encoded
        cdef int64_t timestamp = milliseconds(CLOCK_REALTIME)
        cdef Py_ssize_t size
        # All records of one request have the same headers object, which carries its trace.
        if headers is not None and headers is self._headers:
            encoded = self._encoded_headers
        else:
            encoded = encode_headers(headers)
            self._headers = headers
            self._encoded_headers = encoded
        size = (
            max(value_size, 0) + (0 if key is None else PyBytes_GET_SIZE(key))
            + PyBytes_GET_SIZE(encoded)
        )
        if self.refusing is not None:
            raise AppendError(self.refusing)
        if self.bytes_held + size > self._bytes_max:
            raise AppendQueueFull("the log does not keep up: too many records wait")
        if size > RECORD_BYTES_MAX:
            raise AppendError(f"a record of {size} bytes is too large")
        self.records += 1
        partitions = self._topics.get(topic)
        if partitions is None:
            self.bytes_held += size
            unplaced = self._unplaced.get(topic)
            if unplaced is None:
                unplaced = self._unplaced[topic] = deque()
                self._on_unknown_topic(topic)
            kept = None if value_size < 0 else value[:value_size]
            unplaced.append(
                (milliseconds(CLOCK_MONOTONIC), timestamp, key, kept, encoded, delivery, size)
            )
            return 0
        self._place(
            self._partition(partitions, key), timestamp, key, value, value_size, encoded, delivery
        )
        return 0

    cdef Partition _partition(self, list partitions, bytes key):
        if key is None:
            return partitions[self._keyless % len(partitions)]
        return partitions[partition_of(key, len(partitions))]

    cdef int _place(
        self, Partition partition, int64_t timestamp, bytes key, const char* value,
        Py_ssize_t value_size, bytes headers, object delivery,
    ) except -1:
        cdef RecordBatch batch = partition._open
        cdef bint first = not self.waiting
        if batch is None or batch._size + len(headers) + max(value_size, 0) > BATCH_BYTES_MAX:
            batch = partition._open = RecordBatch()
            partition.batches.append(batch)
            self.waiting[partition] = None
        self.bytes_held += batch.add(timestamp, key, value, value_size, headers, delivery)
        if first:
            self._on_first()
        return 0

    def partitions(self, str topic):
        """Return the known partitions of a topic."""
        return self._topics.get(topic, ())

    @property
    def topics(self):
        """The names of all topics that records were given for."""
        return [*self._topics, *self._unplaced]

    def placed(self, str topic, int count):
        """Set the number of partitions of a topic, which may have grown."""
        cdef list known = self._topics.setdefault(topic, [])
        while len(known) < count:
            known.append(Partition(topic, len(known)))
        if not known:
            del self._topics[topic]
            return
        for _, timestamp, key, value, headers, delivery, size in self._unplaced.pop(topic, ()):
            self.bytes_held -= size
            self._place(
                self._partition(known, key), timestamp, key,
                NULL if value is None else PyBytes_AS_STRING(value),
                -1 if value is None else PyBytes_GET_SIZE(value), headers, delivery,
            )

    def refused(self, str topic, int code):
        """Fail all records that wait for a topic: the log will not provide it."""
        for record in self._unplaced.pop(topic, ()):
            self.bytes_held -= record[6]
            self.records -= 1
            tell(record[5], topic, -1, -1, code)

    @property
    def unplaced(self):
        """True while records wait for the partitions of their topics."""
        return bool(self._unplaced)

    def taken(self, Partition partition):
        """Take the next batch of a partition; it counts as held until it is `done`."""
        batch = partition.take()
        if not partition.batches:
            del self.waiting[partition]
        # Records without a key go to another partition than those of the last request.
        self._keyless += 1
        return batch

    def put_back(self, Partition partition, RecordBatch batch):
        """Queue a batch that is to be sent again."""
        partition.put_back(batch)
        self.waiting[partition] = None

    def done(self, Partition partition, RecordBatch batch, int64_t base_offset, int code):
        """Report that a batch was stored (code 0) or has failed, and release its memory."""
        self.bytes_held -= batch.bytes_held
        self.records -= batch.count
        batch.tell(partition.topic, partition.index, base_offset, code)

    def fail_before(self, int64_t created, int code):
        """Fail everything older than `created`, except what may have been stored.

        That is repeated under its sequence number until the log says what became of it: under
        another number it could be stored twice. Its plain callbacks are called now.

        Returns the partitions where a batch has failed that the log has refused before: no other
        batch may be sent under its sequence number.
        """
        cdef RecordBatch batch, kept
        cdef list refused = []
        for topic in list(self._unplaced):
            unplaced = self._unplaced[topic]
            while unplaced and unplaced[0][0] < created:
                record = unplaced.popleft()
                self.bytes_held -= record[6]
                self.records -= 1
                tell(record[5], topic, -1, -1, code)
            if not unplaced:
                del self._unplaced[topic]
        for partition in list(self.waiting):
            kept = partition.take() if partition.batches[0].attempted else None
            if kept is not None and kept.created < created:
                kept.give_up(partition.topic, partition.index, code)
            while partition.batches and partition.batches[0].created < created:
                batch = partition.take()
                if batch.sent:
                    refused.append(partition)
                self.done(partition, batch, -1, code)
            if kept is not None:
                partition.put_back(kept)
            elif not partition.batches:
                del self.waiting[partition]
        return refused
