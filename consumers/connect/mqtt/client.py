"""The client of a source or a sink: what it waits for, and why waiting would be of no use."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Final

from paho.mqtt.enums import MQTTErrorCode
from paho.mqtt.reasoncodes import ReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions

from consumers.connect.mqtt.properties import Connection
from waylog.network.outbound.mqtt_connection import Arrival, MqttConnection, is_lasting
from waylog.process.threads import thread_of

logger = logging.getLogger(__name__)

_FAILURE: Final = 0x80


class MqttClient(MqttConnection):
    """A connection of a connector.

    `on_arrival` is called in paho's thread; all methods may be called in any thread.
    """

    def __init__(
        self,
        settings: Connection,
        filters: Sequence[str] = (),
        on_arrival: Callable[[Arrival], None] | None = None,
    ) -> None:
        """Raises ConfigException for certificates that cannot be read."""
        super().__init__(settings.server())
        self._settings: Final = settings
        self._filters: Final = filters
        self._take: Final = on_arrival
        self.connected: Final = threading.Event()
        self._refusal: str | None = None
        self._thread: threading.Thread | None = None
        #: By message id: None for a message that was acknowledged, why for one that was refused.
        self._outcomes: Final[dict[int, str | None]] = {}
        #: Ids whose outcome nobody will ask for.
        self._forgotten: Final[set[int]] = set()
        self._has_outcome: Final = threading.Condition()
        self._has_subscribed = False
        self._is_closing = False

    def start(self) -> None:
        """Connect in the background."""
        self.connect()
        self._thread = thread_of(self._paho.loop_start, "paho-mqtt-client")

    @property
    def refusal(self) -> str | None:
        """Why waiting is of no use: what the server refuses for good; None while there is hope."""
        if self._thread is not None and not self._thread.is_alive() and not self._is_closing:
            return f"MQTT server {self._settings.address}: the client's thread has failed"
        return self._refusal

    def close(self) -> None:
        """Disconnect; the server keeps what is not acknowledged."""
        self._is_closing = True
        self.disconnect()
        self._paho.loop_stop()

    def publish(self, topic: str, payload: bytes, *, retain: bool) -> int | None:
        """Return the id of a message on its way, None if there is no room or no connection for it.

        What is not acknowledged is sent again over the next connection. Raises ValueError for a
        payload that is too long.
        """
        info = self._paho.publish(topic, payload, self._settings.qos, retain)
        if info.rc == MQTTErrorCode.MQTT_ERR_SUCCESS:
            return info.mid
        is_kept = info.rc == MQTTErrorCode.MQTT_ERR_NO_CONN and self._settings.qos > 0
        return info.mid if is_kept else None

    def outcome(self, message_id: int, timeout_s: float) -> tuple[bool, str | None]:
        """Wait for the acknowledgement of a message; return whether it has come, and why the
        server refuses the message.
        """
        with self._has_outcome:
            has_come = self._has_outcome.wait_for(lambda: message_id in self._outcomes, timeout_s)
            return has_come, self._outcomes.pop(message_id, None)

    def forget(self, message_id: int) -> None:
        """Have nobody ask for the outcome of a message: its id will be that of another one."""
        with self._has_outcome:
            if message_id in self._outcomes:
                del self._outcomes[message_id]
            else:
                self._forgotten.add(message_id)

    # ---- in paho's thread; see MqttConnection ----

    def on_refused(self, code: ReasonCode) -> None:
        """Take note of what waiting does not cure."""
        address = self._settings.address
        if is_lasting(code):
            self._refusal = f"MQTT server {address} refuses the connection: {code}"
        logger.warning("MQTT server %s refuses the connection: %s", address, code)

    def on_connected(self, *, session_present: bool) -> None:
        """Subscribe, unless the server knows the subscription."""
        logger.info("connected to MQTT server %s", self._settings.address)
        if self._filters and not (self._has_subscribed and session_present):
            # What is retained comes once, not with every start.
            retained = SubscribeOptions.RETAIN_SEND_IF_NEW_SUB
            self.subscribe(self._filters, self._settings.qos, retained)
        else:
            self.connected.set()

    def on_subscribed(self, codes: Sequence[ReasonCode]) -> None:
        """Take note of filters that are refused."""
        refused = [
            f"{name} ({code})"
            for name, code in zip(self._filters, codes, strict=False)
            if code.is_failure
        ]
        if refused:
            self._refusal = (
                f"MQTT server {self._settings.address} refuses to subscribe to {', '.join(refused)}"
            )
            return
        self._has_subscribed = True
        self.connected.set()

    def on_unreachable(self) -> None:
        """Say so."""
        logger.warning("MQTT server %s cannot be reached", self._settings.address)

    def on_lost(self, code: ReasonCode) -> None:
        """Say so, unless this client has ended it."""
        self.connected.clear()
        if not self._is_closing:
            logger.warning("MQTT server %s: connection lost: %s", self._settings.address, code)

    def on_arrival(self, arrival: Arrival) -> None:
        """Pass it on."""
        assert self._take is not None
        self._take(arrival)

    def on_published(self, message_id: int, code: ReasonCode) -> None:
        """Keep the outcome, if somebody will ask for it."""
        with self._has_outcome:
            if message_id in self._forgotten:
                self._forgotten.remove(message_id)
                return
            self._outcomes[message_id] = str(code) if code.value >= _FAILURE else None
            self._has_outcome.notify_all()
