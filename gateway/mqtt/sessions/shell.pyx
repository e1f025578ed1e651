"""The part between the event loop and the state machines that runs for every message.

The event loop calls a `MqttProtocol` for each socket; `Shell` is the base of the server that they
belong to. No connection has a task, timer or buffer of its own, and what a turn of the loop sends
to one client leaves in one write at its end.
"""

import logging

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE

from gateway.fixes.known_fixes cimport FixKey
from gateway.mqtt.packets.decoder cimport Publish
from gateway.fixes.fix_route cimport FORM_POSITION, wall_clock_ms
from gateway.mqtt.publishing.topic_route cimport TopicRoute
from gateway.mqtt.sessions.constants cimport STATE_AUTHENTICATING, STATE_CLOSED
from gateway.limits.precise_clock cimport clock_s
from gateway.mqtt.sessions.hub cimport Hub
from gateway.mqtt.sessions.link cimport Link
from gateway.mqtt.sessions.session cimport Session
from gateway.mqtt.sessions.user_turns cimport UserQueues, UserTurn, UserTurns
from gateway.mqtt.sessions.waiting_publishes cimport WaitingPublishes
from gateway.fixes.receipts cimport FixAppender, Receipt

from gateway.users.admission import QuotaExceeded
from gateway.formats import owntracks, positions
from gateway.mqtt.sessions.accounts import ChargedBytes
from gateway.mqtt.sessions.held_publishes import HeldPublishes
from waylog.network.peer_gone import has_gone
from gateway.bodies.parsing import READ_HERE_COMMAS_MAX as COMMAS
from waylog.observability.interceptors import RECORDS_PER_S, count_calls

cdef enum:
    WRITE_BUFFER_BYTES = 64 * 1024
    STEPS_A_TURN = 256   # queued messages that all clients together are sent in a turn
    UNCOUNTED_BYTES = 4 * 1024  # of an incomplete packet: most arrive in one piece
    LOOKS = 32  # packets of one client that are handled between two looks at the clock

#: Seconds of one turn of the loop for what a client sends before it has signed in.
cdef double STRANGER_TURN_S = 0.001
#: Seconds of one turn of the loop for the packets of all users that had to wait.
cdef double WAITING_S = 0.003
#: Seconds at the end of a turn for what waits: connections, wills, work.
cdef double FLUSH_S = 0.0005
cdef double SAMPLE_S = 1 / RECORDS_PER_S
cdef str SUBMIT_LOCATION = "Submitter.submit_location"
cdef str POSITIONS = positions.SOURCE
cdef str OWNTRACKS = owntracks.SOURCE


logger = logging.getLogger(__name__)

# An item of JSON takes at least two bytes.
cdef Py_ssize_t READ_HERE_BYTES = 2 * COMMAS


