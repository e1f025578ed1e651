"""One connection to an MQTT server, for the records of one turn of a forwarding."""

from __future__ import annotations

import ssl
import time
from collections.abc import Sequence
from typing import Final
from urllib.parse import unquote, urlsplit

from paho.mqtt.reasoncodes import ReasonCode

from consumers.connect.data.records import SinkRecord
from consumers.forwarding.delivery import Result
from consumers.forwarding.route import Route
from consumers.forwarding.schedule import Failure
from waylog.network.outbound.mqtt_connection import (
    MQTT_3,
    MqttConnection,
    MqttServer,
    is_lasting,
)

_TOPIC: Final = "devices"
_QOS: Final = 1
#: As many as there are packet ids: a turn waits for all of its messages together.
_IN_FLIGHT_MAX: Final = 65_535


class Turn(MqttConnection):
    """It is made, and `run`, in one thread."""

    def __init__(
        self, route: Route, address: str, port: int, tls: ssl.SSLContext | None, timeout_s: float
    ) -> None:
        """The connection goes to `address`; the name in the URL is not looked up again."""
        forwarding = route.forwarding
        parts = urlsplit(forwarding.url)
        super().__init__(
            MqttServer(
                host=parts.hostname or "",
                port=port,
                client_id="",
                address=address,
                version=MQTT_3,
                user=forwarding.username,
                password=forwarding.password,
                tls=tls,
                clean_session=True,
                in_flight_max=_IN_FLIGHT_MAX,
                connect_timeout_s=timeout_s,
            )
        )
        self._name: Final = route.origin
        self._timeout_s: Final = timeout_s
        self._prefix: Final = unquote(parts.path).strip("/") or _TOPIC
        self._is_connected = False
        self._refusal: Failure | None = None
        self._acknowledged: Final[set[int]] = set()

    def run(self, records: Sequence[SinkRecord]) -> Result:
        """Send records, each once at most; see Delivery."""
        deadline = time.monotonic() + self._timeout_s
        is_reached = False
        try:
            self.connect_once()
            is_reached = True
            if not self.run_until(self._is_answered, deadline):
                raise TimeoutError("no answer in time")
            if self._refusal is not None:
                return Result(failure=self._refusal)
            sent = {
                self._paho.publish(f"{self._prefix}/{each.key}", each.value, _QOS).mid: each
                for each in records
            }
            self.run_until(lambda: self._acknowledged >= sent.keys(), deadline)
        except ssl.SSLCertVerificationError as error:
            reason = f"{self._name}: its certificate is not accepted: {error.verify_message}"
            return Result(failure=Failure(reason, is_reached=False))
        except (OSError, ValueError) as error:
            reason = f"{self._name}: {str(error) or type(error).__name__}"
            return Result(failure=Failure(reason, is_reached=is_reached))
        finally:
            self.disconnect()
        done = [record for mid, record in sent.items() if mid in self._acknowledged]
        if len(done) == len(records):
            return Result(done)
        text = f"{self._name} has not acknowledged all within {self._timeout_s:g} s"
        return Result(done, failure=Failure(text))

    def _is_answered(self) -> bool:
        return self._is_connected or self._refusal is not None

    # ---- called by run_until; see MqttConnection ----

    def on_connected(self, *, session_present: bool) -> None:
        """Take note of it."""
        self._is_connected = True

    def on_refused(self, code: ReasonCode) -> None:
        """Keep the reason for the user."""
        reason = f"{self._name} refuses the connection: {code}"
        self._refusal = Failure(reason, is_set_up=is_lasting(code))

    def on_published(self, message_id: int, code: ReasonCode) -> None:
        """Take note of the acknowledgement."""
        self._acknowledged.add(message_id)
