"""librdkafka's producer through its C interface.

confluent_kafka's producer creates several Python objects for a record and again for its delivery
report; at thousands of records a second that is most of the cost of a record. This uses the same
library (the one that confluent_kafka has loaded), and takes its reports in batches.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.ref cimport Py_DECREF, Py_INCREF, PyObject
from libc.stdint cimport int32_t, int64_t

import logging
from collections.abc import Mapping

from confluent_kafka import KafkaError, KafkaException, cimpl

logger = logging.getLogger(__name__)

cdef extern from "dlfcn.h" nogil:
    void* dlopen(const char* path, int flags)
    void* dlsym(void* library, const char* name)
    int RTLD_NOW
    int RTLD_NOLOAD

cdef enum:
    # From rdkafka.h, whose values never change.
    PRODUCER = 0
    CONF_OK = 0
    EVENT_DR = 0x1
    EVENT_ERROR = 0x8
    MSG_F_COPY = 0x2
    VTYPE_RKT = 2
    VTYPE_VALUE = 4
    VTYPE_KEY = 5
    VTYPE_OPAQUE = 6
    VTYPE_MSGFLAGS = 7
    VTYPE_HEADER = 9
    ERROR_QUEUE_FULL = -184
    ERROR_INVALID_ARG = -186
    HEADERS_MAX = 64
    TEXT_BYTES = 512

cdef struct Memory:
    const void* start
    size_t size

cdef struct Header:
    const char* name
    const void* value
    Py_ssize_t size

cdef union Argument:
    void* pointer
    int number
    Memory memory
    Header header
    char[64] padding

cdef struct TypedArgument:
    int kind
    Argument argument

cdef struct Message:
    int error
    void* topic
    int32_t partition
    void* value
    size_t value_size
    void* key
    size_t key_size
    int64_t offset
    void* opaque

ctypedef void* (*f_pointer)() noexcept nogil
ctypedef int (*f_conf_set)(void*, const char*, const char*, char*, size_t) noexcept nogil
ctypedef void (*f_conf_set_events)(void*, int) noexcept nogil
ctypedef void* (*f_new)(int, void*, char*, size_t) noexcept nogil
ctypedef void* (*f_of_pointer)(void*) noexcept nogil
ctypedef void* (*f_topic_new)(void*, const char*, void*) noexcept nogil
ctypedef void* (*f_produceva)(void*, const TypedArgument*, size_t) noexcept nogil
ctypedef int (*f_int_of_pointer)(void*) noexcept nogil
ctypedef void (*f_void_of_pointer)(void*) noexcept nogil
ctypedef void* (*f_queue_poll)(void*, int) noexcept nogil
ctypedef const Message* (*f_next_message)(void*) noexcept nogil
ctypedef const char* (*f_text_of_pointer)(void*) noexcept nogil
ctypedef int (*f_fatal_error)(void*, char*, size_t) noexcept nogil

cdef f_pointer conf_new = NULL
cdef f_conf_set conf_set = NULL
cdef f_conf_set_events conf_set_events = NULL
cdef f_void_of_pointer conf_destroy = NULL
cdef f_new new = NULL
cdef f_of_pointer queue_get_main = NULL
cdef f_void_of_pointer queue_destroy = NULL
cdef f_topic_new topic_new = NULL
cdef f_void_of_pointer topic_destroy = NULL
cdef f_text_of_pointer topic_name = NULL
cdef f_produceva produceva = NULL
cdef f_int_of_pointer error_code = NULL
cdef f_void_of_pointer error_destroy = NULL
cdef f_queue_poll queue_poll = NULL
cdef f_int_of_pointer event_type = NULL
cdef f_next_message event_message_next = NULL
cdef f_int_of_pointer event_error = NULL
cdef f_text_of_pointer event_error_string = NULL
cdef f_void_of_pointer event_destroy = NULL
cdef f_int_of_pointer outq_len = NULL
cdef f_void_of_pointer destroy = NULL
cdef f_fatal_error fatal_error = NULL


cdef void* symbol(void* library, bytes name) except NULL:
    cdef void* found = dlsym(library, b"rd_kafka_" + name)
    if found is NULL:
        raise ImportError(f"librdkafka has no rd_kafka_{name.decode()}")
    return found


def _loaded_library():
    """Return the path of the librdkafka that confluent_kafka has loaded."""
    cimpl.libversion()
    with open("/proc/self/maps", encoding="utf-8") as maps:
        for line in maps:
            path = line.rstrip("\n").partition("/")[2]
            name = path.rpartition("/")[2]
            # Not this module, whose name begins likewise.
            if name.startswith("librdkafka") and "cpython" not in name:
                return f"/{path}"
    raise ImportError("confluent_kafka has not loaded librdkafka as a shared library")


cdef int bind() except -1:
    global conf_new, conf_set, conf_set_events, conf_destroy, new, queue_get_main, queue_destroy
    global topic_new, topic_destroy, topic_name, produceva, error_code, error_destroy, queue_poll
    global event_type, event_message_next, event_error, event_error_string, event_destroy
    global outq_len, destroy, fatal_error
    cdef bytes path = _loaded_library().encode()
    cdef void* library = dlopen(path, RTLD_NOW | RTLD_NOLOAD)
    if library is NULL:
        raise ImportError(f"{path.decode()} is not loaded")
    conf_new = <f_pointer> symbol(library, b"conf_new")
    conf_set = <f_conf_set> symbol(library, b"conf_set")
    conf_set_events = <f_conf_set_events> symbol(library, b"conf_set_events")
    conf_destroy = <f_void_of_pointer> symbol(library, b"conf_destroy")
    new = <f_new> symbol(library, b"new")
    queue_get_main = <f_of_pointer> symbol(library, b"queue_get_main")
    queue_destroy = <f_void_of_pointer> symbol(library, b"queue_destroy")
    topic_new = <f_topic_new> symbol(library, b"topic_new")
    topic_destroy = <f_void_of_pointer> symbol(library, b"topic_destroy")
    topic_name = <f_text_of_pointer> symbol(library, b"topic_name")
    produceva = <f_produceva> symbol(library, b"produceva")
    error_code = <f_int_of_pointer> symbol(library, b"error_code")
    error_destroy = <f_void_of_pointer> symbol(library, b"error_destroy")
    queue_poll = <f_queue_poll> symbol(library, b"queue_poll")
    event_type = <f_int_of_pointer> symbol(library, b"event_type")
    event_message_next = <f_next_message> symbol(library, b"event_message_next")
    event_error = <f_int_of_pointer> symbol(library, b"event_error")
    event_error_string = <f_text_of_pointer> symbol(library, b"event_error_string")
    event_destroy = <f_void_of_pointer> symbol(library, b"event_destroy")
    outq_len = <f_int_of_pointer> symbol(library, b"outq_len")
    destroy = <f_void_of_pointer> symbol(library, b"destroy")
    fatal_error = <f_fatal_error> symbol(library, b"fatal_error")
    return 0


bind()


@cython.no_gc
cdef class Delivery:
    cdef int delivered(self, int code) except -1:
        """Called when the log has stored a record (code 0) or librdkafka gave up (its error code).

        This implementation does nothing; subclasses override it.
        """
        return 0


cdef class RecordProducer:
    """A producer that takes records in batches and reports the outcome of each.

    `on_error(code, text)` gets the client's own errors. All methods are called on one thread.
    """

    cdef void* _client
    cdef void* _queue
    cdef dict _topics  # name -> address of librdkafka's handle
    cdef object _on_error
    cdef readonly long long acknowledged  # the number of records that the log has

    def __init__(self, properties: Mapping[str, object], on_error):
        """Raises KafkaException for properties that librdkafka refuses."""
        cdef char[TEXT_BYTES] text
        cdef void* configuration = conf_new()
        self._topics = {}
        self._on_error = on_error
        for name, value in properties.items():
            written = str(value).lower() if isinstance(value, bool) else str(value)
            if conf_set(
                configuration, name.encode(), written.encode(), text, TEXT_BYTES
            ) != CONF_OK:
                conf_destroy(configuration)
                raise KafkaException(
                    KafkaError(KafkaError._INVALID_ARG, text.decode("utf-8", "replace"))
                )
        conf_set_events(configuration, EVENT_DR | EVENT_ERROR)
        self._client = new(PRODUCER, configuration, text, TEXT_BYTES)
        if self._client is NULL:
            conf_destroy(configuration)
            raise KafkaException(
                KafkaError(KafkaError._INVALID_ARG, text.decode("utf-8", "replace"))
            )
        self._queue = queue_get_main(self._client)

    def __len__(self):
        """Return the number of records that librdkafka holds and has not reported on."""
        return outq_len(self._client) if self._client is not NULL else 0

    def __dealloc__(self):
        cdef size_t topic
        if self._client is NULL:
            return
        for topic in self._topics.values():
            topic_destroy(<void*> topic)
        queue_destroy(self._queue)
        # Do not wait for undelivered records: nobody is left to get their reports.
        with nogil:
            destroy(self._client)

    def take(self, gathered):
        """Take records off the front of a deque, as long as there is room.

        Each is a tuple of topic, value, key, headers (a `traceparent`, or a list of pairs) and a
        callback: a Delivery, or a function that takes an error and a position.
        """
        cdef tuple record
        cdef int code
        while gathered:
            record = gathered[0]
            try:
                code = self._produce(record)
            except (KafkaException, TypeError, ValueError):
                # This record must not block those behind it.
                logger.exception("a record cannot be given to librdkafka")
                code = ERROR_INVALID_ARG
            if code == ERROR_QUEUE_FULL:
                return
            gathered.popleft()
            if code:
                report(record[4], code, NULL, -1, -1)

    cdef void* _topic(self, str name) except NULL:
        cdef size_t found
        known = self._topics.get(name)
        if known is not None:
            found = known
            return <void*> found
        found = <size_t> topic_new(self._client, name.encode(), NULL)
        if not found:
            raise KafkaException(KafkaError(KafkaError._INVALID_ARG, f"topic {name!r}"))
        self._topics[name] = found
        return <void*> found

    cdef int _produce(self, tuple record) except? -1:
        cdef TypedArgument[5 + HEADERS_MAX] arguments
        cdef int count = 0
        cdef bytes value = record[1]
        cdef bytes key = record[2]
        cdef bytes header_value
        cdef object headers = record[3]
        cdef object callback = record[4]
        cdef list names = []
        cdef void* error
        cdef int code
        arguments[0].kind = VTYPE_RKT
        arguments[0].argument.pointer = self._topic(record[0])
        arguments[1].kind = VTYPE_MSGFLAGS
        arguments[1].argument.number = MSG_F_COPY
        arguments[2].kind = VTYPE_OPAQUE
        arguments[2].argument.pointer = <void*> callback
        count = 3
        if value is not None:
            arguments[count].kind = VTYPE_VALUE
            arguments[count].argument.memory.start = PyBytes_AS_STRING(value)
            arguments[count].argument.memory.size = PyBytes_GET_SIZE(value)
            count += 1
        if key is not None:
            arguments[count].kind = VTYPE_KEY
            arguments[count].argument.memory.start = PyBytes_AS_STRING(key)
            arguments[count].argument.memory.size = PyBytes_GET_SIZE(key)
            count += 1
        if type(headers) is bytes:
            arguments[count].kind = VTYPE_HEADER
            arguments[count].argument.header.name = b"traceparent"
            arguments[count].argument.header.value = PyBytes_AS_STRING(<bytes> headers)
            arguments[count].argument.header.size = PyBytes_GET_SIZE(<bytes> headers)
            count += 1
        elif headers is not None:
            for name, given in headers[:HEADERS_MAX]:
                encoded = name.encode()
                header_value = given.encode() if isinstance(given, str) else given
                names.append((encoded, header_value))
                arguments[count].kind = VTYPE_HEADER
                arguments[count].argument.header.name = PyBytes_AS_STRING(encoded)
                if header_value is None:
                    arguments[count].argument.header.value = NULL
                    arguments[count].argument.header.size = 0
                else:
                    arguments[count].argument.header.value = PyBytes_AS_STRING(header_value)
                    arguments[count].argument.header.size = PyBytes_GET_SIZE(header_value)
                count += 1
        error = produceva(self._client, arguments, count)
        if error is NULL:
            Py_INCREF(callback)  # until its report
            return 0
        code = error_code(error)
        error_destroy(error)
        return code

    def poll(self):
        """Deliver the reports and client errors that have come."""
        cdef void* event
        cdef const Message* message
        cdef int kind
        while True:
            event = queue_poll(self._queue, 0)
            if event is NULL:
                return
            try:
                kind = event_type(event)
                if kind == EVENT_DR:
                    while True:
                        message = event_message_next(event)
                        if message is NULL:
                            break
                        callback = <object> <PyObject*> message.opaque
                        Py_DECREF(callback)
                        if not message.error:
                            self.acknowledged += 1
                        report(
                            callback,
                            message.error,
                            message.topic,
                            message.partition,
                            message.offset,
                        )
                elif kind == EVENT_ERROR:
                    text = event_error_string(event) or b""
                    self._on_error(event_error(event), text.decode("utf-8", "replace"))
            finally:
                event_destroy(event)

    def fatal(self):
        """Return the reason why this producer can never append again; None while it can."""
        cdef char[TEXT_BYTES] text
        if not fatal_error(self._client, text, TEXT_BYTES):
            return None
        return text.decode("utf-8", "replace")


cdef int report(object callback, int code, void* topic, int32_t partition, int64_t offset) except -1:
    try:
        if isinstance(callback, Delivery):
            (<Delivery> callback).delivered(code)
        elif code:
            callback(KafkaError(code), None)
        else:
            callback(None, (topic_name(topic).decode(), partition, offset))
    except Exception:
        # An error in one callback must not keep the others from being called.
        logger.exception("a callback of a delivery failed")
    return 0
