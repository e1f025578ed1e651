"""Sockets of simulated machines: connections are slow, stall, break, and are cut in one direction.

A connection keeps its order, as TCP does. A lost piece comes later; data under way in a broken
connection arrives or does not. Data that a cut holds back arrives when the cut is healed, perhaps
long after its sender has given up and sent the same on another connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from waylog.config import Endpoint

if TYPE_CHECKING:
    from tests.simulation.joined.world import SimulatedLoop, World


@dataclass
class Weather:
    """The present quality of the network: a delay in seconds, and probabilities of faults."""

    delay_max: float = 0.002
    lost: float = 0.0  # of a piece; it comes again after a while
    slow: float = 0.0  # of a piece; it takes up to half a second more
    broken: float = 0.0  # that sending a piece breaks the connection
    split: float = 0.0  # that a piece arrives in two


class Network:
    """The network between all machines."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.weather = Weather()
        self.listening: dict[Endpoint, Acceptor] = {}
        #: Machines without power, which do not even refuse connections.
        self.off: set[str] = set()
        self._cut: dict[tuple[str, str], list[Callable[[], None]]] = {}
        #: Open ends of connections, in the order in which they were opened.
        self.ends: dict[Stream, None] = {}
        self._ports = 40_000

    def cut(self, source: str, destination: str) -> None:
        """Let nothing pass from one machine to the other; the way back is not affected."""
        self._cut.setdefault((source, destination), [])

    def heal(self) -> None:
        """End all network faults; data that was held back arrives."""
        held, self._cut = self._cut, {}
        self.weather = Weather()
        for actions in held.values():
            for action in actions:
                action()

    def is_cut(self, source: str, destination: str) -> bool:
        """Return whether the way from one machine to the other is cut."""
        return (source, destination) in self._cut

    def when_healed(self, source: str, destination: str, action: Callable[[], None]) -> None:
        """Run an action when the cut ends."""
        self._cut[source, destination].append(action)

    def delay(self) -> float:
        """Draw the delay of a piece or a connection in seconds."""
        weather, chance = self.weather, self.world.random.random
        delay = 0.0001 + chance() * weather.delay_max
        if weather.lost and chance() < weather.lost:
            self.world.faults["piece lost and sent again"] += 1
            delay += 0.2 + chance() * 0.4
        if weather.slow and chance() < weather.slow:
            self.world.faults["piece delayed"] += 1
            delay += chance() * 0.5
        return delay

    def port(self) -> int:
        """Return an unused port."""
        self._ports += 1
        return self._ports

    def powered(self, host: str) -> None:
        """Switch a machine on: it resets old connections on which its peers still send."""
        self.off.discard(host)
        for end in [each for each in self.ends if each.peer_is_gone and each.remote[0] == host]:
            if end.is_unanswered:
                end.reset_after(self.delay())


class Acceptor:
    """A listening socket. See broker_core.environment.ConnectionAcceptor."""

    def __init__(
        self, network: Network, loop: SimulatedLoop, factory: Callable[[], asyncio.BaseProtocol]
    ) -> None:
        self._network = network
        self.loop = loop
        self.factory: Callable[[], Any] = factory
        self.address = Endpoint("", 0)
        self.is_serving = False

    def bind(self, endpoint: Endpoint, *, reuse_port: bool) -> None:
        if endpoint in self._network.listening:
            raise OSError(98, "address already in use")
        self.address = endpoint
        self._network.listening[endpoint] = self

    def listen(self) -> None:
        self.is_serving = True

    async def close(self) -> None:
        self.stop()
        # The protocols of those that have been accepted are told in the next iteration.
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    def stop(self) -> None:
        """Refuse connections from now on."""
        self.is_serving = False
        if self._network.listening.get(self.address) is self:
            del self._network.listening[self.address]


