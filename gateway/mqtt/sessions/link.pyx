"""The part of a client's connection that runs for every message.

Sans-IO: bytes and the time are arguments, and packets collect in the link until the shell takes
them. The class makes no policy: its subclass in Python (`connection`) decides who may connect.
"""

from gateway.mqtt.packets.packet_numbers cimport (
    MESSAGE_EXPIRY_INTERVAL,
    PUBACK,
    PUBCOMP,
    PUBREC,
    PUBREL,
    SUBSCRIPTION_IDENTIFIER,
    TOPIC_ALIAS,
    UNSPECIFIED_ERROR,
)
from gateway.mqtt.packets.decoder cimport Acknowledgement, Decoder, Publish
from gateway.mqtt.packets.encoder cimport encode_puback, encode_publish
from gateway.mqtt.packets.packet_fields cimport is_sendable
from gateway.mqtt.sessions.constants cimport (
    ALIAS_BYTES_MAX,
    LOOK_BYTES,
    NOT_STORED,
    RELEASES_MAX,
    STATE_AUTHENTICATING,
    STATE_AWAITING_CONNECT,
    STATE_CHALLENGED,
    STATE_CLOSED,
    STATE_CONNECTED,
    STEPS_UNBOUNDED,
)
from gateway.mqtt.sessions.hub cimport Hub
from gateway.mqtt.packets.message cimport Message, message_of
from gateway.mqtt.sessions.session cimport Session

from gateway.mqtt.packets.encoder import encode_acknowledgement, encode_pingresp
from gateway.mqtt.packets.packets import PingRequest, ReasonCode, RemoteProtocolError

AWAITING_CONNECT = STATE_AWAITING_CONNECT
AUTHENTICATING = STATE_AUTHENTICATING
CONNECTED = STATE_CONNECTED
CLOSED = STATE_CLOSED
CHALLENGED = STATE_CHALLENGED

#: The greatest Message Expiry Interval (section 3.3.2.3.3), a number of four bytes.
cdef double EXPIRY_MAX_S = 0xFFFFFFFF


