"""The keys of sealed values, as topic `value-key` has them.

A thread follows the topic. Whoever meets a value whose key is not known yet waits until the thread
is where the topic ends now: a key is in the log before the first value that it seals, so a key that
is still missing then has been destroyed.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import msgspec
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka import Producer as LibrdkafkaProducer

from waylog.config import ConfigError
from waylog.kafka.clients import LogUnreachable, consumer_config, ensure_topics, producer_config
from waylog.kafka.topic_reader import read_topic
from waylog.kafka.topics import VALUE_KEY, VALUE_KEY_TOPIC
from waylog.sealing.sealing import is_device, is_sealed, is_sealed_topic, owner_of_record
from waylog.sealing.value_encryption import (
    NotAuthentic,
    ValueKey,
    created_ms,
    key_id_of,
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
#: A value with a key that nobody here has met waits about half as long.
_POLL_S: Final = 0.05
_PAUSE_S: Final = 1.0
_PARTITION: Final = TopicPartition(VALUE_KEY, 0)
#: After this a segment of the topic is closed by the next record, and can be compacted.
_SEGMENT_S: Final = int(VALUE_KEY_TOPIC.config["segment.ms"]) / 1000


class KeyRing:
    """All keys that there are; may be used by several threads."""

    def __init__(self, bootstrap_servers: str, master: bytes) -> None:
        """Raises LogUnreachable."""
        self.master = master
        self._bootstrap_servers = bootstrap_servers
        self._making = threading.Lock()
        self._producer: LibrdkafkaProducer | None = None
        self._secrets: dict[bytes, bytes] = {}
        self._newest: dict[str, bytes] = {}  # owner -> id
        self._gone: set[bytes] = set()
        self._position = 0
        # Questions are numbered; the end of the topic that the oldest open one has to wait for.
        self._asked = self._answered = self._end_for = 0
        self._end: int | None = None
        self._failed: ConfigError | None = None
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
        self._thread = threading.Thread(target=self._follow, name="value-keys", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Leave the log."""
        self._stopping.set()
        self._thread.join(5.0)

    def newest_of(self, owner: str) -> ValueKey | None:
        """The key that seals values of an owner from now on, if there is one."""
        key_id = self._newest.get(owner)
        secret = None if key_id is None else self._secrets.get(key_id)
        return None if key_id is None or secret is None else ValueKey(owner, key_id, secret)

    def add(self, key: ValueKey) -> None:
        """A key that the log has acknowledged just now."""
        with self._moved:
            self._secrets[key.key_id] = key.secret
            self._newest.setdefault(key.owner, key.key_id)

    def seal_value(self, topic: str, value: bytes, record: bytes | None) -> bytes:
        """The value sealed for a topic; as it is for one that is not sealed.

        Waits for the log where the owner has no key yet. Raises LogUnreachable, ConfigError.
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

    def open_value(self, value: bytes, record: bytes | None) -> bytes | None:
        """What was sealed, any other value as it is, None when its key has been destroyed.

        Raises NotAuthentic, LogUnreachable, and ConfigError for a wrong master key.
        """
        if not is_sealed(value):
            return value
        key_id = key_id_of(value)
        secret = self._secrets.get(key_id)
        if secret is None:
            if key_id in self._gone:
                return None
            self.catch_up()
            secret = self._secrets.get(key_id)
            if secret is None:
                if len(self._gone) >= _GONE_MAX:
                    self._gone.clear()
                self._gone.add(key_id)
                return None
        return unseal(value, secret, record)

    def open_messages(self, messages: Sequence[Message]) -> list[Message]:
        """Messages with plain values, without those whose key has been destroyed.

        One that was tampered with stays sealed: nobody takes it for a message. Raises as
        `open_value`.
        """
        opened = []
        for message in messages:
            value = message.value()
            if value is not None and is_sealed(value):
                try:
                    plain = self.open_value(value, message.key())
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

    def catch_up(self) -> None:
        """Wait for all keys that the log has now; raises LogUnreachable, ConfigError."""
        deadline = time.monotonic() + _SILENCE_MAX_S
        with self._moved:
            self._asked += 1
            number = self._asked
            while self._answered < number:
                if self._failed is not None:
                    raise self._failed
                if time.monotonic() > deadline or self._stopping.is_set():
                    raise LogUnreachable(
                        f"topic {VALUE_KEY} did not answer for {_SILENCE_MAX_S:.0f} s"
                    )
                self._moved.wait(0.5)
            if self._failed is not None:
                raise self._failed

    def _follow(self) -> None:
        try:
            while not self._stopping.is_set():
                try:
                    self._follow_once()
                except Exception:
                    # Whoever waits for a key would wait for ever.
                    logger.exception("keys of %s could not be taken", VALUE_KEY)
                    self._stopping.wait(_PAUSE_S)
        finally:
            self._consumer.close()

    def _follow_once(self) -> None:
        first = self._consumer.poll(_POLL_S)
        if first is not None:
            self._take([first, *self._consumer.consume(5000, timeout=0)])
        if self._answered < self._asked:
            self._answer()

    def _answer(self) -> None:
        """Say that all is known that was in the log when somebody asked; later, if it is not yet.

        In this thread: a consumer that polls answers no other thread.
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
                    # Compaction leaves holes, also at the end.
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
        except msgspec.DecodeError:
            logger.warning("%s offset %s is no key of ours", VALUE_KEY, message.offset())
            return
        except ConfigError as error:
            self._failed = error
            return
        self._secrets[key.key_id] = key.secret
        self._newest[key.owner] = key.key_id


class DestroyedKeys(NamedTuple):
    """What `destroy_keys` did."""

    keys: int
    #: Since when all values of the devices among the owners were sealed; None without such.
    since_ms: int | None
    gone: bool  # whether the log has already lost them for good


def destroy_keys(
    bootstrap_servers: str, owners: Sequence[str], patience_s: float = 0.0
) -> DestroyedKeys:
    """Make unreadable what was sealed for some owners, in the log, its replicas and its backups.

    Needs no master key. Waits up to `patience_s` until the log has compacted the topic; until then
    the keys are there, wrapped, though no reader of ours uses them. Raises LogUnreachable.
    """
    wanted = set(owners)
    found = {key: value for key, value in _read(bootstrap_servers) if owner_of(key) in wanted}
    live = {key: value for key, value in found.items() if value is not None}
    if not live:
        return DestroyedKeys(0, None, True)
    producer = LibrdkafkaProducer(producer_config(bootstrap_servers, "waylog-erase"))
    _produce(producer, [(key, None) for key in live])
    # A record behind them closes their segment: only what is closed is compacted.
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
        if is_device(owner):
            since[owner] = min(created_ms(value), since.get(owner, created_ms(value)))
    return DestroyedKeys(len(live), max(since.values(), default=None), gone)


def _produce(producer: LibrdkafkaProducer, records: Sequence[tuple[bytes, bytes | None]]) -> None:
    failures: list[str] = []

    def on_delivery(error: object, _: object) -> None:
        if error is not None:
            failures.append(str(error))

    for key, value in records:
        producer.produce(VALUE_KEY, value, key, on_delivery=on_delivery)
    if producer.flush(30.0) or failures:
        raise LogUnreachable(f"keys: {failures[0] if failures else 'no answer'}")


def _read(bootstrap_servers: str) -> Iterator[tuple[bytes, bytes | None]]:
    """All records of topic `value-key`; raises LogUnreachable."""
    for message in read_topic(bootstrap_servers, VALUE_KEY):
        yield message.key() or b"", message.value()
