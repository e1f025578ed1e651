"""Detects at once that a broker's process is gone, because its machine then refuses connections.

Brokers are probed when a connection breaks, and when the controller has just become active and has
heard of no broker yet. A broker that only does not answer keeps its session until that times out.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Final

from broker_core import errors
from broker_core.server.cluster.quorum_node import QuorumNode
from broker_core.server.network.request import AnyRequest
from waylog.process.background import spawn

logger = logging.getLogger(__name__)

_CONNECT_TIMEOUT_S: Final = 1.0
_PAUSE_FIRST_S: Final = 0.02
_PAUSE_LONGEST_S: Final = 0.5


async def is_refused(host: str, port: int) -> bool:
    """Tell whether a machine can be reached, and refuses connections to a port."""
    try:
        async with asyncio.timeout(_CONNECT_TIMEOUT_S):
            _, writer = await asyncio.open_connection(host, port)
    except ConnectionRefusedError:
        return True
    except (OSError, TimeoutError) as error:
        logger.info("%s:%d cannot be reached: %s", host, port, error)
    else:
        writer.transport.abort()
    return False


class BrokerWatch:
    """Probes brokers while this node's controller is active."""

    def __init__(self, shell: QuorumNode) -> None:
        self._shell = shell
        self._probes: set[asyncio.Task[None]] = set()

    def heard(self, request: AnyRequest) -> None:
        """Watch a connection on which a broker sends heartbeats."""
        broker_id = request.body["broker_id"]
        request.when_lost(lambda: self._disconnected(broker_id))

    def look_around(self) -> None:
        """Probe all brokers; called when this node's controller has become active."""
        for broker in self._shell.image.brokers.values():
            # Also this node's broker: its former process may be the one that is gone.
            if not broker.fenced:
                self._probe(broker.id)

    async def close(self) -> None:
        """Stop all probes."""
        for probe in self._probes:
            probe.cancel()
        await asyncio.gather(*self._probes, return_exceptions=True)

    def _disconnected(self, broker_id: int) -> None:
        if not self._shell.is_active:
            return
        with contextlib.suppress(errors.BrokerError):
            self._shell.decide(
                lambda controller: controller.brokers.disconnected(broker_id), lambda _: None
            )
        self._probe(broker_id)

    def _probe(self, broker_id: int) -> None:
        task = spawn(self._look(broker_id), f"looking for broker {broker_id}")
        self._probes.add(task)
        task.add_done_callback(self._probes.discard)

    def _is_missing(self, broker_id: int) -> bool:
        controller = self._shell.node.controller
        return controller is not None and controller.brokers.is_missing(broker_id)

    async def _look(self, broker_id: int) -> None:
        pause_s = _PAUSE_FIRST_S
        # A process that is being killed closes its connections and its listeners one by one.
        while self._is_missing(broker_id):
            await self._look_once(broker_id)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _PAUSE_LONGEST_S)

    async def _look_once(self, broker_id: int) -> None:
        broker = self._shell.image.brokers.get(broker_id)
        if broker is None or broker.fenced:
            return
        address = broker.listeners[0]
        if await is_refused(address.host, address.port):
            with contextlib.suppress(errors.BrokerError):
                self._shell.decide(
                    lambda controller: controller.brokers.unreachable(broker_id, broker.epoch),
                    lambda _: None,
                )
