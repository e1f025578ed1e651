"""Sends dead letters again to the topic that they come from, each one once.

A record and the note that it was sent are written in one transaction: whoever kills a replay, or
runs it a second time, doubles nothing. Notes are keyed by the place that a record was read from,
since several programs may have refused the same record.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import msgspec
from confluent_kafka import KafkaError, KafkaException, Message

from waylog.administration.log_access import LogAccess, partitions_of
from waylog.administration.offsets import watermarks
from waylog.administration.range_reading import open_log, read_ranges
from waylog.cli import CommandError
from waylog.kafka.clients import LogUnreachable, ensure_topics, producer_config
from waylog.kafka.dead_letters import REPLAYED, DeadLetter, RecordPlace
from waylog.kafka.errors import error_text, forbidden_kind, forbidden_text
from waylog.kafka.librdkafka_producer import LibrdkafkaProducer
from waylog.kafka.ranges.log_ranges import Range
from waylog.kafka.topics import DEAD_LETTER_REPLAY_TOPIC
from waylog.sealing.sealing import shared_key_ring

#: The same for all: of two replays at the same time the later one fences the earlier one, and reads
#: what that has sent.
_TRANSACTIONAL_ID: Final = "waylog-dead-letters"
_TIMEOUT_S: Final = 30.0
_RECORDS_OF_TRANSACTION: Final = 500


class Outcome(NamedTuple):
    """What became of a dead letter."""

    place: RecordPlace
    to: str | None = None  # the topic it was sent to
    skipped: str | None = None  # why it was not to be sent
    refused: str | None = None  # why it could not be sent

    def row(self) -> dict[str, Any]:
        """Return it for programs."""
        return self._asdict() | {"place": str(self.place)}

    def text(self) -> str:
        """Return it for people."""
        if self.refused is not None:
            return f"{self.place}: refused: {self.refused}"
        if self.skipped is not None:
            return f"{self.place}: left out: {self.skipped}"
        return f"{self.place}: to {self.to}"


class _Sent(msgspec.Struct):
    """The value of a note; its key is the place that the record was read from."""

    dead_letter: str
    to: str
    time: int  # ms since 1970


class Replay:
    """One replay of dead letters."""

    def __init__(
        self,
        access: LogAccess,
        *,
        to: str | None = None,
        again: bool = False,
        is_dry: bool = False,
    ) -> None:
        """`to` is a topic instead of those that the letters come from.

        With `again` those are sent, too, that were sent before; with `is_dry` nothing is.
        """
        self._access = access
        self._to = to
        self._again = again
        self._is_dry = is_dry
        self._keys = shared_key_ring(access.bootstrap_servers)
        self._topics: dict[str, bool] = {}  # whether a topic exists
        self._producer: LibrdkafkaProducer | None = None

    def run(self, letters: Iterable[DeadLetter]) -> Iterator[Outcome]:
        """Yield what becomes of each one; raises KafkaException and CommandError."""
        if not self._is_dry:
            self._create_notes()
            self._producer = self._open()
        # After `_open`: no other replay can add to it any more.
        known = self._sent_before()
        batch: list[DeadLetter] = []
        for letter in letters:
            why = self._reason_against(letter)
            name = _name(letter)
            if why is not None:
                yield Outcome(letter.place, skipped=why)
            elif name in known:
                yield Outcome(letter.place, skipped="sent before (--again sends it once more)")
            else:
                known.add(name)
                batch.append(letter)
                if self._is_dry:
                    yield Outcome(letter.place, self._target(letter))
                    batch.clear()
                elif len(batch) >= _RECORDS_OF_TRANSACTION:
                    yield from self._send(batch)
                    batch.clear()
        yield from self._send(batch)

    def _create_notes(self) -> None:
        try:
            ensure_topics(
                self._access.bootstrap_servers,
                [DEAD_LETTER_REPLAY_TOPIC],
                security=self._access.properties,
            )
        except LogUnreachable as error:
            raise CommandError(str(error)) from None

    def _open(self) -> LibrdkafkaProducer:
        producer = LibrdkafkaProducer(
            producer_config(
                self._access.bootstrap_servers,
                self._access.client_id,
                transactional_id=_TRANSACTIONAL_ID,
                linger_ms=5,
            )
            | dict(self._access.properties)
        )
        try:
            producer.init_transactions(_TIMEOUT_S)
        except KafkaException as error:
            if forbidden_kind(error) == "transactional id":
                resource = f"transactional id {_TRANSACTIONAL_ID}"
                raise CommandError(forbidden_text(resource, "WRITE")) from None
            raise
        return producer

    def _sent_before(self) -> set[str]:
        if self._again:
            return set()
        name = DEAD_LETTER_REPLAY_TOPIC.name
        log = open_log(self._access)
        try:
            if not self._exists(name):
                return set()
            ranges = {
                partition: Range(*watermarks(self._access, log.consumer, name, partition))
                for partition in partitions_of(log.consumer, name)
            }
            notes = read_ranges(self._access, log, name, ranges)
            return {(note.key() or b"").decode("utf-8", "replace") for note in notes}
        finally:
            log.close()

    def _exists(self, topic: str) -> bool:
        if topic not in self._topics:
            consumer = self._access.open_consumer()
            try:
                partitions_of(consumer, topic)
            except CommandError:
                self._topics[topic] = False
            else:
                self._topics[topic] = True
            finally:
                consumer.close()
        return self._topics[topic]

    def _target(self, letter: DeadLetter) -> str | None:
        return self._to or (None if letter.origin is None else letter.origin.topic)

    def _reason_against(self, letter: DeadLetter) -> str | None:
        target = self._target(letter)
        if target is None:
            return "it was never a record: --to names a topic"
        if not letter.is_whole:
            return "not all of its bytes were kept"
        if not self._exists(target):
            return f"there is no topic {target}"
        return None

    def _send(self, letters: Sequence[DeadLetter]) -> Iterator[Outcome]:
        """Send records in one transaction; if it is refused, each one in one of its own."""
        if not letters:
            return
        error = self._transact(letters)
        if error is None:
            yield from (Outcome(each.place, self._target(each)) for each in letters)
        elif len(letters) == 1:
            yield Outcome(letters[0].place, refused=error)
        else:
            for each in letters:
                yield from self._send([each])

    def _transact(self, letters: Sequence[DeadLetter]) -> str | None:
        """Return why the log refused a record, None if all are stored; raises KafkaException."""
        producer = self._producer
        assert producer is not None
        failures: list[KafkaError] = []

        def delivered(error: KafkaError | None, _message: Message) -> None:
            if error is not None and error.code() != KafkaError._PURGE_QUEUE:
                failures.append(error)

        producer.begin_transaction()
        try:
            for letter in letters:
                for topic, key, value, headers in self._records(letter):
                    producer.produce(topic, value, key, headers=headers, on_delivery=delivered)
            producer.commit_transaction(_TIMEOUT_S)
        except KafkaException as error:
            if error.args[0].fatal():
                raise
            producer.abort_transaction(_TIMEOUT_S)
            # Its next batch would be refused for the sequence numbers of those that failed.
            self._producer = self._open()
            return error_text(KafkaException(failures[0]) if failures else error)
        return None

    def _records(
        self, letter: DeadLetter
    ) -> list[tuple[str, bytes | None, bytes | None, list[tuple[str, Any]]]]:
        target = self._target(letter)
        assert target is not None
        value = letter.value
        if self._keys is not None and value is not None:
            value = self._keys.seal_value(target, value, letter.key)
        place = str(letter.place)
        note = msgspec.json.encode(_Sent(place, target, time.time_ns() // 1_000_000))
        headers = [each for each in letter.headers if each[0] != REPLAYED]
        return [
            (target, letter.key, value, [*headers, (REPLAYED, place.encode())]),
            (DEAD_LETTER_REPLAY_TOPIC.name, _name(letter).encode(), note, []),
        ]


def _name(letter: DeadLetter) -> str:
    return str(letter.origin or letter.place)
