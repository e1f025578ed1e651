"""The task of MqttSource: a message is acknowledged once the log has acknowledged its record."""

from __future__ import annotations

import queue
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from consumers.connect.data.exceptions import ConnectException
from consumers.connect.data.records import Header, SourceRecord
from consumers.connect.data.schemas import BOOLEAN, BYTES, INT32, STRING
from consumers.connect.mqtt.acknowledgements import OrderedAcknowledgements
from consumers.connect.mqtt.properties import (
    KAFKA_TOPIC,
    SHARE,
    SOURCE_CONFIG,
    TOPICS,
    Connection,
    checked,
)
from consumers.connect.plugins.source_task import RecordMetadata, SourceTask
from waylog.extras import install_command, is_installed

if TYPE_CHECKING:
    from consumers.connect.mqtt.client import MqttClient
    from waylog.network.outbound.mqtt_connection import Arrival

_POLL_S: Final = 0.2
_BATCH: Final = 1000
_QUEUE_MAX: Final = 65_536
_CLIENT: Final = "client"
_MESSAGE: Final = "message"


class MqttSourceTask(SourceTask):
    """Makes a record of each message: key is its topic, value its payload."""

    def __init__(self) -> None:
        # A server pauses after `mqtt.max.in.flight` messages, unless their QoS is 0.
        self._arrived: queue.Queue[Arrival] = queue.Queue(_QUEUE_MAX)
        self._is_stopping = False
        self._client: MqttClient | None = None

    def start(self, properties: Mapping[str, str]) -> None:
        """Connect in the background; raises ConfigException."""
        if not is_installed("bridge"):
            raise ConnectException(f"MQTT needs a library: {install_command('bridge')}")
        from consumers.connect.mqtt.client import MqttClient

        parsed = checked(SOURCE_CONFIG, properties)
        connection = Connection.of(parsed, properties.get("name", "source"))
        filters = parsed[TOPICS]
        if parsed[SHARE]:
            filters = [f"$share/{parsed[SHARE]}/{each}" for each in filters]
        self._topic = parsed[KAFKA_TOPIC]
        self._partition = {_CLIENT: connection.client_id}
        client = self._client = MqttClient(connection, filters, self._take)
        self._waiting: OrderedAcknowledgements[Arrival] = OrderedAcknowledgements(
            client.acknowledge
        )
        client.start()

    def poll(self) -> Sequence[SourceRecord] | None:
        """Return the messages that have come, or None after a moment without any.

        Raises ConnectException for a server that refuses the client.
        """
        assert self._client is not None
        if self._client.refusal is not None:
            raise ConnectException(self._client.refusal)
        try:
            arrivals = [self._arrived.get(timeout=_POLL_S)]
        except queue.Empty:
            return None
        while len(arrivals) < _BATCH:
            try:
                arrivals.append(self._arrived.get_nowait())
            except queue.Empty:
                break
        now_ms = round(time.time() * 1000)
        return [self._record(each, now_ms) for each in arrivals]

    def commit_record(self, record: SourceRecord, metadata: RecordMetadata | None) -> None:
        """Acknowledge the message, and those before it that wait for it."""
        assert record.source_offset is not None
        self._waiting.stored(record.source_offset[_MESSAGE])

    def stop(self) -> None:
        """Disconnect; what is not acknowledged comes again."""
        self._is_stopping = True
        if self._client is not None:
            self._client.close()

    def _take(self, arrival: Arrival) -> None:
        """Keep a message; while there is no room nothing is read from the server."""
        while not self._is_stopping:
            try:
                self._arrived.put(arrival, timeout=_POLL_S)
                return
            except queue.Full:
                continue

    def _record(self, arrival: Arrival, now_ms: int) -> SourceRecord:
        number = self._waiting.add(arrival)
        return SourceRecord(
            source_partition=self._partition,
            source_offset={_MESSAGE: number},
            topic=self._topic,
            key_schema=STRING,
            key=arrival.topic,
            value_schema=BYTES,
            value=arrival.payload,
            timestamp=now_ms,
            headers=(
                Header("mqtt.qos", arrival.qos, INT32),
                Header("mqtt.retained", arrival.is_retained, BOOLEAN),
                Header("mqtt.duplicate", arrival.is_duplicate, BOOLEAN),
            ),
        )