cdef class Shell:
    """The base of `gateway.mqtt.listening.listener.MqttServer`; it handles publishes and flushing.

    The subclass has `authenticate(connection, packet)`, `publish_wills(until)`,
    `read_elsewhere(connection, packet, route)`, `end(protocol, now)`, and `opened`, `closed` and
    `beyond_share` for protocols.
    """

    def __init__(self, Hub router, ingest, loop):
        self.router = router
        router.in_turns = True
        self.ingest = ingest
        if isinstance(ingest.submitter, FixAppender):
            self._appender = ingest.submitter
        self.time = loop.time
        self._turns = UserTurns()
        self._unflushed = UserQueues()
        self._call_soon = loop.call_soon
        #: What waits for the log, and what is beyond a quota.
        self.publishes = WaitingPublishes(router, loop.time, self.wake)
        self.held = HeldPublishes(router.counters, self.publishes, loop)

    # --- PUBLISH --------------------------------------------------------------------------------

    cdef int _publish(self, Link connection, Publish packet, double now) except -1:
        """Store a message; it is acknowledged when the log has it."""
        cdef TopicRoute route = connection.route
        cdef Receipt receipt
        cdef list completions
        self.router.counters["publishes"] += 1
        if route is None or route.topic != packet.topic:
            route = self.ingest.route(connection.session.identity, packet.topic)
            connection.route = None if route.for_one_message else route
        if (
            len(packet.payload) > READ_HERE_BYTES
            and self.read_elsewhere(connection, packet, route)
        ):
            return 0
        if self._appender is not None:
            if not connection.number:
                self._publishers += 1
                connection.number = self._publishers
            self._appender.sender = connection.number
        if self._appender is not None and packet.dup and self._appender.doubts_repeats:
            self._appender.repeated = True
        elif self._appender is not None and route.form:
            receipt = self._append(route, packet.payload, now)
            if receipt is not None:
                self.publishes.add(connection, packet, 0, receipt)
                return 0
        # This takes long, compared with an ordinary fix: look at the clock afterwards.
        connection.looks_left = 0
        try:
            code, completions = self.ingest.submit(
                connection.session.identity,
                route,
                packet.payload,
                packet.properties,
                retain=packet.retain,
            )
        except QuotaExceeded as error:
            self.held.beyond_quota(connection, packet, error.retry_after_s, now)
            return 0
        finally:
            if self._appender is not None:
                self._appender.repeated = False
        self.publishes.answer_when_stored(connection, packet, code, completions, now)
        return 0

    cdef Receipt _append(self, TopicRoute route, bytes payload, double now):
        """Append an ordinary fix directly; return None if it has to be parsed in full.

        As many fixes as are recorded go the other way, so that the interceptors of
        Submitter.submit_location see them. The calls of all fixes are counted there.
        """
        cdef FixKey key
        cdef bytes record
        cdef Receipt receipt
        if now - self._sampled >= SAMPLE_S:
            self._sampled = now
            count_calls(self._appender.telemetry, SUBMIT_LOCATION, self._unrecorded)
            self._unrecorded = 0
            return None
        record = route.record(payload, wall_clock_ms(), &key)
        if record is None:
            return None
        receipt = self._appender.known(&key)
        if receipt is None and self._appender.is_in_doubt(&key):
            return None
        self._unrecorded += 1
        if receipt is not None:
            return receipt
        return self._appender.append_new(
            key.key,
            route._device,
            PyBytes_AS_STRING(record),
            PyBytes_GET_SIZE(record),
            POSITIONS if route.form == FORM_POSITION else OWNTRACKS,
            None,
        )

    # --- effects --------------------------------------------------------------------------------

    cpdef wake(self):
        """Schedule a flush at the end of this turn of the loop, if there is anything to do."""
        if not self._flush_scheduled and (
            self._was_read
            or self.router.changed
            or self.router.wills
            or not self.router.work.is_empty()
            or not self._unflushed.is_empty()
            or self._turns.has_waiting()
        ):
            self._flush_scheduled = True
            self._call_soon(self.flush)

    def flush(self):
        """Carry out what connections, wills and work require since the last turn of the loop."""
        cdef double now = self.time()
        cdef double until = now + FLUSH_S
        self._flush_scheduled = self._was_read = False
        self._turns.begin_turn()
        self.router.steps_left = STEPS_A_TURN
        self._flush_changed(now)
        if self.router.wills:
            self.publish_wills(until)
        if not self.router.work.is_empty():
            self._work(until)
        if self._turns.has_waiting():
            self._read_waiting()
        self.wake()

    cdef int _flush_changed(self, double now) except -1:
        """Flush connections that have changed; of those that have to wait, each user's in turn."""
        cdef Link connection
        cdef list changed = self.router.changed
        cdef double until = clock_s() + FLUSH_S
        cdef Py_ssize_t done = 0
        self.router.changed = []
        if self._unflushed.is_empty():
            for connection in changed:
                if done and clock_s() > until:
                    break
                flush_link(connection, now)
                done += 1
        for connection in changed[done:]:
            self._unflushed.push(connection.turn, connection)
        while not self._unflushed.is_empty() and (not done or clock_s() <= until):
            flush_link(self._unflushed.pop(), now)
            done += 1
        return 0

    cdef int _read_waiting(self) except -1:
        """Handle packets of the clients whose users had no time left in an earlier turn.

        If all have had their time again, they share what is left.
        """
        cdef MqttProtocol protocol
        cdef double until = clock_s() + WAITING_S
        while clock_s() < until and self._turns.has_waiting():
            protocol = self._turns.next_waiting()
            if protocol is None:
                self._turns.begin_turn()
                continue
            protocol._queued = False
            protocol.process(self.time())
        return 0

    cdef int _work(self, double until) except -1:
        """Run the iterators of the router round robin until time `until`, at least one step."""
        cdef UserQueues work = self.router.work
        while not work.is_empty():
            user, each = work.pop()
            try:
                next(each)
                work.push(user, (user, each))
            except StopIteration:
                pass
            except Exception:
                logger.exception("what takes several turns could not be done")
            if self.time() > until:
                break
        return 0


