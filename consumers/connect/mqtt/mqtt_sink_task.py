"""The task of MqttSink: `put` returns once the server has acknowledged the messages."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NoReturn

from consumers.connect.data.exceptions import ConnectException, DataException, RetriableException
from consumers.connect.data.json_text import message_bytes
from consumers.connect.data.records import Place, SinkRecord
from consumers.connect.mqtt.properties import (
    RETAINED,
    SINK_CONFIG,
    TOPIC_FORMAT,
    Connection,
    checked,
)
from consumers.connect.mqtt.topics import topic_of
from consumers.connect.plugins.sink_task import SinkTask, TopicPartition
from waylog.extras import install_command, is_installed

if TYPE_CHECKING:
    from consumers.connect.mqtt.client import MqttClient

#: `put` waits so long for acknowledgements, so that the task stays in its group.
_PUT_S: Final = 10.0
_WAIT_S: Final = 0.2
_RETRY_MS: Final = 1000


class MqttSinkTask(SinkTask):
    """Publishes records."""

    def __init__(self) -> None:
        self._client: MqttClient | None = None
        #: Messages of a batch that comes again, by their ids: paho goes on sending them by itself.
        self._sent: dict[Place, int] = {}
        #: Of those: what was acknowledged already.
        self._done: set[Place] = set()

    def start(self, properties: Mapping[str, str]) -> None:
        """Connect in the background; raises ConfigException."""
        if not is_installed("bridge"):
            raise ConnectException(f"MQTT needs a library: {install_command('bridge')}")
        from consumers.connect.mqtt.client import MqttClient

        parsed = checked(SINK_CONFIG, properties)
        self._connection = Connection.of(parsed, properties.get("name", "sink"))
        self._format = parsed[TOPIC_FORMAT]
        self._retained = parsed[RETAINED]
        self._client = MqttClient(self._connection)
        self._client.start()

    def put(self, records: Sequence[SinkRecord]) -> None:
        """Publish records, and report those that cannot be.

        Raises RetriableException if the server has not acknowledged all in time, ConnectException
        if it refuses the client.
        """
        if not records:
            return
        deadline = time.monotonic() + _PUT_S
        self._await_connection(deadline)
        refused: list[tuple[SinkRecord, ConnectException]] = []
        published: list[tuple[SinkRecord, Place]] = []
        for record in records:
            place = record.place
            if place in self._done:
                continue
            try:
                self._publish(record, place)
                published.append((record, place))
            except DataException as error:
                refused.append((record, error))
        for record, place in published:
            reason = self._await(place, deadline)
            if reason is not None:
                text = f"MQTT server {self._connection.address} refuses the message: {reason}"
                refused.append((record, ConnectException(text)))
        self._sent.clear()
        self._done.clear()
        self.report(refused)

    def open(self, partitions: Collection[TopicPartition]) -> None:
        """Forget what was sent: offsets may have been set back."""
        self._forget(partitions)

    def close(self, partitions: Collection[TopicPartition]) -> None:
        """Forget what was sent: others send it now."""
        self._forget(partitions)

    def stop(self) -> None:
        """Disconnect."""
        if self._client is not None:
            self._client.close()

    def _await_connection(self, deadline: float) -> None:
        client = self._client
        assert client is not None
        while not client.connected.wait(_WAIT_S):
            self._check(deadline, "cannot be reached")

    def _await(self, place: Place, deadline: float) -> str | None:
        """Wait until a message is acknowledged; return why it was refused, None if it was not."""
        client = self._client
        assert client is not None
        while True:
            has_come, reason = client.outcome(self._sent[place], _WAIT_S)
            if has_come:
                self._done.add(place)
                return reason
            self._check(deadline, "has not acknowledged all messages")

    def _check(self, deadline: float, trouble: str) -> None:
        """Raise ConnectException for a server that refuses the client, RetriableException after
        the deadline.
        """
        client = self._client
        assert client is not None
        if client.refusal is not None:
            raise ConnectException(client.refusal)
        if time.monotonic() > deadline:
            self._postpone(trouble)

    def _postpone(self, trouble: str) -> NoReturn:
        self.context.timeout(_RETRY_MS)
        raise RetriableException(f"MQTT server {self._connection.address} {trouble}")

    def _publish(self, record: SinkRecord, place: Place) -> None:
        """Publish a record unless that was done before; raises DataException."""
        if place in self._sent:
            return
        client = self._client
        assert client is not None
        topic = topic_of(record, self._format)
        payload = b"" if record.value is None else message_bytes(record.value)
        try:
            found = client.publish(topic, payload, retain=self._retained)
        except ValueError as error:
            raise DataException(f"the message cannot be published: {error}") from error
        if found is None:
            self._postpone("takes no more messages")
        self._sent[place] = found

    def _forget(self, partitions: Collection[TopicPartition]) -> None:
        gone = {tuple(each) for each in partitions}
        for place in [place for place in self._sent if place[:2] in gone]:
            message_id = self._sent.pop(place)
            if place in self._done:
                self._done.remove(place)
            elif self._client is not None:
                self._client.forget(message_id)