cdef class Link:
    """The part of a client's connection that runs for every message.

    It is the base of `gateway.mqtt.sessions.connection.Connection`, which handles the rarer packets
    and has `_handle(packet, now)`, `_challenged(packet)`, `_broken(error)` and `_give_up()`.
    """

    def __init__(self, Hub router, owner, double now):
        self._router = router
        #: The shell's protocol object; not used by this class.
        self.owner = owner
        self._decoder = Decoder(router.settings.connect_bytes_max)
        self._last_received = now
        self.state = STATE_AWAITING_CONNECT
        self.receive_maximum = 0xFFFF
        self.packet_bytes_max = 0xFFFFFFFF  # what the client accepts
        self.blocked = False  # too many PUBLISH await acknowledgement: no packet is handled
        self.looks_left = STEPS_UNBOUNDED
        self.unread = False  # the shell has paused reading from the transport
        self.abort = False  # close without waiting for the last bytes to leave
        self.paused_since = None  # time since which the transport's write buffer is full

    # --- bytes in -------------------------------------------------------------------------------

    cpdef receive_data(self, bytes data, double now):
        """Take received bytes."""
        self._last_received = now
        if self.state != STATE_CLOSED:
            self._decoder.receive_data(data)

    @property
    def buffered_bytes(self):
        """The number of bytes that were received and not yet decoded."""
        return self._decoder.buffered_bytes

    cpdef next_event(self, double now):
        """Return the next packet that the caller has to decide about, or None.

        A Connect is answered with `accept` or `refuse`, a Publish with `acknowledge` or `close`.
        """
        while not self.blocked and self.held is None and not self.under_way and (
            self.state == STATE_CONNECTED
            or self.state == STATE_AWAITING_CONNECT
            or self.state == STATE_CHALLENGED
        ):
            if self.looks_left <= 0:
                return None
            try:
                packet = self._decoder.next_packet()
                if packet is None:
                    return None
                self.looks_left -= 1
                if self.state == STATE_CHALLENGED:
                    if self._challenged(packet):
                        return packet
                elif type(packet) is Publish:
                    self.looks_left -= len((<Publish> packet).payload) // LOOK_BYTES
                    if self._publish_arrived(<Publish> packet, now):
                        return packet
                elif type(packet) is Acknowledgement:
                    self._acknowledged(<Acknowledgement> packet, now)
                elif type(packet) is PingRequest:
                    self.send(encode_pingresp())
                elif self._handle(packet, now):
                    return packet
            except RemoteProtocolError as error:
                self._broken(error)
        return None

    cdef bint _publish_arrived(self, Publish packet, double now) except -1:
        if packet.properties is not None:
            self._resolve_alias(packet)
        if packet.topic.count("/") >= self._router._topic_levels_max:
            raise RemoteProtocolError(ReasonCode.TOPIC_NAME_INVALID, "topic has too many levels")
        if packet.qos == 2 and not self._is_new(packet, now):
            return False
        self._expect_answer(packet)
        return True

    cdef int _expect_answer(self, Publish packet) except -1:
        """Append a packet to those that are acknowledged in order."""
        if self._newest is None:
            self._oldest = packet
        else:
            self._newest.following = packet
        self._newest = packet
        self._unacknowledged += 1
        if self._unacknowledged >= self._router._publishes_in_flight_max:
            self.blocked = True
        return 0

    cdef bint _is_new(self, Publish packet, double now) except -1:
        """Return whether a QoS 2 packet is new; a repetition is answered again.

        The session remembers its identifier from now on: the client may repeat it on its next
        connection, before the log has answered.
        """
        cdef Session session = self.session
        cdef Py_ssize_t limit = (
            self._router._publishes_in_flight_max if self.version == 5 else RELEASES_MAX
        )
        if session.received is not None:
            if packet.packet_id in session.received:
                # It was stored before; only our PUBREC was lost.
                self.send_acknowledgement(PUBREC, packet.packet_id)
                return False
            if len(session.received) >= limit:
                raise RemoteProtocolError(
                    ReasonCode.RECEIVE_MAXIMUM_EXCEEDED, "too many QoS 2 messages not released"
                )
        if session.receiving is None:
            session.receiving = set()
        elif packet.packet_id in session.receiving:
            if not self._brought(packet):
                session._repeat(self, packet, now)
                self._expect_answer(packet)
            return False
        elif len(session.receiving) >= RELEASES_MAX:
            raise RemoteProtocolError(
                ReasonCode.RECEIVE_MAXIMUM_EXCEEDED, "too many QoS 2 messages wait for the log"
            )
        session.receiving.add(packet.packet_id)
        return True

    cdef bint _brought(self, Publish packet):
        """Return whether this connection brought an unanswered QoS 2 packet of this identifier."""
        cdef Publish waiting = self._oldest
        while waiting is not None:
            if waiting.qos == 2 and waiting.packet_id == packet.packet_id:
                return True
            waiting = waiting.following
        return False

    cdef int _resolve_alias(self, Publish packet) except -1:
        alias = packet.properties.pop(TOPIC_ALIAS, None)
        if alias is None:
            return 0
        if alias > self._router.settings.topic_aliases_max:
            raise RemoteProtocolError(ReasonCode.TOPIC_ALIAS_INVALID, "topic alias is too high")
        if self._aliases_in is None:
            self._aliases_in = {}
        if packet.topic:
            self._alias_bytes += len(packet.topic) - len(self._aliases_in.get(alias, ""))
            if self._alias_bytes > ALIAS_BYTES_MAX:
                raise RemoteProtocolError(
                    ReasonCode.QUOTA_EXCEEDED, "topics of aliases are too long together"
                )
            self._aliases_in[alias] = packet.topic
        elif alias in self._aliases_in:
            packet.topic = self._aliases_in[alias]
        else:
            raise RemoteProtocolError(ReasonCode.PROTOCOL_ERROR, "topic alias without a topic")
        return 0

    cdef int _acknowledged(self, Acknowledgement packet, double now) except -1:
        if packet.packet_type == PUBREL:
            known = self.session.release(packet.packet_id)
            code = 0 if known else ReasonCode.PACKET_IDENTIFIER_NOT_FOUND
            self.send_acknowledgement(PUBCOMP, packet.packet_id, code)
            return 0
        answer = self.session.acknowledged(
            packet.packet_type, packet.packet_id, packet.reason_code, now
        )
        if answer is not None:
            self.send_acknowledgement(answer[0], packet.packet_id, answer[1])
        return 0

    # --- decisions of the caller ----------------------------------------------------------------

    cpdef acknowledge(self, Publish packet, int reason_code, double now):
        """Answer a PUBLISH: it is stored or, with a code other than success, not passed on.

        Acknowledgements are sent in the order of the packets (section 4.6), and stored messages go
        to subscribers in that order.
        """
        cdef Publish first
        packet.reason_code = reason_code
        # All leading packets that the log has answered, also if the connection is over.
        while self._oldest is not None and self._oldest.reason_code >= 0:
            first = self._oldest
            self._oldest = first.following
            first.following = None
            if self._oldest is None:
                self._newest = None
            self._unacknowledged -= 1
            self._answer(first, now)
        if self.blocked and self._unacknowledged <= self._router._publishes_in_flight_max // 2:
            self.blocked = False
            self.change()

    cpdef fail(self, Publish packet, double now):
        """End the connection without acknowledging a PUBLISH that the log did not store.

        The client sends it again on its next connection, where it is handled as new.
        """
        self._give_up()
        self.acknowledge(packet, NOT_STORED, now)

    cdef int _answer(self, Publish packet, double now) except -1:
        cdef int code = packet.reason_code
        cdef Session session = self.session
        cdef list found
        if packet.qos == 1 and code != NOT_STORED:
            if code and self.version == 5:
                self.send_acknowledgement(PUBACK, packet.packet_id, code)
            else:
                self.send(encode_puback(packet.packet_id))
        elif packet.qos == 2:
            if not packet.repetition:
                # Recorded also if the client has gone: it will repeat the packet.
                session._taken(
                    packet,
                    code != NOT_STORED and not (code >= UNSPECIFIED_ERROR and self.version == 5),
                    now,
                )
            elif code == NOT_STORED:
                self._give_up()
            if code != NOT_STORED:
                self.send_acknowledgement(PUBREC, packet.packet_id, code)
            if packet.repetition:
                return 0
        if code == 0:
            found = self._router.subscriptions.match(packet.topic)
            # Most publishes of devices are for the log alone and need no Message object.
            if found or packet.retain or self._router.elsewhere.wants(packet.topic):
                self._router.publish_to(
                    found,
                    message_of(
                        packet.topic,
                        packet.payload,
                        packet.qos,
                        packet.retain,
                        packet.properties,
                        now,
                    ),
                    session,
                    now,
                )
        return 0

    # --- bytes out ------------------------------------------------------------------------------

    @property
    def writable(self):
        """Return whether messages may be sent; answers to the client's packets always may."""
        return self._writable()

    cdef bint _writable(self):
        return (
            self.state == STATE_CONNECTED
            and self.paused_since is None
            and self.outgoing_bytes < self._router._outgoing_bytes_max
        )

    def pause_writing(self, double now):
        """Stop sending messages: the transport's write buffer is full."""
        self.paused_since = now
        self._router.timers.schedule(self, now + self._router.settings.stalled_reader_timeout_s)

    def resume_writing(self, double now):
        """Send messages again: the transport's write buffer has room."""
        self.paused_since = None
        self._last_received = now
        if self.keep_alive_s:
            self._router.timers.schedule(self, now + 1.5 * self.keep_alive_s)
        if self.session is not None and self.state == STATE_CONNECTED:
            self.session.pump(now)

    cpdef send(self, bytes data):
        """Queue bytes for the client."""
        if self.state == STATE_CLOSED:
            return
        if self._outgoing is None:
            self._outgoing = data
        elif type(self._outgoing) is list:
            (<list> self._outgoing).append(data)
        else:
            self._outgoing = [self._outgoing, data]
        self.outgoing_bytes += len(data)
        if not self._announced:
            self.change()

    cpdef change(self):
        """Have the shell handle this connection at the end of the loop's turn."""
        if not self._announced:
            self._announced = True
            self._router.changed.append(self)

    def has_gone(self):
        """Return whether the client has closed its connection; it may not be read now."""
        return self.owner is not None and self.owner.has_gone()

    def begin(self, work):
        """Do work for the client in several turns; the client is not read until it is done."""
        self.under_way += 1
        self._router.begin(self._until_done(work), self.turn)

    def _until_done(self, work):
        try:
            yield from work
        finally:
            self.done()

    cpdef done(self):
        """Note that work of several turns is done, and read the client again after the last."""
        self.under_way -= 1
        if not self.under_way:
            self.change()

    cdef int go_on(self) except -1:
        """Send more of what waits in the next turn of the loop."""
        self.more = True
        self.change()
        return 0

    cpdef bytes take_outgoing(self, double now):
        """Return the bytes to send now; the caller has removed this from `router.changed`."""
        cdef object outgoing = self._outgoing
        cdef bint full = self.outgoing_bytes >= self._router._outgoing_bytes_max
        self._announced = False
        self._outgoing = None
        self.outgoing_bytes = 0
        if (full or self.more) and self.session is not None:
            self.more = False
            if self.session.connection is self:
                self.session.pump(now)
        if outgoing is None:
            return b""
        return b"".join(<list> outgoing) if type(outgoing) is list else <bytes> outgoing

    cpdef send_acknowledgement(self, int packet_type, int packet_id, int reason_code=0):
        """Send PUBACK, PUBREC, PUBREL or PUBCOMP."""
        self.send(encode_acknowledgement(packet_type, self.version, packet_id, reason_code))

    cdef bint send_publish(
        self, Message message, int qos, bint retain, bint dup, int packet_id, list identifiers,
        double now,
    ) except -1:
        """Send a message; return False if it is dropped.

        It is dropped if it exceeds the client's Maximum Packet Size, if its topic is not valid, or
        if it cannot be encoded: the client gets the others.
        """
        cdef bytes data
        cdef Py_ssize_t aliases = 0 if self._aliases_out is None else len(self._aliases_out)
        if not is_sendable(message.topic):
            # The topic of a device from before names were checked: clients would disconnect.
            self._router.counters["deliveries_dropped"] += 1
            return False
        try:
            data = self._encode(message, qos, retain, dup, packet_id, identifiers, now)
        except Exception as error:
            self._router.left_out.tell(message.topic, error)
            data = None
        if data is None or len(data) > self.packet_bytes_max:
            if self._aliases_out is not None and len(self._aliases_out) > aliases:
                # The client never learns what this alias stands for.
                self._aliases_out.pop(message.topic, None)
            self._router.counters["deliveries_dropped"] += 1
            return False
        self.send(data)
        return True

    cdef bytes _encode(
        self, Message message, int qos, bint retain, bint dup, int packet_id, list identifiers,
        double now,
    ):
        cdef str topic = message.topic
        cdef dict properties = None
        cdef double left_s
        if self.version == 5:
            properties = dict(message.properties) if message.properties else {}
            if identifiers:
                properties[SUBSCRIPTION_IDENTIFIER] = identifiers
            if message.expires_at is not None:
                left_s = message.expires_at - now
                properties[MESSAGE_EXPIRY_INTERVAL] = round(min(max(left_s, 0), EXPIRY_MAX_S))
            if self.topic_aliases_max:
                topic = self._use_alias(topic, properties)
        return encode_publish(
            self.version, topic, message.payload, qos, retain, dup, packet_id, properties
        )

    cdef str _use_alias(self, str topic, dict properties):
        if self._aliases_out is None:
            self._aliases_out = {}
        alias = self._aliases_out.get(topic)
        if alias is not None:
            properties[TOPIC_ALIAS] = alias
            return ""
        if len(self._aliases_out) < self.topic_aliases_max:
            alias = self._aliases_out[topic] = len(self._aliases_out) + 1
            properties[TOPIC_ALIAS] = alias
        return topic
