"""The keys of sealed values, as topic `value-key` stores them.

A thread follows the topic. A reader that meets an unknown key waits until the thread has reached
the present end of the topic: a key is in the log before the first value that it seals, so a key
that is still missing then has been destroyed.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from waylog.config import ConfigError
from waylog.kafka.clients import LogUnreachable, consumer_config, ensure_topics, producer_config
from waylog.kafka.errors import not_stored_text
from waylog.kafka.librdkafka_producer import LibrdkafkaProducer
from waylog.kafka.ranges.topic_reader import read_topic
from waylog.kafka.topics import VALUE_KEY, VALUE_KEY_TOPIC
from waylog.malformed import MALFORMED
from waylog.process.log_throttle import LogThrottle, since_last_line
from waylog.process.threads import Rounds, start_thread
from waylog.sealing.sealing import (
    is_device,
    is_sealed,
    is_sealed_topic,
    key_id_of,
    owner_of_record,
)
from waylog.sealing.value_encryption import (
    NotAuthentic,
    ValueKey,
    created_ms,
    owner_of,
    record_key,
    seal,
    unseal,
    unwrap,
    wrap,
)

logger = logging.getLogger(__name__)

_SILENCE_MAX_S: Final = 60.0
_GONE_MAX: Final = 100_000
#: Poll interval; a value with an unknown key waits for about half of it.
_POLL_S: Final = 0.05
_PAUSE_S: Final = 1.0
_PARTITION: Final = TopicPartition(VALUE_KEY, 0)
#: After this time the next record closes a segment of the topic, so that it can be compacted.
_SEGMENT_S: Final = int(VALUE_KEY_TOPIC.config["segment.ms"]) / 1000


class SealedRecord(Protocol):
    """What the records of both kinds of clients have by which their values are opened."""

    def topic(self) -> str | None: ...
    def partition(self) -> int | None: ...
    def offset(self) -> int | None: ...
    def key(self) -> bytes | None: ...
    def value(self) -> bytes | None: ...
    def set_value(self, value: Any, /) -> object: ...


_Record = TypeVar("_Record", bound=SealedRecord)


class KeyRing:
    """All keys in the log; may be used by several threads."""

    def __init__(self, bootstrap_servers: str, master: bytes) -> None:
        """Raises LogUnreachable."""
        self.master = master
        self._bootstrap_servers = bootstrap_servers
        self._making = threading.Lock()
        self._producer: LibrdkafkaProducer | None = None
        self._secrets: dict[bytes, bytes] = {}
        self._newest: dict[str, bytes] = {}  # owner -> id
        self._gone: set[bytes] = set()
        self._untaken: list[Message] = []
        self._position = 0
        # Questions of `catch_up` are numbered. `_end` is the end offset that answers those up to
        # number `_end_for`.
        self._asked = self._answered = self._end_for = 0
        self._end: int | None = None
        # Whether some key was wrapped with our master key, and the error of one that was not.
        self._has_own = False
        self._foreign: ConfigError | None = None
        self._left_out = LogThrottle()
        self._moved = threading.Condition()
        self._stopping = threading.Event()
        ensure_topics(bootstrap_servers, [VALUE_KEY_TOPIC])
        self._consumer = Consumer(
            consumer_config(
                bootstrap_servers,
                "waylog-keys",
                "waylog-keys",
                enable_partition_eof=True,
                fetch_wait_max_ms=500,
                queued_max_messages_kbytes=1024,
            )
        )
        self._consumer.assign([TopicPartition(VALUE_KEY, 0, 0)])
        self._thread = start_thread(self._follow, "value-keys", may_end=self._stopping.is_set)

    def close(self) -> None:
        """Stop following the topic."""
        self._stopping.set()
        self._thread.join(5.0)

    def newest_of(self, owner: str) -> ValueKey | None:
        """Return the key that seals an owner's new values, if there is one."""
        key_id = self._newest.get(owner)
        secret = None if key_id is None else self._secrets.get(key_id)
        return None if key_id is None or secret is None else ValueKey(owner, key_id, secret)

    def add(self, key: ValueKey) -> None:
        """Add a key that the log has just acknowledged."""
        with self._moved:
            self._secrets[key.key_id] = key.secret
            self._newest.setdefault(key.owner, key.key_id)

    def seal_value(self, topic: str, value: bytes, record: bytes | None) -> bytes:
        """Return the value sealed for a topic; unchanged for a topic that is not sealed.

        Waits for the log if the owner has no key yet. Raises LogUnreachable, ConfigError.
        """
        if not is_sealed_topic(topic):
            return value
        owner = owner_of_record(topic, record)
        return seal(value, self.newest_of(owner) or self._made_for(owner), record)

    def _made_for(self, owner: str) -> ValueKey:
        with self._making:
            self.catch_up()
            found = self.newest_of(owner)
            if found is not None:
                return found
            key = ValueKey.new(owner)
            if self._producer is None:
                self._producer = LibrdkafkaProducer(
                    producer_config(self._bootstrap_servers, "waylog-keys")
                )
            record = wrap(key, self.master, time.time_ns() // 1_000_000)
            _produce(self._producer, [(record_key(key), record)])
            self.add(key)
            return key

    def open_value(
        self, value: bytes, record: bytes | None, patience_s: float = _SILENCE_MAX_S
    ) -> bytes | None:
        """Decrypt a sealed value; return other values unchanged, None if the key was destroyed.

        Raises NotAuthentic, ConfigError for a wrong master key, and LogUnreachable if the log does
        not tell within `patience_s` whether it has an unknown key.
        """
        if not is_sealed(value):
            return value
        key_id = key_id_of(value)
        secret = self._secrets.get(key_id)
        if secret is None:
            if key_id in self._gone:
                return None
            self.catch_up(patience_s)
            secret = self._secrets.get(key_id)
            if secret is None:
                if len(self._gone) >= _GONE_MAX:
                    self._gone.clear()
                self._gone.add(key_id)
                return None
        return unseal(value, secret, record)

    def open_messages(
        self, messages: Sequence[_Record], patience_s: float = _SILENCE_MAX_S
    ) -> list[_Record]:
        """Return messages with plain values, without those whose key was destroyed.

        A message that was tampered with stays sealed, so that no decoder accepts it. Raises as
        `open_value` does, except NotAuthentic.
        """
        opened = []
        for message in messages:
            value = message.value()
            if value is not None and is_sealed(value):
                try:
                    plain = self.open_value(value, message.key(), patience_s)
                except NotAuthentic:
                    logger.warning(
                        "%s-%s offset %s is not authentic",
                        message.topic(),
                        message.partition(),
                        message.offset(),
                    )
                else:
                    if plain is None:
                        continue
                    message.set_value(plain)
            opened.append(message)
        return opened

    def catch_up(self, patience_s: float = _SILENCE_MAX_S) -> None:
        """Wait until all present keys of the log are known; raises LogUnreachable, ConfigError.

        ConfigError if all of them are wrapped with another master key. A single one that is has
        come from another program.
        """
        deadline = time.monotonic() + patience_s
        with self._moved:
            self._asked += 1
            number = self._asked
            while self._answered < number:
                if time.monotonic() > deadline or self._stopping.is_set():
                    raise LogUnreachable(f"topic {VALUE_KEY} did not answer for {patience_s:.0f} s")
                self._moved.wait(0.5)
            if self._foreign is not None and not self._has_own:
                raise self._foreign

    def _follow(self) -> None:
        rounds = Rounds(f"taking keys of {VALUE_KEY}")
        try:
            while not self._stopping.is_set():
                if not rounds.once(self._follow_once):
                    self._stopping.wait(_PAUSE_S)
        finally:
            self._consumer.close()

    def _follow_once(self) -> None:
        first = None if self._untaken else self._consumer.poll(_POLL_S)
        if first is not None:
            self._untaken = [first]
            self._untaken += self._consumer.consume(5000, timeout=0)
        if self._untaken:
            # What could not be taken does not come again from the consumer, and a key that is not
            # known counts as destroyed.
            self._take(self._untaken)
            self._untaken = []
        if self._answered < self._asked:
            self._answer()

    def _answer(self) -> None:
        """Answer the open questions if the topic has been read to the end that they wait for.

        Runs in this thread, because a consumer that polls answers no other thread.
        """
        asked = self._asked
        if self._end is None:
            try:
                self._end = self._consumer.get_watermark_offsets(_PARTITION, timeout=2.0)[1]
                self._end_for = asked
            except KafkaException as error:
                logger.debug("the end of %s is not known yet: %s", VALUE_KEY, error)
                return
        if self._position >= self._end:
            with self._moved:
                self._answered, self._end = self._end_for, None
                self._moved.notify_all()

    def _take(self, messages: Sequence[Message]) -> None:
        with self._moved:
            for message in messages:
                error, offset = message.error(), message.offset() or 0
                if error is None:
                    self._take_record(message)
                    self._position = max(self._position, offset + 1)
                elif error.code() == KafkaError._PARTITION_EOF:
                    # Compaction leaves gaps in the offsets, also at the end.
                    self._position = max(self._position, offset)
            self._moved.notify_all()

    def _take_record(self, message: Message) -> None:
        record, value = message.key() or b"", message.value()
        if value is None:
            try:
                key_id = bytes.fromhex(record.rpartition(b"\n")[2].decode("ascii"))
            except ValueError:
                return
            self._secrets.pop(key_id, None)
            owner = owner_of(record)
            if self._newest.get(owner) == key_id:
                del self._newest[owner]
            return
        try:
            key = unwrap(value, self.master)
        except ConfigError as error:  # before ValueError, which it is
            self._foreign = error
            self._leave_out(message, "it is wrapped with another master key")
            return
        except MALFORMED:
            self._leave_out(message, "it is no key of ours")
            return
        self._has_own = True
        self._secrets[key.key_id] = key.secret
        self._newest[key.owner] = key.key_id

    def _leave_out(self, message: Message, why: str) -> None:
        unsaid = self._left_out.count(time.monotonic())
        if unsaid is not None:
            more = since_last_line(unsaid)
            logger.warning("%s offset %s is left out: %s%s", VALUE_KEY, message.offset(), why, more)


class DestroyedKeys(NamedTuple):
    """The outcome of `destroy_keys`."""

    keys: int
    #: The time since which all values of the devices among the owners were sealed; None without
    #: devices.
    since_ms: int | None
    gone: bool  # whether compaction has already removed the keys from the log


def destroy_keys(
    bootstrap_servers: str, owners: Sequence[str], patience_s: float = 0.0
) -> DestroyedKeys:
    """Make values sealed for some owners unreadable, in the log, its replicas and its backups.

    Needs no master key. Waits up to `patience_s` until the log has compacted the topic; until then
    the wrapped keys are still in its files, but our readers do not use them. Raises LogUnreachable.
    """
    wanted = set(owners)
    found = {key: value for key, value in _read(bootstrap_servers) if owner_of(key) in wanted}
    live = {key: value for key, value in found.items() if value is not None}
    if not live:
        return DestroyedKeys(0, None, True)
    producer = LibrdkafkaProducer(producer_config(bootstrap_servers, "waylog-erase"))
    _produce(producer, [(key, None) for key in live])
    # A record after them closes their segment: only closed segments are compacted.
    time.sleep(1.5 * _SEGMENT_S)
    _produce(producer, [(b"-", None)])
    deadline = time.monotonic() + patience_s
    while not (gone := not any(key in live and value for key, value in _read(bootstrap_servers))):
        if time.monotonic() > deadline:
            break
        time.sleep(1.0)
    since: dict[str, int] = {}
    for key, value in live.items():
        owner = owner_of(key)
        if not is_device(owner):
            continue
        try:
            created = created_ms(value)
        except MALFORMED:
            continue  # no key of ours, so it has sealed nothing
        since[owner] = min(created, since.get(owner, created))
    return DestroyedKeys(len(live), max(since.values(), default=None), gone)


def _produce(producer: LibrdkafkaProducer, records: Sequence[tuple[bytes, bytes | None]]) -> None:
    failures: list[str] = []

    def on_delivery(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failures.append(not_stored_text(error, VALUE_KEY))

    for key, value in records:
        try:
            producer.produce(VALUE_KEY, value, key, on_delivery=on_delivery)
        except KafkaException as error:
            raise LogUnreachable(f"keys: {not_stored_text(error, VALUE_KEY)}") from error
    waiting = producer.finish(30.0, VALUE_KEY)
    if waiting or failures:
        raise LogUnreachable(f"keys: {waiting or failures[0]}")


def _read(bootstrap_servers: str) -> Iterator[tuple[bytes, bytes | None]]:
    """Yield the keys and values of all records of topic `value-key`; raises LogUnreachable."""
    for message in read_topic(bootstrap_servers, VALUE_KEY):
        yield message.key() or b"", message.value()
