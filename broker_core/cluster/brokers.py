"""The controller's handling of brokers: registration, heartbeats, fencing, shutdown."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING

from broker_core import errors
from broker_core.cluster.image import BrokerImage, ClusterImage
from broker_core.cluster.partitions import PartitionControl
from broker_core.cluster.records import (
    BrokerRegistrationChange,
    ListenerAddress,
    MetadataRecord,
    RegisterBroker,
    UnregisterBroker,
)
from broker_core.cluster.settings import ControllerSettings
from broker_core.cluster.writing import MetadataWriter

if TYPE_CHECKING:
    from broker_core.protocol.definitions.bodies import (
        BrokerHeartbeatRequest,
        BrokerHeartbeatResponse,
        BrokerRegistrationRequest,
        BrokerRegistrationResponse,
    )

logger = logging.getLogger(__name__)

#: Security protocols by their numbers on the wire (SecurityProtocol).
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


class BrokerControl:
    """Tracks which brokers are alive; times are monotonic seconds."""

    def __init__(
        self,
        writer: MetadataWriter,
        partitions: PartitionControl,
        settings: ControllerSettings,
        now: float,
    ) -> None:
        self._writer = writer
        self._partitions = partitions
        self._settings = settings
        # Time of each broker's last heartbeat. A new controller has received none, and gives
        # all unfenced brokers a whole session.
        self._heard = {
            broker.id: now for broker in writer.image.brokers.values() if not broker.fenced
        }
        # Brokers that are disconnected, or have not sent this controller a heartbeat yet.
        self._disconnected = set(self._heard)

    @property
    def _image(self) -> ClusterImage:
        return self._writer.image

    def next_deadline(self) -> float:
        """Return when the next broker session ends if the broker stays silent."""
        heard = [at for broker_id, at in self._heard.items() if self._may_be_silent(broker_id)]
        return min(heard, default=float("inf")) + self._settings.session_timeout

    def _may_be_silent(self, broker_id: int) -> bool:
        """Tell whether silence would mean that a broker is gone.

        After its process stood still, a controller may run before the heartbeats of its own broker.
        """
        return broker_id != self._settings.local_broker or broker_id in self._disconnected

    def tick(self, now: float) -> None:
        """Fence the brokers that have been silent for too long."""
        for broker_id, heard in list(self._heard.items()):
            if self._may_be_silent(broker_id) and now - heard >= self._settings.session_timeout:
                self._lost(broker_id, f"silent for {now - heard:.1f} s")

    # --------------------------------------------------------------------------------- registration

    def register(self, body: BrokerRegistrationRequest, now: float) -> BrokerRegistrationResponse:
        """Handle BrokerRegistration (KIP-631)."""
        broker_id = body["broker_id"]
        image = self._image
        if body["cluster_id"] not in {"", image.cluster_id}:
            return {"error_code": errors.InconsistentClusterId.code, "broker_epoch": -1}
        present = image.brokers.get(broker_id)
        if present is not None and present.incarnation_id == body["incarnation_id"]:
            # The request is repeated, since the response was lost.
            return {"error_code": errors.NONE, "broker_epoch": present.epoch}
        is_connected = broker_id in self._heard and broker_id not in self._disconnected
        if present is not None and is_connected:
            # The previous process is still alive, as far as known.
            logger.warning("a second process wants to be broker %d; it is refused", broker_id)
            return {
                "error_code": errors.DuplicateBrokerRegistration.code,
                "broker_epoch": -1,
            }
        registration = RegisterBroker(
            broker_id,
            body["incarnation_id"],
            tuple(
                ListenerAddress(
                    each["name"], each["host"], each["port"], PROTOCOLS[each["security_protocol"]]
                )
                for each in body["listeners"]
            ),
            body["rack"],
        )
        # A broker that knows the previous broker epoch still has everything it wrote (KIP-966).
        is_lossy = present is None or body["previous_broker_epoch"] != present.epoch
        self._writer.write([registration, *self._partitions.without(broker_id, is_lossy=is_lossy)])
        epoch = image.brokers[broker_id].epoch
        logger.info(
            "broker %d has registered with epoch %d%s",
            broker_id,
            epoch,
            "" if present is None or not is_lossy else "; it may have lost what it had",
        )
        return {"error_code": errors.NONE, "broker_epoch": epoch}

    def unregister(self, broker_id: int) -> None:
        """Handle UnregisterBroker: remove a broker for good.

        Raises BrokerIdNotRegistered, and InvalidRequest if the broker is running.
        """
        if broker_id not in self._image.brokers:
            raise errors.BrokerIdNotRegistered()
        if broker_id in self._heard:
            raise errors.InvalidRequest(f"broker {broker_id} is running")
        self._writer.write([UnregisterBroker(broker_id)])

    # ----------------------------------------------------------------------------------- heartbeats

    def heartbeat(self, body: BrokerHeartbeatRequest, now: float) -> BrokerHeartbeatResponse:
        """Handle BrokerHeartbeat."""
        try:
            broker = self._registered(body["broker_id"], body["broker_epoch"])
        except errors.BrokerError as error:
            return {
                "error_code": error.code,
                "is_caught_up": False,
                "is_fenced": True,
                "should_shut_down": False,
            }
        self._heard[broker.id] = now
        self._disconnected.discard(broker.id)
        is_caught_up = body["current_metadata_offset"] >= broker.epoch
        if body["want_shut_down"]:
            self._let_go(broker)
        elif body["want_fence"]:
            self._fence(broker)
        elif broker.fenced and is_caught_up:
            self._unfence(broker)
        broker = self._image.brokers[broker.id]
        return {
            "error_code": errors.NONE,
            "is_caught_up": is_caught_up,
            "is_fenced": broker.fenced,
            "should_shut_down": broker.in_controlled_shutdown or broker.fenced,
        }

    def _registered(self, broker_id: int, epoch: int) -> BrokerImage:
        broker = self._image.brokers.get(broker_id)
        if broker is None:
            raise errors.BrokerIdNotRegistered()
        if broker.epoch != epoch:
            raise errors.StaleBrokerEpoch()
        return broker

    def check_epoch(self, broker_id: int, epoch: int) -> None:
        """Raise StaleBrokerEpoch or BrokerIdNotRegistered unless this is the broker's epoch."""
        self._registered(broker_id, epoch)

    # -------------------------------------------------------------------------------------- fencing

    def unreachable(self, broker_id: int, epoch: int) -> None:
        """Fence a broker whose address refuses connections: its process is gone."""
        broker = self._image.brokers.get(broker_id)
        if broker is not None and broker.epoch == epoch:
            self._lost(broker_id, "its address refuses connections")

    def is_missing(self, broker_id: int) -> bool:
        """True if a live broker has sent no heartbeat since it was disconnected."""
        return broker_id in self._disconnected

    def disconnected(self, broker_id: int) -> None:
        """Note a closed connection: until the broker is back, another process may take its id."""
        if broker_id in self._heard:
            self._disconnected.add(broker_id)

    def _lost(self, broker_id: int, reason: str) -> None:
        self._heard.pop(broker_id, None)
        self._disconnected.discard(broker_id)
        broker = self._image.brokers.get(broker_id)
        if broker is None or broker.fenced:
            return
        logger.warning("broker %d is fenced: %s", broker_id, reason)
        self._fence(broker)

    def _fence(self, broker: BrokerImage) -> None:
        if broker.fenced:
            return
        self._write(
            BrokerRegistrationChange(broker.id, broker.epoch, fenced=True),
            self._partitions.without(broker.id),
        )

    def _unfence(self, broker: BrokerImage) -> None:
        logger.info("broker %d is ready", broker.id)
        self._write(
            BrokerRegistrationChange(broker.id, broker.epoch, fenced=False),
            self._partitions.with_broker(broker.id),
        )

    def _let_go(self, broker: BrokerImage) -> None:
        """Begin a controlled shutdown: other brokers take over its partitions, then it may stop."""
        if broker.fenced or broker.in_controlled_shutdown:
            return
        logger.info("broker %d shuts down", broker.id)
        self._write(
            BrokerRegistrationChange(broker.id, broker.epoch, in_controlled_shutdown=True),
            self._partitions.without(broker.id),
        )

    def _write(self, change: MetadataRecord, partitions: Iterator[MetadataRecord]) -> None:
        # Each record is valid on its own: they need not be in one entry.
        self._writer.write_each(list(chain([change], partitions)))
