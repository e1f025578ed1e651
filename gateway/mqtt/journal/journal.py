"""The journal: keeps sessions and retained messages in a compacted topic, across restarts.

The log is the only store. Each process reads the whole topic when it starts and keeps reading it:
a session that another worker has announced is given up here. A key consists of `session`, the login
(`user`, or `user/device` for a token of one device) and the client identifier, or of `retained` and
a topic, separated by U+0000. A record without a value ends the session or message of its key; with
several workers it follows a record that names the worker which ended it.

An orderly stop writes all messages that wait for clients. Those that do not fit into the record of
their session precede it in records of their own, whose keys end with a number. After a crash a
client gets what the views know: its newest address, and retained messages.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from gateway.fixes import erasure_reader
from gateway.mqtt.journal.epochs import Epochs
from gateway.mqtt.journal.journal_codec import JournalCodec
from gateway.mqtt.journal.seats import Seat
from gateway.mqtt.journal.stored import (
    WAITING_INLINE_BYTES,
    LastRecord,
    SessionKey,
    SessionOwnership,
    StoredDelivery,
    StoredMessage,
    StoredPart,
    StoredSession,
    is_alive,
    is_sendable,
    parts_of,
    session_key,
    size_of,
    user_of,
)
from gateway.mqtt.journal.waiting import StoredWaiting, Waiting
from gateway.mqtt.left_out import LeftOut
from gateway.mqtt.packets.message import Message
from gateway.mqtt.packets.packet_fields import string_is_valid
from gateway.mqtt.publishing.position_times import is_position, is_position_topic
from gateway.mqtt.rights.delivery_rights import Untold
from waylog.history.erasures import Erasures
from waylog.malformed import MALFORMED
from waylog.sealing.sealing import owner_of_mqtt_topic

if TYPE_CHECKING:
    from gateway.mqtt.sessions.session import Session

logger = logging.getLogger(__name__)

SESSION: Final = "session"
RETAINED: Final = "retained"

#: Sessions of all workers that are remembered.
SESSIONS_MAX: Final = 300_000
#: Sessions that ended here and that other workers may still consider live.
ENDED_MAX: Final = 10_000
#: Sessions that one turn of the event loop writes.
_WRITTEN_A_TURN: Final = 200

#: Bytes of the longest record that is decoded within the turn that connects its client.
_READ_AT_ONCE_BYTES: Final = 8 * 1024


class Record(Protocol):
    """The part of confluent_kafka.Message that the journal uses."""

    def key(self) -> bytes | None: ...
    def value(self) -> bytes | None: ...
    def timestamp(self) -> tuple[int, int]: ...


class Host(Protocol):
    """The owner of the live sessions and retained messages: the router."""

    def untold(self, session: Session) -> Untold:
        """Return what a session is still to receive of its friends' messages."""

    def live(self, key: SessionKey) -> Session | None:
        """Return the session of a client that is live here, connected or not."""

    def give_up(self, key: SessionKey) -> None:
        """Remove a session that another worker has now."""

    def take_retained(self, message: Message) -> None:
        """Store a retained message that another worker has published; an empty one removes it."""

    def forget_device(self, device: str) -> None:
        """Remove the retained and queued messages of an erased device."""


