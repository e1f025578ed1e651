"""The publishes of all clients that wait for the log, and their acknowledgement when it answers.

As long as too many wait, of all clients or of one user, those who have sent them are not read.
"""

cimport cython

from gateway.fixes.receipts cimport Receipt
from gateway.mqtt.packets.decoder cimport Publish
from gateway.mqtt.sessions.hub cimport Hub
from gateway.mqtt.sessions.link cimport Link
from gateway.mqtt.sessions.memory_pool cimport Account

from gateway.mqtt.publishing.completions import AllOf, has_failed

cdef enum:
    PUBLISH_BYTES = 300  # estimated size of a PUBLISH that waits for the log, beside its payload


# No garbage collection: only its receipt refers to it, and only until the log has answered.
@cython.freelist(256)
@cython.no_gc
cdef class PendingPublish:
    """A PUBLISH that waits for the log; called when the log has answered."""

    def __call__(self, completion):
        self.publishes._stored(self, completion)


cdef class WaitingPublishes:
    """The publishes that wait for the log, and the clients that are not read because of them."""

    def __init__(self, Hub router, time, wake):
        """`wake` is called when there is something to send."""
        self._router = router
        self._time = time
        self._wake = wake
        self._stalled = {}
        self._count_max = router.settings.all_publishes_in_flight_max
        self._bytes_max = router.settings.all_publish_bytes_in_flight_max

    def answer_when_stored(
        self, Link connection, Publish packet, int code, list completions, double now
    ):
        """Acknowledge a packet when the log has all records of it."""
        if not completions:
            connection.acknowledge(packet, code, now)
        elif len(completions) == 1:
            self.add(connection, packet, code, completions[0])
        else:
            self.add(connection, packet, code, AllOf(completions))

    cdef int add(self, Link connection, Publish packet, int code, completion) except -1:
        """Acknowledge a packet when the log has answered."""
        cdef PendingPublish pending = PendingPublish.__new__(PendingPublish)
        pending.publishes = self
        pending.connection = connection
        pending.packet = packet
        pending.code = code
        self.count += 1
        self._bytes += len(packet.payload)
        if connection.publishes is not None:
            connection.publishes.hold(len(packet.payload) + PUBLISH_BYTES)
        if isinstance(completion, Receipt):
            (<Receipt> completion).add_done_callback(pending)
        else:
            completion.add_done_callback(pending)
        if self.count >= self._count_max or self._bytes >= self._bytes_max:
            self.is_full = True
        return 0

    cdef int _stored(self, PendingPublish pending, completion) except -1:
        cdef bint failed
        self.count -= 1
        self._bytes -= len(pending.packet.payload)
        if pending.connection.publishes is not None:
            self._give_back(pending.connection.publishes, pending.packet)
        if self.is_full:
            self._relieve()
        if isinstance(completion, Receipt):
            failed = (<Receipt> completion).exception() is not None
        else:
            failed = has_failed(completion)
        if failed:
            self._router.counters["appends_failed"] += 1
            # As it is not acknowledged, the client sends it again on its next connection.
            pending.connection.fail(pending.packet, self._time())
        else:
            pending.connection.acknowledge(pending.packet, pending.code, self._time())
        self._wake()
        return 0

    cdef bint holds_up(self, Link connection) noexcept:
        """Return whether a client is not read: too much of all, or of its user, waits."""
        return self.is_full or is_crowded(connection)

    cdef int remember(self, Link connection) except -1:
        """Note that a client is held up, to read it again when the log has caught up enough."""
        if self.is_full:
            self._stalled[connection] = None
        if is_crowded(connection):
            if connection.publishes.waiting is None:
                connection.publishes.waiting = {}
            connection.publishes.waiting[connection] = None
        return 0

    def forget(self, Link connection):
        """Discard a connection that has ended from those that are held up."""
        self._stalled.pop(connection, None)

    def drain(self):
        """Hold up all clients from now on: the server ends when the log has answered."""
        self.is_draining = self.is_full = True

    cdef int _give_back(self, Account account, Publish packet) except -1:
        """Discount a user's publish, and read clients again that had to wait for that."""
        cdef Link connection
        account.give_back(len(packet.payload) + PUBLISH_BYTES)
        if account.waiting is not None and account.held <= account.pool.each // 2:
            waiting, account.waiting = account.waiting, None
            for connection in waiting:
                connection.change()
        return 0

    cdef int _relieve(self) except -1:
        """Read the clients again that had to wait for the log, if it has caught up enough."""
        cdef Link connection
        if (
            self.is_draining
            or self.count > self._count_max // 2
            or self._bytes > self._bytes_max // 2
        ):
            return 0
        self.is_full = False
        stalled, self._stalled = self._stalled, {}
        for connection in stalled:
            connection.change()
        return 0


cdef inline bint is_crowded(Link connection) noexcept:
    """Return whether the client's user has as many publishes in flight as it may."""
    return connection.publishes is not None and connection.publishes.is_full()
