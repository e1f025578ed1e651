"""The relay between the gateway that reads the log's views and workers that only speak MQTT.

A worker tells which devices' addresses its clients want. The gateway passes on only those, so that
each address is read from the log once and not by every worker. Workers also ask it for retained
messages. Frames between workers take the same way (gateway.mqtt.workers.worker_hub). A frame on the
Unix socket is a length of four bytes, big-endian, followed by MessagePack.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec

from gateway.mqtt.packets.message import Message
from gateway.mqtt.workers.worker_hub import WorkerHub
from waylog.network.party_queues import PartyQueues
from waylog.network.stop_accepting import stop_accepting
from waylog.process.background import failure_ends_process
from waylog.process.log_throttle import LogThrottle

logger = logging.getLogger(__name__)

_FRAME_BYTES_MAX: Final = 64 * 1024 * 1024
#: Bytes that a worker may leave unread before it is cut; it gets what it missed on return.
_UNREAD_BYTES_MAX: Final = 64 * 1024 * 1024
_RETAINED_MAX: Final = 20_000
_RETAINED_A_STEP: Final = 100
#: Bytes of the messages of one answer, which has to fit into a frame.
_RETAINED_BYTES_MAX: Final = 32 * 1024 * 1024
#: Seconds of one turn of the event loop for searches.
_TURN_S: Final = 0.0005
_NAME: Final = "the relay between workers"
EVERYBODY: Final = ""
#: Last levels of topics that the platform publishes, and wildcards.
_OF_THE_PLATFORM: Final = ("address", "info", "event", "notice", "+", "#")

_decode = msgspec.msgpack.Decoder(list[Any]).decode
_encode = msgspec.msgpack.Encoder().encode


#: Topic, payload, and `Message.card_parts`.
Found = tuple[str, bytes, bytes | None]


def watched(topic_filter: str) -> str | None:
    """Return whose addresses a filter may match: `user/device`, `user/`, or EVERYBODY.

    None if it matches none.
    """
    levels = topic_filter.split("/")
    if levels[0] not in ("devices", "owntracks", "+", "#"):
        return None
    wild = [level in ("+", "#") for level in levels[:3]]
    if len(levels) == 1 or wild[1]:
        return EVERYBODY
    if len(levels) == 2:
        return None
    if wild[2]:
        return f"{levels[1]}/"
    if len(levels) == 3 or (levels[3] not in _OF_THE_PLATFORM):
        return None
    return f"{levels[1]}/{levels[2]}"


class FrameProtocol(asyncio.Protocol):
    """Reads and writes frames; `on_frame(protocol, frame)` receives each.

    An exception in it ends the process: the frames of this read would be lost, and with them
    messages that have been acknowledged.
    """

    def __init__(
        self,
        on_frame: Callable[[FrameProtocol, list[Any]], None],
        on_lost: Callable[[FrameProtocol], None],
    ) -> None:
        self._on_frame = on_frame
        self._on_lost = on_lost
        self._loop = asyncio.get_running_loop()
        self._buffer = bytearray()
        self.transport: asyncio.WriteTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]  # of a stream socket

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        position = 0
        while len(self._buffer) - position >= 4:
            size = int.from_bytes(self._buffer[position : position + 4], "big")
            if size > _FRAME_BYTES_MAX:
                self.close()
                return
            end = position + 4 + size
            if len(self._buffer) < end:
                break
            frame = bytes(self._buffer[position + 4 : end])
            position = end
            with failure_ends_process(self._loop, _NAME):
                self._on_frame(self, _decode(frame))
        del self._buffer[:position]

    def send(self, *frame: Any) -> None:
        """Send one frame; disconnect a peer that leaves too much unread."""
        if self.transport is None:
            return
        data = _encode(frame)
        self.transport.write(len(data).to_bytes(4, "big") + data)
        if self.transport.get_write_buffer_size() > _UNREAD_BYTES_MAX:
            self.close()

    def close(self) -> None:
        """Abort the connection."""
        if self.transport is not None:
            self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = None
        with failure_ends_process(self._loop, _NAME):
            self._on_lost(self)


def _remove(path: Path) -> None:
    # A killed process has left its socket there.
    path.unlink(missing_ok=True)


def _protect(path: Path) -> None:
    path.chmod(0o600)


class RetainedSource(Protocol):
    """Makes the retained messages for new subscribers."""

    def retained(self, topic_filter: str) -> Iterable[Message | None]: ...


class AddressView(Protocol):
    """The newest address of each device, in the bytes of the log's record."""

    def newest_raw(self, device: str) -> bytes | None: ...


class _End:
    """Follows the last message of a search."""


_THE_END: Final = _End()


class _Search:
    """A worker's question about retained messages; a long search takes several steps."""

    def __init__(
        self, worker: FrameProtocol, number: int, source: RetainedSource, topic_filter: str
    ) -> None:
        self._worker = worker
        self._number = number
        self._messages = _retained(source, topic_filter)
        self.topic_filter = topic_filter
        self._found: list[Found] = []
        self._found_bytes = 0

    def step(self) -> bool:
        """Go on with the search, and answer at its end; return whether it has ended."""
        if self._worker.transport is None:
            return True
        for _ in range(_RETAINED_A_STEP):
            message = next(self._messages, _THE_END)
            if isinstance(message, _End):
                break
            if message is None:
                return False
            self._found.append((message.topic, message.payload, message.card_parts))
            self._found_bytes += len(message.topic) + len(message.payload)
            self._found_bytes += len(message.card_parts or b"")
            if len(self._found) == _RETAINED_MAX or self._found_bytes > _RETAINED_BYTES_MAX:
                break
        else:
            return False
        self._worker.send("answer", self._number, self._found)
        return True

    def give_up(self) -> None:
        """Answer that there is nothing: the worker delivers what it has itself."""
        self._worker.send("answer", self._number, [])