class Journal:
    """Writes changes of sessions and retained messages, and remembers what the log holds.

    `append(key, value)` appends a record to the log. `wall_ms` is Unix time, `clock` the monotonic
    time of sessions (s). `schedule(callback)` calls back soon. `shared` means that other workers
    may take over clients; `seat` is this worker's seat among them.
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
        seat: Seat | None = None,
    ) -> None:
        self.worker = worker
        self.shared = shared
        self._seat = seat
        #: Write sessions that end with their connection, too: only so do other workers learn of
        #: them, unless there is a gateway.mqtt.workers.worker_peers.
        self.writes_all = shared
        self.host: Host | None = None
        #: Appends the records of an orderly stop, which may be more than the log takes at once.
        self.on_stop: Callable[[Iterator[LastRecord]], Awaitable[None]] | None = None
        self.unreadable = 0
        self.erasures = Erasures()
        self._append = append
        self._schedule = schedule
        self._scheduled = False
        self._stopped = False
        self._wall_ms = wall_ms
        self._clock = clock
        self.epochs = Epochs(wall_ms, clock)
        self._sessions: OrderedDict[SessionKey, bytes] = OrderedDict()  # the oldest record first
        self._ended: OrderedDict[SessionKey, int] = OrderedDict()  # epochs of ended sessions
        # Retained messages until the host takes them: value, and when it was written (Unix ms).
        self._retained: dict[str, tuple[bytes, int]] = {}
        self._parts_written: dict[SessionKey, int] = {}
        self._changed: dict[Session, None] = {}
        self._decoder = msgspec.json.Decoder(StoredSession)
        self._standing_decoder = msgspec.json.Decoder(SessionOwnership)
        self._message_decoder = msgspec.json.Decoder(StoredMessage)
        self._handed_over_decoder = msgspec.msgpack.Decoder(StoredSession)
        self._forms = JournalCodec(worker, wall_ms, clock)
        self._waiting = StoredWaiting(self._forms)
        self._left_out = LeftOut()
        self._purged = 0

    @property
    def purged(self) -> int:
        """The number of sessions and messages removed because no client could read them."""
        return self._purged + self._waiting.purged

    def __len__(self) -> int:
        return len(self._sessions)

    # --- from the log ---------------------------------------------------------------------------

    def on_records(self, records: Sequence[Record]) -> None:
        """Take records of topic `mqtt-state`; called by BatchReader."""
        for record in records:
            kind, _, name = (record.key() or b"").decode("utf-8", "replace").partition("\0")
            try:
                if kind == SESSION:
                    user, _, client_id = name.partition("\0")
                    client_id, _, part = client_id.partition("\0")
                    if part:
                        self._part_read((user, client_id), int(part), record.value())
                    else:
                        self._session_read((user, client_id), record.value())
                elif kind == RETAINED:
                    self._retained_read(name, record.value(), record.timestamp()[1])
            except MALFORMED:
                self.unreadable += 1

    def on_erasures(self, records: Sequence[erasure_reader.Record]) -> None:
        """Take records of topic `erasure`; called by ErasureReader."""
        for record in records:
            erasure = self.erasures.take(record.value())
            if erasure is not None and self.host is not None:
                self.host.forget_device(erasure.device)

    def _session_read(self, key: SessionKey, value: bytes | None) -> None:
        if value is None:
            if self.host is None:
                self._sessions.pop(key, None)
                self._waiting.forget(key)
            return
        session = self._decoder.decode(value)
        self.epochs.heard(session.epoch + session.ended)
        if session.worker == self.worker:
            return
        # Workers hand sessions over faster than the log tells of it: its record may be outdated.
        live = None if self.host is None else self.host.live(key)
        # A worker that takes over a session gives it a higher epoch than it has here.
        if live is not None and session.epoch <= live.epoch:
            self._overwrite(key, session, live.epoch, live)
            return
        if session.epoch < self._epoch_of(key):
            if self.owner_of(key) is None:
                self._write_claimed(key, self._decoder.decode(self._sessions[key]))
            return
        if session.epoch < (ended := self._ended.get(key, 0)):
            self._overwrite(key, session, ended, None)
            return
        if session.ended:
            self._sessions.pop(key, None)
        else:
            self._remember(key, value)
        if not session.parts:
            self._waiting.forget(key)
        if self.host is not None:
            self.host.give_up(key)

    def _overwrite(
        self, key: SessionKey, older: StoredSession, epoch: int, live: Session | None
    ) -> None:
        """Repair the last record of a client: an outdated record follows the current one.

        Another worker has written it before it knew of the session here.
        """
        if older.epoch == epoch or (live is not None and self.changed(live)) or older.ended:
            return
        self._append_end(key, epoch)

    def _part_read(self, key: SessionKey, number: int, value: bytes | None) -> None:
        if value is not None:
            self._waiting.add(key, number, value)
            self._parts_written[key] = max(self._parts_written.get(key, 0), number + 1)

    def _retained_read(self, topic: str, value: bytes | None, written_ms: int) -> None:
        if self.host is None:
            if value is None:
                self._retained.pop(topic, None)
            else:
                self._message_decoder.decode(value)
                self._retained[topic] = value, written_ms
            return
        if value is not None and self.shared:
            stored = self._message_decoder.decode(value)
            if stored.worker != self.worker:
                message = self._retained_message(stored, written_ms)
                if message is not None and is_sendable(message):
                    self.host.take_retained(message)

    def _retained_message(self, stored: StoredMessage, written_ms: int) -> Message | None:
        """Return a message as a live one; None if what another program has written is none."""
        try:
            return self._forms.message(stored, written_ms)
        except Exception as error:
            self._left_out.tell(stored.topic, error)
            return None

    def _remember(self, key: SessionKey, value: bytes) -> None:
        self._sessions[key] = value
        self._sessions.move_to_end(key)
        if len(self._sessions) > SESSIONS_MAX:
            oldest, _ = self._sessions.popitem(last=False)
            self._waiting.forget(oldest)

    # --- for the router -------------------------------------------------------------------------

    def purge(self) -> None:
        """End sessions whose client identifiers MQTT no longer allows: no client can use them."""
        for key in [key for key in self._sessions if not string_is_valid(key[1])]:
            self._purged += 1
            self.ended(key)

    def separate_devices(self) -> None:
        """Give sessions of devices' tokens keys of their own; called once, before `stored`.

        Earlier versions kept them under the user's name. Each worker renames what it has read; the
        one that keeps a session for its client also does so in the log.
        """
        for key, value in list(self._sessions.items()):
            standing = self._standing_decoder.decode(value)
            if standing.device is None or user_of(key) != key[0]:
                continue
            named = f"{key[0]}/{standing.device}", key[1]
            del self._sessions[key]
            keeps = self._keeps(named, standing)
            if named in self._sessions:  # renamed before, and used since
                self._waiting.forget(key)
            else:
                self._remember(named, value)
                self._waiting.rename(key, named)
                if keeps:
                    self._write_claimed(named, self._decoder.decode(value))
            if keeps:
                self._append(_key(SESSION, *key), None)
                self._end_parts(key)

    def _keeps(self, key: SessionKey, standing: SessionOwnership) -> bool:
        """Return whether this worker keeps a stored session while its client is away."""
        if self._seat is None:
            return not self.shared
        return self._seat.keeps(key, standing.worker)

    def stored(self) -> Iterable[tuple[SessionKey, StoredSession]]:
        """Yield the unexpired sessions that this worker keeps while their clients are away."""
        now = self._wall_ms()
        for key, value in list(self._sessions.items()):
            if not self._keeps(key, self._standing_decoder.decode(value)):
                continue
            session = self._decoder.decode(value)
            if is_alive(session, now):
                yield key, session
            else:
                self.ended(key)

    def take_stored(self, key: SessionKey) -> StoredSession | None:
        """Return the unexpired session of a client that is about to be resumed here."""
        value = self._sessions.get(key)
        if value is None:
            return None
        session = self._decoder.decode(value)
        return session if is_alive(session, self._wall_ms()) else None

    def prepare(self, key: SessionKey) -> Iterator[None]:
        """Decode a long queue step by step before its session is resumed here.

        The caller then calls `unprepare`, whether the client was connected or not.
        """
        value = self._sessions.get(key)
        if value is not None and (len(value) > _READ_AT_ONCE_BYTES or key in self._waiting):
            yield from self._waiting.prepare(key, self._decoder.decode(value))

    def unprepare(self, key: SessionKey) -> None:
        """Discard what `prepare` has decoded and the session has not taken."""
        self._waiting.unprepare(key)

    def take_waiting(self, key: SessionKey, stored: StoredSession) -> Iterator[Waiting]:
        """Yield the messages that wait for a session that is resumed now, and remove them here.

        Messages of erased devices are left out.
        """
        for each, message in self._waiting.take(key, stored):
            if not self.erasures.covers(owner_of_mqtt_topic(message.topic), stored.at):
                yield each, message

    def owner_of(self, key: SessionKey) -> str | None:
        """Return the name of the other worker that has the session of a client, if one has."""
        standing = self._standing(key)
        return None if standing is None or standing.worker == self.worker else standing.worker

    def knows(self, key: SessionKey) -> bool:
        """Return whether there is a record of a session, written by any worker."""
        return key in self._sessions

    def next_epoch(self, key: SessionKey) -> int:
        """Return an epoch for a session that begins or resumes here, above all known ones."""
        return self.epochs.after(self._epoch_of(key))

    def came_elsewhere(self, key: SessionKey, epoch: int) -> None:
        """Drop the stored session of a client that has connected to another worker at `epoch`."""
        standing = self._standing(key)
        if standing is not None and standing.worker == self.worker and standing.epoch < epoch:
            del self._sessions[key]
            self._waiting.forget(key)

    def _epoch_of(self, key: SessionKey) -> int:
        standing = self._standing(key)
        return 0 if standing is None else standing.epoch

    def _standing(self, key: SessionKey) -> SessionOwnership | None:
        value = self._sessions.get(key)
        return None if value is None else self._standing_decoder.decode(value)

    def claimed(self, key: SessionKey, value: bytes, epoch: int = 0, served: int = 0) -> None:
        """Store a session, with its waiting messages, that another worker has handed over.

        `value` may also be the end of a session that the log has not told of yet. It was claimed at
        `epoch`: a session that has begun elsewhere since then is newer. If the client was connected
        elsewhere at `served`, after its last connection with this session, the session is over.
        """
        stored = self._handed_over_decoder.decode(value)
        if stored.ended:
            if stored.epoch >= self._epoch_of(key):
                self.ended(key)
            return
        if stored.epoch < served:
            return
        stored.worker = self.worker
        stored.epoch = max(stored.epoch + 1, epoch)
        self.epochs.heard(stored.epoch)
        # The queue would be too long for one record; only an orderly stop writes all of it.
        waiting, stored.waiting = stored.waiting, []
        stored.parts = self._waiting.replace(key, self.worker, stored.at, waiting)
        self._remember(key, msgspec.json.encode(stored))
        self._write_claimed(key, stored)

    def _write_claimed(self, key: SessionKey, stored: StoredSession) -> None:
        stored.parts = 0  # only an orderly stop writes the parts
        self._append(_key(SESSION, *key), msgspec.json.encode(stored))

    def announcement(self, session: Session) -> bytes:
        """Return a session without its waiting messages, as MessagePack."""
        return msgspec.msgpack.encode(self._forms.stored_session(session, []))

    def announced(self, value: bytes) -> StoredSession:
        """Decode the result of `announcement`."""
        return self._handed_over_decoder.decode(value)

    def hand_over(self, key: SessionKey, session: Session | None, claimer: str) -> bytes | None:
        """Return the session of a client that has come to another worker, as MessagePack.

        From now on the session counts as that worker's. For a session that has ended here the
        result is its last record; None if nothing is known of it.
        """
        if session is not None:
            self._changed.pop(session, None)
            if not self._is_kept(session):
                return msgspec.msgpack.encode(self._last(session.epoch))
            stored = self._whole(session)
        else:
            # Claimed earlier for a client that disconnected before its session was resumed.
            value = self._sessions.get(key)
            if value is None:
                ended = self._ended.get(key)
                return None if ended is None else msgspec.msgpack.encode(self._last(ended))
            stored = self._decoder.decode(value)
            if stored.worker != self.worker:
                return None
            stored.waiting = list(self._waiting.of(key, stored))
            stored.parts = 0
        record = msgspec.msgpack.encode(stored)
        self._waiting.forget(key)
        stored.worker, stored.waiting = claimer, []
        self._remember(key, msgspec.json.encode(stored))
        return record

    def stored_retained(self) -> Iterable[Message]:
        """Yield the retained messages that were read before there was a host.

        Messages with topics or properties that clients cannot read, accepted by earlier versions,
        are removed from the log.
        """
        retained, self._retained = self._retained, {}
        for topic, (value, written_ms) in retained.items():
            if self.erasures.covers(owner_of_mqtt_topic(topic), written_ms):
                continue
            message = self._retained_message(self._message_decoder.decode(value), written_ms)
            if message is None:
                continue
            if not is_sendable(message):
                self._purged += 1
                self._append(_key(RETAINED, topic), None)
            elif not message.expired(self._clock()):
                yield message

    def age_s(self, stored: StoredSession) -> float:
        """Return the seconds since a session was written; 0 if the clock was set back since."""
        return max(0, self._wall_ms() - stored.at) / 1000

    def changed(self, session: Session) -> bool:
        """Schedule the writing of a session; return False if it is not one that is kept."""
        if not self._is_kept(session):
            return False
        self._changed[session] = None
        if not self._scheduled:
            self._scheduled = True
            self._schedule(self.flush)
        return True

    def _is_kept(self, session: Session) -> bool:
        key = session_key(session.identity, session.client_id)
        return bool(session.expiry_interval_s or self.writes_all or key in self._sessions)

    def ended(self, key: SessionKey, epoch: int = 0) -> None:
        """Write the end of a session; `epoch` is its epoch if it was live."""
        value = self._sessions.pop(key, None)
        self._waiting.forget(key)
        if value is not None:
            epoch = max(epoch, self._standing_decoder.decode(value).epoch)
        if self.shared and epoch:
            self._ended[key] = epoch
            self._ended.move_to_end(key)
            if len(self._ended) > ENDED_MAX:
                self._ended.popitem(last=False)
        # The session is forgotten from here on, and the client's next one needs a higher epoch.
        self.epochs.heard(epoch)
        if value is None:
            return
        self._append_end(key, epoch)
        self._end_parts(key)

    def _append_end(self, key: SessionKey, epoch: int) -> None:
        if self.shared:
            self._append(_key(SESSION, *key), msgspec.json.encode(self._last(epoch)))
        self._append(_key(SESSION, *key), None)

    def _last(self, epoch: int) -> StoredSession:
        """Return the record that ends a session of this epoch."""
        return StoredSession(self.worker, self._wall_ms(), 0, ended=True, epoch=epoch)

    def _end_parts(self, key: SessionKey) -> None:
        for number in range(self._parts_written.pop(key, 0)):
            self._append(_key(SESSION, *key, str(number)), None)

    def retained_changed(self, message: Message) -> None:
        """Write a retained message, or its removal.

        Positions are not written: other workers, and this one after a restart, have the newest one
        of the views. What else a client retains in their place is: all workers have to know it.
        """
        if is_position_topic(message.topic) and message.payload and is_position(message.payload):
            return
        stored = self._forms.stored_message(message)
        stored.worker = self.worker
        stored.owner = message.owner
        key = _key(RETAINED, message.topic)
        if message.payload or self.shared:
            self._append(key, msgspec.json.encode(stored))
        if not message.payload:
            self._append(key, None)

    def last_records(self, sessions: Iterable[Session]) -> Iterator[LastRecord]:
        """Yield the records of an orderly stop: all kept sessions with their waiting messages.

        Nothing else is written from now on. Each session is read when its turn comes; its own
        record follows those with its waiting messages.
        """
        self._stopped = True
        for session in list(sessions):
            if session.ended or not self._is_kept(session):
                continue
            try:
                records = list(self._last_records_of(session))
            except Exception:
                logger.exception(
                    "a session of %r cannot be written; the others are", session.identity.user
                )
                continue
            yield from records

    def _last_records_of(self, session: Session) -> Iterator[LastRecord]:
        key = session_key(session.identity, session.client_id)
        stored = self._whole(session)
        parts: list[list[StoredDelivery]] = []
        if sum(map(size_of, stored.waiting)) > WAITING_INLINE_BYTES:
            parts, stored.waiting = list(parts_of(stored.waiting)), []
        stored.connected = False
        stored.parts = len(parts)
        for number, part in enumerate(parts):
            value = msgspec.msgpack.encode(StoredPart(self.worker, stored.at, part))
            yield LastRecord(_key(SESSION, *key, str(number)), value, len(part), False)
        for number in range(len(parts), self._parts_written.get(key, 0)):
            yield LastRecord(_key(SESSION, *key, str(number)), None, 0, False)
        value = msgspec.json.encode(stored)
        yield LastRecord(_key(SESSION, *key), value, len(stored.waiting), True)

    def _whole(self, session: Session) -> StoredSession:
        """Return the record of a session with all messages that wait for its client."""
        untold = Untold([], False) if self.host is None else self.host.untold(session)
        stored = self._forms.stored_session(session, self._forms.waiting(session, untold.held))
        stored.missed = untold.missed
        backlog = session.backlog or {}
        stored.awaited = [each for each, (of, _) in backlog.items() if of.awaits_retained]
        return stored

    async def stop(self, sessions: Iterable[Session]) -> None:
        """Write all sessions; `on_stop`, if set, also waits until the log has them."""
        self._changed.clear()
        records = self.last_records(sessions)
        if self.on_stop is not None:
            await self.on_stop(records)
            return
        for record in records:
            self._append(record.key, record.value)

    def flush(self) -> None:
        """Write changed sessions, a batch now and the rest in the next turns of the loop."""
        self._scheduled = False
        changed = list(islice(self._changed, _WRITTEN_A_TURN)) if not self._stopped else []
        for session in changed:
            del self._changed[session]
        if self._changed and changed:
            self._scheduled = True
            self._schedule(self.flush)
        for session in changed:
            if session.ended:
                continue
            key = session_key(session.identity, session.client_id)
            value = msgspec.json.encode(self._forms.stored_session(session, []))
            self._remember(key, value)
            self._append(_key(SESSION, *key), value)
            self._end_parts(key)


def _key(*parts: str) -> bytes:
    return "\0".join(parts).encode("utf-8", "surrogatepass")
