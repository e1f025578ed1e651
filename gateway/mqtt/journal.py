"""What outlives a gateway process of MQTT: sessions and retained messages, in a compacted topic.

The log is the only store. Every process reads the topic whole when it starts, and goes on reading:
a session that another worker has announced is given up here. Keys are `session`, user and client
identifier, or `retained` and topic, with U+0000 between; a record without a value ends what its key
names (where there are other workers, after one with a value that says who ended it).

What waits for a client is written when the process stops in an orderly way. After a crash the
client gets what the views know: its newest address, and what is retained.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Protocol

import msgspec

from gateway.mqtt.codec import string_is_valid
from gateway.mqtt.packets import Properties
from gateway.mqtt.session import Delivery, Message, Session

logger = logging.getLogger(__name__)

SESSION: Final = "session"
RETAINED: Final = "retained"

_SESSIONS_MAX: Final = 300_000
#: Of what waits for one client, when the process stops.
_WAITING_BYTES_MAX: Final = 256 * 1024
_USER_PROPERTY: Final = 38

SessionKey = tuple[str, str]


class StoredMessage(msgspec.Struct, omit_defaults=True):
    """A message. Properties are those of MQTT 5 by identifier, as MessagePack."""

    topic: str
    payload: bytes
    qos: int = 0
    retain: bool = False
    properties: bytes | None = None
    expires: int | None = None  # ms since 1970
    latest_only: bool = False
    worker: str = ""  # who wrote it, of a retained message


class StoredDelivery(msgspec.Struct, omit_defaults=True):
    """A message on its way to a client; `packet_id` 0: it was not sent yet."""

    message: StoredMessage
    qos: int
    retain: bool = False
    packet_id: int = 0
    released: bool = False
    identifiers: list[int] | None = None


class StoredSubscription(msgspec.Struct, omit_defaults=True):
    """A subscription as it was asked for; what is granted of it is decided again."""

    filter: str
    qos: int = 0
    no_local: bool = False
    retain_as_published: bool = False
    identifier: int = 0


class StoredSession(msgspec.Struct, omit_defaults=True):
    """A session as the log has it."""

    worker: str
    at: int  # of this record, ms since 1970
    expiry_interval_s: int
    device: str | None = None
    admin: bool = False
    connected: bool = False
    subscriptions: list[StoredSubscription] = []
    received: list[int] = []
    waiting: list[StoredDelivery] = []
    next_packet_id: int = 1
    ended: bool = False


class Record(Protocol):
    """The part of confluent_kafka.Message that is read here."""

    def key(self) -> bytes | None: ...
    def value(self) -> bytes | None: ...


class Host(Protocol):
    """Whoever has the live sessions and retained messages: the router."""

    def give_up(self, key: SessionKey) -> None:
        """Another worker has the session now."""

    def take_retained(self, message: Message) -> None:
        """Another worker has published a retained message; an empty one removes it."""


class Journal:
    """Writes changes and remembers what is written.

    `append(key, value)` puts a record into the log; `wall_ms` is Unix time, `clock` the monotonic
    one of sessions (s); `schedule(callback)` calls back soon; `shared` means that other workers may
    take clients over.
    """

    def __init__(
        self,
        worker: str,
        append: Callable[[bytes, bytes | None], None],
        wall_ms: Callable[[], int],
        clock: Callable[[], float],
        schedule: Callable[[Callable[[], None]], object],
        *,
        shared: bool = False,
    ) -> None:
        self.worker = worker
        self.shared = shared
        #: Also sessions that end with their connection: the one way that others hear of them,
        #: unless there is a gateway.mqtt.neighbours.
        self.writes_all = shared
        self.host: Host | None = None
        self.unreadable = 0
        self.failed = 0  # appends
        self.purged = 0  # records that no client could read
        self._append = append
        self._schedule = schedule
        self._scheduled = False
        self._stopped = False
        self._wall_ms = wall_ms
        self._clock = clock
        self._sessions: dict[SessionKey, bytes] = {}
        self._retained: dict[str, bytes] = {}  # until the host has taken them
        self._changed: dict[Session, None] = {}
        self._decoder = msgspec.json.Decoder(StoredSession)
        self._message_decoder = msgspec.json.Decoder(StoredMessage)

    def __len__(self) -> int:
        return len(self._sessions)

    # --- from the log ---------------------------------------------------------------------------

    def on_records(self, records: Sequence[Record]) -> None:
        """Take records of the topic; for LogReader."""
        for record in records:
            kind, _, name = (record.key() or b"").decode("utf-8", "replace").partition("\0")
            try:
                if kind == SESSION:
                    user, _, client_id = name.partition("\0")
                    self._session_read((user, client_id), record.value())
                elif kind == RETAINED:
                    self._retained_read(name, record.value())
            except msgspec.DecodeError:
                self.unreadable += 1

    def _session_read(self, key: SessionKey, value: bytes | None) -> None:
        if value is None:
            if self.host is None:
                self._sessions.pop(key, None)
            return
        session = self._decoder.decode(value)
        if session.worker == self.worker:
            return
        if session.ended:
            self._sessions.pop(key, None)
        else:
            self._remember(key, value)
        if self.host is not None:
            self.host.give_up(key)

    def _retained_read(self, topic: str, value: bytes | None) -> None:
        if self.host is None:
            if value is None:
                self._retained.pop(topic, None)
            else:
                self._message_decoder.decode(value)
                self._retained[topic] = value
            return
        if value is not None and self.shared:
            stored = self._message_decoder.decode(value)
            if stored.worker != self.worker:
                message = self.message(stored)
                if is_sendable(message):
                    self.host.take_retained(message)

    def _remember(self, key: SessionKey, value: bytes) -> None:
        self._sessions.pop(key, None)
        self._sessions[key] = value
        if len(self._sessions) > _SESSIONS_MAX:
            del self._sessions[next(iter(self._sessions))]

    # --- for the router -------------------------------------------------------------------------

    def purge(self) -> None:
        """End sessions of clients that nobody can be any more: MQTT does not allow their names."""
        for key in [key for key in self._sessions if not string_is_valid(key[1])]:
            self.purged += 1
            self.ended(key)

    def stored(self) -> Iterable[tuple[SessionKey, StoredSession]]:
        """All sessions that have not expired."""
        now = self._wall_ms()
        for key, value in list(self._sessions.items()):
            session = self._decoder.decode(value)
            if _alive(session, now):
                yield key, session
            else:
                self.ended(key)

    def take_stored(self, key: SessionKey) -> StoredSession | None:
        """The session of a client that is about to be resumed here."""
        value = self._sessions.get(key)
        if value is None:
            return None
        session = self._decoder.decode(value)
        return session if _alive(session, self._wall_ms()) else None

    def owner_of(self, key: SessionKey) -> str | None:
        """The other worker that has the session of a client, if one has."""
        value = self._sessions.get(key)
        if value is None:
            return None
        worker = self._decoder.decode(value).worker
        return None if worker == self.worker else worker

    def claimed(self, key: SessionKey, value: bytes) -> None:
        """Another worker has handed over a session, with what waits for its client."""
        stored = self._decoder.decode(value)
        stored.worker = self.worker
        value = msgspec.json.encode(stored)
        self._remember(key, value)
        self._append(_key(SESSION, *key), value)

    def hand_over(self, key: SessionKey, session: Session | None) -> bytes | None:
        """The record of a session for the worker that its client has come to now."""
        if session is not None:
            self._changed.pop(session, None)
            return msgspec.json.encode(self._stored_session(session, True))
        # Claimed before, by a client that went before it was connected.
        return self._sessions.get(key) if self.owner_of(key) is None else None

    def stored_retained(self) -> Iterable[Message]:
        """The retained messages that were read before there was a host.

        Those that clients cannot read, of before there was a rule, end here.
        """
        retained, self._retained = self._retained, {}
        for topic, value in retained.items():
            message = self.message(self._message_decoder.decode(value))
            if not is_sendable(message):
                self.purged += 1
                self._append(_key(RETAINED, topic), None)
            elif not message.expired(self._clock()):
                yield message

    def age_s(self, stored: StoredSession) -> float:
        """How long ago it was written."""
        return (self._wall_ms() - stored.at) / 1000

    def changed(self, session: Session) -> bool:
        """Write a session soon, if it is one that is kept, or was; returns whether it is."""
        key = (session.identity.user, session.client_id)
        if not (session.expiry_interval_s or self.writes_all or key in self._sessions):
            return False
        self._changed[session] = None
        if not self._scheduled:
            self._scheduled = True
            self._schedule(self.flush)
        return True

    def ended(self, key: SessionKey) -> None:
        """There is no such session any more."""
        if self._sessions.pop(key, None) is None:
            return
        if self.shared:
            last = StoredSession(self.worker, self._wall_ms(), 0, ended=True)
            self._append(_key(SESSION, *key), msgspec.json.encode(last))
        self._append(_key(SESSION, *key), None)

    def retained_changed(self, message: Message) -> None:
        """Write a retained message, or that there is none any more.

        Positions are not written: who asks for one after a restart gets the newest of the view.
        """
        levels = message.topic.split("/")
        if len(levels) == 3 and levels[0] == "owntracks":
            return
        stored = self.stored_message(message)
        stored.worker = self.worker
        key = _key(RETAINED, message.topic)
        if message.payload or self.shared:
            self._append(key, msgspec.json.encode(stored))
        if not message.payload:
            self._append(key, None)

    def stop(self, sessions: Iterable[Session]) -> None:
        """Write all that are kept, with what waits for them; later changes are the stop's own."""
        for session in sessions:
            self.changed(session)
        self.flush(stopping=True)
        self._stopped = True

    def flush(self, *, stopping: bool = False) -> None:
        """Write what has changed."""
        self._scheduled = False
        changed, self._changed = self._changed, {}
        for session in changed if not self._stopped else ():
            if session.ended:
                continue
            key = (session.identity.user, session.client_id)
            value = msgspec.json.encode(self._stored_session(session, stopping))
            self._remember(key, value)
            self._append(_key(SESSION, *key), value)

    # --- forms ----------------------------------------------------------------------------------

    def _stored_session(self, session: Session, stopping: bool) -> StoredSession:
        return StoredSession(
            worker=self.worker,
            at=self._wall_ms(),
            expiry_interval_s=session.expiry_interval_s,
            device=session.identity.device,
            admin=session.identity.admin,
            connected=session.connection is not None and not stopping,
            subscriptions=[
                StoredSubscription(
                    each.topic_filter,
                    each.qos,
                    each.no_local,
                    each.retain_as_published,
                    each.identifier,
                )
                for each in session.subscriptions.values()
            ],
            received=sorted(session.received or ()),
            waiting=self._waiting(session) if stopping else [],
            next_packet_id=session.next_packet_id,
        )

    def _waiting(self, session: Session) -> list[StoredDelivery]:
        waiting: list[StoredDelivery] = []
        room = _WAITING_BYTES_MAX
        sent = list((session.in_flight or {}).items())
        for packet_id, delivery in [*sent, *((0, each) for each in session.queue or ())]:
            room -= len(delivery.message.payload) + len(delivery.message.topic)
            if room < 0:
                break
            waiting.append(
                StoredDelivery(
                    self.stored_message(delivery.message),
                    delivery.qos,
                    delivery.retain,
                    packet_id,
                    delivery.released,
                    delivery.identifiers,
                )
            )
        return waiting

    def restore_waiting(self, session: Session, stored: StoredSession) -> None:
        """Put what waited for a client back into its session."""
        session.received = set(stored.received) or None
        session.next_packet_id = stored.next_packet_id
        for each in stored.waiting:
            message = self.message(each.message)
            if not is_sendable(message):
                self.purged += 1
                continue
            delivery = Delivery(message, each.qos, each.retain, each.identifiers)
            if each.packet_id:
                delivery.released = each.released
                if session.in_flight is None:
                    session.in_flight = {}
                session.in_flight[each.packet_id] = delivery
            else:
                session.enqueue(delivery)

    def stored_message(self, message: Message) -> StoredMessage:
        """A message as the log has it."""
        expires = None
        if message.expires_at is not None:
            expires = self._wall_ms() + round(1000 * (message.expires_at - self._clock()))
        return StoredMessage(
            message.topic,
            message.payload,
            message.qos,
            message.retain,
            msgspec.msgpack.encode(message.properties) if message.properties else None,
            expires,
            message.latest_only,
        )

    def message(self, stored: StoredMessage) -> Message:
        """The same the other way round."""
        properties: Properties | None = None
        if stored.properties is not None:
            decoded: dict[int, Any] = msgspec.msgpack.decode(stored.properties, type=dict[int, Any])
            properties = {
                name: [tuple(pair) for pair in value] if name == _USER_PROPERTY else value
                for name, value in decoded.items()
            }
        expires_at = None
        if stored.expires is not None:
            expires_at = self._clock() + (stored.expires - self._wall_ms()) / 1000
        return Message(
            stored.topic,
            stored.payload,
            stored.qos,
            stored.retain,
            properties,
            expires_at,
            stored.latest_only,
        )


def _alive(session: StoredSession, now_ms: int) -> bool:
    # Of one that was connected, nobody has written when it ended: it does now.
    if not session.expiry_interval_s:
        return False
    return session.connected or session.at + 1000 * session.expiry_interval_s > now_ms


def _key(*parts: str) -> bytes:
    return "\0".join(parts).encode("utf-8", "surrogatepass")


def is_sendable(message: Message) -> bool:
    """Whether clients can read a message: libmosquitto ends its connection at a control character,
    and earlier versions of the gateway took them.
    """
    if not string_is_valid(message.topic):
        return False
    for value in (message.properties or {}).values():
        texts = (
            [value]
            if isinstance(value, str)
            else [text for pair in value if isinstance(pair, tuple) for text in pair]
            if isinstance(value, list)
            else []
        )
        if not all(map(string_is_valid, texts)):
            return False
    return True
