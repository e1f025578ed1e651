"""What the controller does with brokers: registration, heartbeats, fencing, controlled shutdown."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from itertools import chain
from typing import Any

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

logger = logging.getLogger(__name__)

#: Numbers of security protocols on the wire (SecurityProtocol).
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


class BrokerControl:
    """Knows which brokers are alive; times are monotonic seconds."""

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
        # When each broker was last heard of. A new controller has heard of nobody, and gives all
        # of them a whole session.
        self._heard = {
            broker.id: now for broker in writer.image.brokers.values() if not broker.fenced
        }
        # Whoever is not connected here, or has not yet been heard by this controller.
        self._disconnected = set(self._heard)

    @property
    def _image(self) -> ClusterImage:
        return self._writer.image

    def next_deadline(self) -> float:
        """When the first session ends, if its broker stays silent."""
        return min(self._heard.values(), default=float("inf")) + self._settings.session_timeout

    def tick(self, now: float) -> None:
        """Fence who has been silent for too long."""
        for broker_id, heard in list(self._heard.items()):
            if now - heard >= self._settings.session_timeout:
                self._lost(broker_id, f"silent for {now - heard:.1f} s")

    # --------------------------------------------------------------------------------- registration

    def register(self, body: dict[str, Any], now: float) -> dict[str, Any]:
        """BrokerRegistration (KIP-631)."""
        broker_id = body["broker_id"]
        image = self._image
        if body["cluster_id"] not in {"", image.cluster_id}:
            return {"error_code": errors.InconsistentClusterId.code, "broker_epoch": -1}
        present = image.brokers.get(broker_id)
        if present is not None and present.incarnation_id == body["incarnation_id"]:
            # Asked again, since the answer was lost.
            return {"error_code": errors.NONE, "broker_epoch": present.epoch}
        is_connected = broker_id in self._heard and broker_id not in self._disconnected
        if present is not None and is_connected:
            # As far as known, the former process lives.
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
        # Whoever knows the former process's epoch has all that it wrote (KIP-966).
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
        """UnregisterBroker: it will not come back. Raises BrokerIdNotRegistered, InvalidRequest."""
        if broker_id not in self._image.brokers:
            raise errors.BrokerIdNotRegistered()
        if broker_id in self._heard:
            raise errors.InvalidRequest(f"broker {broker_id} is running")
        self._writer.write([UnregisterBroker(broker_id)])

    # ----------------------------------------------------------------------------------- heartbeats

    def heartbeat(self, body: dict[str, Any], now: float) -> dict[str, Any]:
        """BrokerHeartbeat."""
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
        """Raises StaleBrokerEpoch, BrokerIdNotRegistered for who is not that broker any more."""
        self._registered(broker_id, epoch)

    # -------------------------------------------------------------------------------------- fencing

    def unreachable(self, broker_id: int, epoch: int) -> None:
        """The broker's process is gone: its address refuses connections."""
        broker = self._image.brokers.get(broker_id)
        if broker is not None and broker.epoch == epoch:
            self._lost(broker_id, "its address refuses connections")

    def is_missing(self, broker_id: int) -> bool:
        """True if a broker that should be there has not been heard since it was disconnected."""
        return broker_id in self._disconnected

    def disconnected(self, broker_id: int) -> None:
        """The broker's connection has closed: until it is back another process may take its id."""
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
        """Controlled shutdown: others lead what it led, then it may stop."""
        if broker.fenced or broker.in_controlled_shutdown:
            return
        logger.info("broker %d shuts down", broker.id)
        self._write(
            BrokerRegistrationChange(broker.id, broker.epoch, in_controlled_shutdown=True),
            self._partitions.without(broker.id),
        )

    def _write(self, change: MetadataRecord, partitions: Iterator[MetadataRecord]) -> None:
        # What each record says holds on its own: many of them need not be one entry.
        self._writer.write_each(list(chain([change], partitions)))