def _retained(source: RetainedSource, topic_filter: str) -> Iterator[Message | None]:
    yield from source.retained(topic_filter)  # called with the first step


class _Searches:
    """The searches of all workers, in turns: first of users, then of each user's searches.

    All together have a bounded part of each turn of the loop. Workers bound how many questions of a
    user are under way (gateway.mqtt.workers.retained_questions). A search that fails ends alone.
    """

    def __init__(self) -> None:
        self._of_users: PartyQueues[_Search] = PartyQueues()
        self._scheduled = False
        self._said = LogThrottle()

    def begin(self, user: str, search: _Search) -> None:
        """Begin a search that is made for a client of a user."""
        self._of_users.add(user, search)
        self._go_on()

    def _go_on(self) -> None:
        if self._of_users and not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        self._scheduled = False
        clock = asyncio.get_running_loop().time
        until = clock() + _TURN_S
        while self._of_users:
            user, search = self._of_users.next()
            try:
                has_ended = search.step()
            except Exception as error:
                self._failed(search, error)
                has_ended = True
            if not has_ended:
                self._of_users.add(user, search)
            if clock() > until:
                break
        self._go_on()

    def _failed(self, search: _Search, error: Exception) -> None:
        search.give_up()
        unsaid = self._said.count(asyncio.get_running_loop().time())
        if unsaid is not None:
            logger.error(
                "the search for what is retained for %.200r has failed, and its answer is empty%s",
                search.topic_filter,
                f" ({unsaid} more searches before)" if unsaid else "",
                exc_info=error,
            )


class Relay:
    """The gateway's side of the relay, registered with its pusher as an address channel.

    Frames from worker to worker go to `worker_hub`.
    """

    def __init__(
        self,
        source: RetainedSource,
        addresses: AddressView,
        worker_hub: WorkerHub,
    ) -> None:
        self._source = source
        self._addresses = addresses
        self._worker_hub = worker_hub
        self._searches = _Searches()
        self._server: asyncio.Server | None = None
        # The workers that watch each name; nearly always one worker watches one device.
        self._watchers: dict[str, dict[FrameProtocol, None]] = {}
        self._workers: dict[FrameProtocol, set[str]] = {}
        self._waiting: dict[FrameProtocol, list[tuple[str, bytes]]] = {}

    async def start(self, path: Path) -> None:
        """Listen on a Unix socket at `path`, which only this system user may open."""
        _remove(path)
        self._server = await asyncio.get_running_loop().create_unix_server(
            lambda: FrameProtocol(self._on_frame, self._on_lost), str(path)
        )
        _protect(path)

    async def close(self) -> None:
        """Stop listening, and disconnect the workers."""
        if self._server is not None:
            server, self._server = self._server, None
            await stop_accepting(server)
        for worker in list(self._workers):
            worker.close()

    def __len__(self) -> int:
        """The number of workers."""
        return len(self._workers)

    def address_changed(self, device: str, value: bytes) -> None:
        """Pass a new address on to the workers that want it; called by the pusher."""
        user = device.partition("/")[0]
        for name in (device, f"{user}/", EVERYBODY):
            for worker in self._watchers.get(name, ()):
                self._pass_on(worker, device, value)

    def arrived(self, device: str, transition: bytes) -> None:
        """Pass on that a device has arrived at a favourite place; called by the pusher."""
        self._pass_on_news("arrived", f"{device.partition('/')[0]}/places", device, transition)

    def noticed(self, device: str, notice: bytes) -> None:
        """Pass on a notice of an event; called by the pusher."""
        self._pass_on_news("noticed", device, device, notice)

    def _pass_on_news(self, kind: str, watched_name: str, device: str, payload: bytes) -> None:
        user = device.partition("/")[0]
        workers = {
            worker
            for name in (watched_name, f"{user}/", EVERYBODY)
            for worker in self._watchers.get(name, ())
        }
        for worker in workers:
            worker.send(kind, device, payload)

    def _pass_on(self, worker: FrameProtocol, device: str, value: bytes) -> None:
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self._send_waiting)
        self._waiting.setdefault(worker, []).append((device, value))

    def _send_waiting(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for worker, news in waiting.items():
            worker.send("addresses", news)

    def _on_frame(self, worker: FrameProtocol, frame: list[Any]) -> None:
        kind, *arguments = frame
        if kind == "watch":
            self._watch(worker, *arguments)
        elif kind == "retained":
            number, topic_filter, user = arguments
            self._searches.begin(user, _Search(worker, number, self._source, topic_filter))
        else:
            self._worker_hub.on_frame(worker, kind, arguments)

    def _watch(self, worker: FrameProtocol, names: list[tuple[str, bool]], again: bool) -> None:
        watching = self._workers.setdefault(worker, set())
        for name, wanted in names:
            if not wanted:
                watching.discard(name)
                self._forget(name, worker)
                continue
            watching.add(name)
            self._watchers.setdefault(name, {})[worker] = None
            # A worker that was disconnected has missed addresses.
            value = self._addresses.newest_raw(name) if again else None
            if value is not None:
                self._pass_on(worker, name, value)

    def _forget(self, name: str, worker: FrameProtocol) -> None:
        watchers = self._watchers.get(name)
        if watchers is not None:
            watchers.pop(worker, None)
            if not watchers:
                del self._watchers[name]

    def _on_lost(self, worker: FrameProtocol) -> None:
        for name in self._workers.pop(worker, ()):
            self._forget(name, worker)
        self._waiting.pop(worker, None)
        self._worker_hub.leave(worker)