class Stream(asyncio.Transport):
    """One end of a connection."""

    def __init__(
        self,
        network: Network,
        loop: SimulatedLoop,
        protocol: Any,
        local: tuple[str, int],
        remote: tuple[str, int],
    ) -> None:
        super().__init__()
        self._network = network
        self.loop = loop
        self._protocol = protocol
        self.local = local
        self.remote = remote
        self.peer: Stream | None = None
        self._arrives = 0.0  # when the last piece sent will arrive
        self._is_open = True
        self._is_closing = False
        self._reading = True
        self._unread: list[bytes] = []
        self._has_ended = False
        #: The other machine has lost its power, without a reset.
        self.peer_is_gone = False
        self.is_unanswered = False
        network.ends[self] = None

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return {"peername": self.remote, "sockname": self.local}.get(name, default)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        return

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return self._is_closing or not self._is_open

    # -------------------------------------------------------------------------------------- sending

    def write(self, data: Any) -> None:
        if self.is_closing() or self.loop.is_over:
            return
        piece = bytes(data)
        if not piece:
            return
        network = self._network
        if self.peer_is_gone:
            self.is_unanswered = True
            if self.remote[0] not in network.off:
                self.reset_after(network.delay())
            return
        weather, chance = network.weather, network.world.random.random
        if weather.broken and chance() < weather.broken:
            network.world.faults["connection broken"] += 1
            self.break_(arrives=piece if chance() < 0.5 else b"")
            return
        if weather.split and len(piece) > 1 and chance() < weather.split:
            middle = 1 + int(chance() * (len(piece) - 1))
            self._transmit(piece[:middle])
            piece = piece[middle:]
        self._transmit(piece)

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def _transmit(self, piece: bytes | None) -> None:
        """Send `piece`, or for None the end of the stream."""
        network, peer = self._network, self.peer
        assert peer is not None
        if network.is_cut(self.local[0], self.remote[0]):
            network.world.faults["piece held by a cut"] += 1
            network.when_healed(self.local[0], self.remote[0], lambda: self._transmit(piece))
            return
        self._arrives = max(self._arrives, network.world.now + network.delay()) + 1e-9
        handle = asyncio.Handle(peer.receive, (piece,), peer.loop)
        network.world.push(self._arrives, peer.loop, handle)

    def break_(self, arrives: bytes = b"") -> None:
        """Reset the connection at both ends; data under way arrives or does not."""
        peer = self.peer
        assert peer is not None
        if arrives:
            self._transmit(arrives)
        late = max(self._arrives - self._network.world.now, 0.0) + 1e-6
        peer.reset_after(late if arrives else self._network.delay())
        self.reset_after(self._network.delay())

    def reset_after(self, delay: float) -> None:
        """Reset the connection at this end after a delay."""
        handle = asyncio.Handle(self._lose, (ConnectionResetError(104, "reset"),), self.loop)
        self._network.world.push(self._network.world.now + delay, self.loop, handle)

    # ------------------------------------------------------------------------------------ receiving

    def receive(self, piece: bytes | None) -> None:
        if not self._is_open or self._is_closing:
            return
        if piece is None:
            self._has_ended = True
            if not self._unread:
                self._lose(None)
        elif self._reading:
            self._give(piece)
        else:
            self._unread.append(piece)

    def _give(self, piece: bytes) -> None:
        protocol = self._protocol
        if not isinstance(protocol, asyncio.BufferedProtocol):
            protocol.data_received(piece)
            return
        view = memoryview(piece)
        while view and self._is_open and not self._is_closing:
            if not self._reading:
                self._unread.insert(0, bytes(view))
                return
            buffer = memoryview(protocol.get_buffer(-1))
            size = min(len(buffer), len(view))
            buffer[:size] = view[:size]
            view = view[size:]
            protocol.buffer_updated(size)

    def is_reading(self) -> bool:
        return self._reading

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        self._reading = True
        self.loop.call_soon(self._read_on)

    def _read_on(self) -> None:
        while self._unread and self._reading and self._is_open:
            self._give(self._unread.pop(0))
        if self._has_ended and not self._unread:
            self._lose(None)

    # --------------------------------------------------------------------------------------- ending

    def close(self) -> None:
        if self.is_closing():
            return
        self._is_closing = True
        if not self.loop.is_over:
            if not self.peer_is_gone:
                self._transmit(None)
            self.loop.call_soon(self._lose, None)

    def abort(self) -> None:
        if not self._is_open:
            return
        self._is_closing = True
        if self.loop.is_over:
            return
        self.loop.call_soon(self._lose, None)
        self.vanish()

    def vanish(self) -> None:
        """Drop this end; the other one gets a reset, if that is not held back by a cut."""
        network, peer = self._network, self.peer
        network.ends.pop(self, None)
        self._is_open_for_peer = False
        if peer is None or self.peer_is_gone:
            return
        if network.is_cut(self.local[0], self.remote[0]):
            network.when_healed(
                self.local[0], self.remote[0], lambda: peer.reset_after(network.delay())
            )
        else:
            peer.reset_after(network.delay())

    def _lose(self, error: Exception | None) -> None:
        if not self._is_open:
            return
        self._is_open = False
        self._network.ends.pop(self, None)
        self._protocol.connection_lost(error)


class Sockets:
    """The sockets of one process."""

    def __init__(self, network: Network, loop: SimulatedLoop, host: str) -> None:
        self._network = network
        self._loop = loop
        self._host = host

    def acceptor(self, factory: Callable[[], asyncio.BaseProtocol]) -> Acceptor:
        """Make a listener."""
        return Acceptor(self._network, self._loop, factory)

    async def create_connection(
        self, factory: Callable[[], Any], host: str, port: int, **_: Any
    ) -> tuple[Stream, Any]:
        """Connect; raises ConnectionRefusedError."""
        network = self._network
        await asyncio.sleep(network.delay())
        while network.is_cut(self._host, host) or host in network.off:
            await asyncio.sleep(0.2)
        server = network.listening.get(Endpoint(host, port))
        if server is None or not server.is_serving or server.loop.is_over:
            while network.is_cut(host, self._host):
                await asyncio.sleep(0.2)
            await asyncio.sleep(network.delay())
            raise ConnectionRefusedError(111, "connection refused")
        protocol = factory()
        local = self._host, network.port()
        near = Stream(network, self._loop, protocol, local, (host, port))
        far = Stream(network, server.loop, server.factory(), (host, port), local)
        near.peer, far.peer = far, near
        far.loop.call_soon(far._protocol.connection_made, far)
        try:
            await asyncio.sleep(network.delay())
            while network.is_cut(host, self._host):
                await asyncio.sleep(0.2)
        except BaseException:
            near._is_open = False
            near.vanish()
            raise
        if not near._is_open:
            raise ConnectionResetError(104, "reset")
        protocol.connection_made(near)
        return near, protocol

    def all_gone(self, *, power: bool) -> None:
        """Close the sockets of an ended process; after a power cut its peers are not told."""
        network, world = self._network, self._network.world
        for server in [each for each in network.listening.values() if each.loop is self._loop]:
            server.stop()
        for end in [each for each in network.ends if each.loop is self._loop]:
            end._is_open = False
            if power:
                network.ends.pop(end, None)
                if end.peer is not None:
                    end.peer.peer_is_gone = True
            else:
                end.vanish()
        if power:
            world.faults["machine silent"] += 1
            network.off.add(self._host)
