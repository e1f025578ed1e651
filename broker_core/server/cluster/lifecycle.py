"""This broker's registration with the controller, its heartbeats and its controlled shutdown."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from broker_core import errors
from broker_core.cluster.brokers import PROTOCOLS
from broker_core.cluster.image import ClusterImage
from broker_core.cluster.records import ListenerAddress
from broker_core.configuration.config import BrokerConfig
from broker_core.environment import Environment
from broker_core.protocol.definitions import BROKER_HEARTBEAT, BROKER_REGISTRATION
from broker_core.server.cluster.channel import ControllerChannel
from broker_core.server.cluster.clean_shutdown import CleanShutdownFile
from waylog.process.background import spawn

if TYPE_CHECKING:
    from broker_core.protocol.definitions.bodies import (
        BrokerHeartbeatRequest,
        BrokerHeartbeatResponse,
        BrokerRegistrationRequest,
    )

logger = logging.getLogger(__name__)

_RETRY_S: Final = 0.1
#: Seconds without an answer, or two heartbeats if longer, after which trouble is reported.
_SILENT_S_MIN: Final = 1.5
#: Seconds that a stopping broker waits for a controller; if all brokers are stopped at once, there
#: is no quorum and no controller answers.
_SHUTDOWN_S: Final = 3.0


class BrokerLifecycle:
    """Registers this broker and sends its heartbeats."""

    def __init__(
        self,
        config: BrokerConfig,
        channel: ControllerChannel,
        image: Callable[[], ClusterImage],
        environment: Environment,
    ) -> None:
        """Read the former broker epoch; raises OSError."""
        self._config = config
        self._channel = channel
        self._image = image
        self._new_uuid = environment.new_uuid
        self._now = environment.clock.monotonic
        # Time of the last answer of a controller to a heartbeat.
        self._heard_at = self._now()
        self._is_silent = False
        #: Tells the next process of this broker about this one.
        self.life = CleanShutdownFile(config.log_dir, environment)
        #: Distinguishes this process from other processes with the same broker id.
        self.incarnation_id = environment.new_uuid().bytes
        #: Broker epoch, which the controller assigns at the registration; -1 before.
        self.epoch = -1
        self._unfenced = asyncio.Event()
        self._wake = asyncio.Event()
        self._heartbeats: asyncio.Task[None] | None = None
        self._wants_shut_down = False
        self._may_shut_down = asyncio.Event()
        self._registration: BrokerRegistrationRequest

    @property
    def is_fenced(self) -> bool:
        """Tell whether this broker is fenced, or was never unfenced."""
        return not self._unfenced.is_set()

    @property
    def trouble(self) -> str | None:
        """The reason why other brokers may have taken over, as text for people, or None."""
        silent_s = self._now() - self._heard_at
        if silent_s > self._silent_s_max:
            return f"no controller has answered for {silent_s:.0f} s, this broker may be fenced"
        if self.is_fenced:
            return "this broker is fenced"
        return None

    @property
    def _silent_s_max(self) -> float:
        return max(_SILENT_S_MIN, 2 * self._config.heartbeat_interval_ms / 1000)

    def _heard(self, answer: BrokerHeartbeatResponse | None) -> None:
        now = self._now()
        silent_s = now - self._heard_at
        if answer is not None:
            self._heard_at = now
            if self._is_silent:
                self._is_silent = False
                logger.warning("a controller answers again, after %.1f s", silent_s)
        elif silent_s > self._silent_s_max and not self._is_silent:
            self._is_silent = True
            logger.warning(
                "no controller has answered for %.1f s: after %.1f s others lead what this broker "
                "leads, where a majority of the controllers is running",
                silent_s,
                self._config.session_timeout_ms / 1000,
            )

    async def register(self, listeners: Sequence[ListenerAddress], cluster_id: str) -> None:
        """Register; return when the controller has accepted. Raises InconsistentClusterId."""
        self._registration = {
            "broker_id": self._config.node_id,
            "cluster_id": cluster_id,
            "incarnation_id": self.incarnation_id,
            "listeners": [
                {
                    "name": each.name,
                    "host": each.host,
                    "port": each.port,
                    "security_protocol": PROTOCOLS.index(each.protocol),
                }
                for each in listeners
            ],
            "features": [],
            "rack": self._config.rack,
            "is_migrating_zk_broker": False,
            "log_dirs": [],
            "previous_broker_epoch": self.life.former_epoch,
        }
        await self._register()

    async def _register(self) -> None:
        refused = False
        while True:
            answer = await self._channel.call(BROKER_REGISTRATION, self._registration)
            if answer is not None:
                if answer["error_code"] == errors.NONE:
                    self.epoch = answer["broker_epoch"]
                    self.life.begin(self.epoch)
                    return
                if answer["error_code"] == errors.InconsistentClusterId.code:
                    raise errors.InconsistentClusterId()
                if not refused:
                    refused = True
                    logger.warning(
                        "the controller does not accept broker %d yet (error %d): another process "
                        "may be running under this id, or have ended a moment ago",
                        self._config.node_id,
                        answer["error_code"],
                    )
            await asyncio.sleep(_RETRY_S)

    async def begin(self) -> None:
        """Start the heartbeats; return when the broker is unfenced and may serve."""
        self._heard_at = self._now()
        self._heartbeats = spawn(self._beat(), "heartbeats", endless=True)
        await self._unfenced.wait()

    def beat_now(self) -> None:
        """Send the next heartbeat at once."""
        self._wake.set()

    async def _beat(self) -> None:
        interval_s = self._config.heartbeat_interval_ms / 1000
        while True:
            self._wake.clear()
            heartbeat: BrokerHeartbeatRequest = {
                "broker_id": self._config.node_id,
                "broker_epoch": self.epoch,
                "current_metadata_offset": self._image().offset - 1,
                "want_fence": False,
                "want_shut_down": self._wants_shut_down,
            }
            answer = await self._channel.call(BROKER_HEARTBEAT, heartbeat, timeout_s=interval_s)
            self._heard(answer)
            if answer is not None:
                await self._take(answer)
            try:
                # A fenced broker has nothing else to do, and asks again soon.
                pause_s = interval_s if self._unfenced.is_set() else min(interval_s, _RETRY_S)
                async with asyncio.timeout(pause_s):
                    await self._wake.wait()
            except TimeoutError:
                continue

    async def _take(self, answer: BrokerHeartbeatResponse) -> None:
        code = answer["error_code"]
        if code in {errors.StaleBrokerEpoch.code, errors.BrokerIdNotRegistered.code}:
            # The controllers have lost their metadata, or another process has registered the id.
            logger.warning("the controller does not know this broker any more; it registers again")
            self._unfenced.clear()
            self.incarnation_id = self._registration["incarnation_id"] = self._new_uuid().bytes
            self._registration["previous_broker_epoch"] = self.epoch
            await self._register()
            self._wake.set()
        elif code == errors.NONE:
            if answer["is_fenced"]:
                if self._unfenced.is_set():
                    logger.warning("this broker was fenced: the controller had not heard of it")
                    self._unfenced.clear()
            else:
                self._unfenced.set()
            if self._wants_shut_down and answer["should_shut_down"]:
                self._may_shut_down.set()

    async def shut_down(self) -> None:
        """Ask for a controlled shutdown; return when others lead, or no controller answers."""
        if self._heartbeats is None or not self._config.controlled_shutdown:
            return
        self._wants_shut_down = True
        self._wake.set()
        try:
            async with asyncio.timeout(_SHUTDOWN_S):
                await self._may_shut_down.wait()
        except TimeoutError:
            logger.warning("no controller has let this broker go; it stops all the same")

    async def close(self) -> None:
        """Stop the heartbeats."""
        if self._heartbeats is not None:
            self._heartbeats.cancel()
            await asyncio.gather(self._heartbeats, return_exceptions=True)