cdef class MqttProtocol:
    """Moves bytes between one socket and its Connection; has the methods of asyncio.Protocol."""

    def __init__(self, Shell server, connection_class):
        self.server = server
        self.connection = connection_class(server.router, self, server.time())

    def connection_made(self, transport):
        self.transport = transport
        transport.set_write_buffer_limits(WRITE_BUFFER_BYTES)
        if self.address is None:
            peer = transport.get_extra_info("peername")
            self.address = str(peer[0]) if isinstance(peer, tuple) and peer else ""
        self.server.opened(self)

    def data_received(self, bytes data):
        cdef double now = self.server.time()
        cdef Link connection = self.connection
        cdef Py_ssize_t left
        connection.receive_data(data, now)
        self.process(now)
        # While reading is paused, the bytes that are left may be whole packets.
        left = 0 if connection.unread else connection._decoder.left()
        if left > UNCOUNTED_BYTES or self._incomplete is not None:
            self._count_incomplete(left)

    def eof_received(self):
        return None

    def connection_lost(self, exc):
        self.transport = None
        self._count_incomplete(0)
        self._count_unread(0)
        self.server.held.give_up(self.connection)
        self.connection.lost(self.server.time())
        (<Link> self.connection).owner = None  # breaks a reference cycle
        self.server.closed(self)

    def pause_writing(self):
        self.connection.pause_writing(self.server.time())
        self._adapt_reading()
        self._count_unread(self.transport.get_write_buffer_size())

    def resume_writing(self):
        cdef double now = self.server.time()
        self._count_unread(0)
        self.connection.resume_writing(now)
        self.process(now)

    cpdef process(self, double now):
        """Handle the packets that have arrived, as far as limits allow."""
        cdef Link connection = self.connection
        if not self._queued:
            self._read(now)
            if self.waits and connection.turn is not None:
                self._queued = True
                self.server._turns.wait(connection.turn, self)
            elif self.waits:
                connection.change()
        self._adapt_reading()
        self.server._was_read = True
        self.server.wake()

    cdef int _read(self, double now) except -1:
        """Handle packets until others have to be served before the rest: `waits` tells."""
        cdef Shell server = self.server
        cdef WaitingPublishes publishes = server.publishes
        cdef Link connection = self.connection
        cdef UserTurn turn = connection.turn
        cdef double began = clock_s()
        cdef double left = STRANGER_TURN_S if turn is None else server._turns.left_s(turn)
        self.waits = left <= 0
        connection.looks_left = LOOKS
        while not self.waits and not publishes.holds_up(connection):
            event = None if connection.held is None else server.held.take(connection)
            if event is None:
                event = connection.next_event(now)
            if type(event) is Publish:
                server._publish(connection, <Publish> event, now)
            elif event is not None:
                server.authenticate(connection, event)
            elif connection.looks_left > 0:
                break
            if connection.looks_left <= 0:
                connection.looks_left = LOOKS
                self.waits = clock_s() - began > left
        if turn is not None:
            server._turns.spend(turn, clock_s() - began)
        return 0

    def has_gone(self):
        """Return whether the client has closed its connection."""
        return has_gone(self.transport)

    def has_been_gone_too_long(self, double now):
        """Return whether the client had closed its connection some time ago, and still has."""
        if not has_gone(self.transport):
            return False
        if self._gone_since is None:
            self._gone_since = now
        return now - self._gone_since >= self.server.router.settings.gone_client_timeout_s

    def flush(self, double now):
        """Write what the connection has collected since the last turn of the loop."""
        cdef Link connection = self.connection
        cdef bytes data = connection.take_outgoing(now)
        if self.transport is None:
            return
        if data:
            self.transport.write(data)
        if connection.closing is not None or connection.abort:
            self.server.end(self, now)
        elif connection.unread:
            self.process(now)

    cdef int _adapt_reading(self) except -1:
        cdef Link connection = self.connection
        cdef WaitingPublishes publishes = self.server.publishes
        cdef bint held_up = publishes.holds_up(connection)
        cdef bint pause = (
            held_up
            or self.waits
            or connection.under_way
            or connection.blocked
            or connection.held is not None
            or connection.paused_since is not None
            or connection.state == STATE_AUTHENTICATING
        )
        if pause == connection.unread and not held_up:
            return 0
        if (
            self.transport is None
            or self.transport.is_closing()
            or connection.state == STATE_CLOSED
        ):
            return 0
        if held_up:
            publishes.remember(connection)
        if pause == connection.unread:
            return 0
        connection.unread = pause
        if pause:
            self.transport.pause_reading()
        else:
            self.transport.resume_reading()
        return 0

    cdef str _party(self):
        cdef Session session = (<Link> self.connection).session
        if session is None:
            return self.server.party_of_unknown(self.transport, self.address or "")
        return session.identity.user

    cdef int _count_incomplete(self, Py_ssize_t left) except -1:
        """Charge the bytes of an incomplete packet to the client's user or address."""
        if left <= UNCOUNTED_BYTES or (<Link> self.connection).state == STATE_CLOSED:
            if self._incomplete is not None:
                self._incomplete.clear()
                self._incomplete = None
            return 0
        if self._incomplete is None:
            self._incomplete = ChargedBytes(self.server.router.accounts.incomplete)
        if not self._incomplete.replace(left, self._party()):
            self._incomplete = None
            self.server.beyond_share(self, "incomplete", "too much of yours has not come whole")
        return 0

    cdef int _count_unread(self, Py_ssize_t size) except -1:
        """Charge the bytes that were written but not read to the client's user or address."""
        if not size:
            if self._unread is not None:
                self._unread.clear()
                self._unread = None
            return 0
        if self._unread is None:
            self._unread = ChargedBytes(self.server.router.accounts.unread)
        if not self._unread.replace(size, self._party()):
            self._unread = None
            self.server.beyond_share(self, "unread", "too much was written that you do not read")
        return 0

    def peer(self):
        """Return the client's address, and its port if known, for log lines."""
        name = None if self.transport is None else self.transport.get_extra_info("peername")
        port = f":{name[1]}" if name and name[0] == self.address else ""
        return f"{self.address}{port}" if self.address else "?"


cdef int flush_link(Link connection, double now) except -1:
    cdef MqttProtocol protocol = connection.owner
    if protocol is None:
        return 0
    try:
        protocol.flush(now)
    except Exception:
        # The connections behind this one are still to be flushed.
        logger.exception("a client cannot be sent what is for it, and is disconnected")
        if protocol.transport is not None:
            protocol.transport.abort()
    return 0
