"""The client for programs without asyncio: the other one, on an event loop in a thread."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Coroutine, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError, Future
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from waylog.client.answers import (
    Device,
    DeviceReceipt,
    DeviceToken,
    FavouritePlace,
    Journey,
    NewDeviceToken,
    Position,
    Sent,
    TrackPoint,
    Visit,
)
from waylog.client.async_client import AsyncClient, Span, TrackFormat
from waylog.client.live import Event
from waylog.client.requests import Time
from waylog.messages import Address
from waylog.movement.diary import Item, Total
from waylog.process.threads import start_thread

Result = TypeVar("Result")


class _End:
    """Stands behind the last result of an iterator."""


_END: Final = _End()


class Client:
    """AsyncClient for any thread; see there for what its methods do and raise."""

    def __init__(
        self,
        url: str,
        *,
        token: str,
        user: str | None = None,
        timeout_s: float = 60.0,
        patience_s: float = 60.0,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        """See AsyncClient."""
        self._loop: Final = asyncio.new_event_loop()
        self._pending: Final[set[Future[Any]]] = set()
        self._has_ended = False
        self._thread: Final = start_thread(
            self._loop.run_forever,
            "waylog-client",
            may_end=lambda: self._has_ended,
            on_failure=self._cancel,
        )

        async def begin() -> AsyncClient:
            return AsyncClient(
                url,
                token=token,
                user=user,
                timeout_s=timeout_s,
                patience_s=patience_s,
                ssl_context=ssl_context,
            )

        try:
            self._client: Final = self._run(begin())
        except BaseException:
            self._end()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections, and end the thread."""
        if self._has_ended:
            return
        self._run(self._client.close())
        self._end()

    def _end(self) -> None:
        self._has_ended = True
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._cancel()
        self._loop.close()

    def _cancel(self) -> None:
        """Let nobody wait for a loop that has ended."""
        self._has_ended = True
        for each in list(self._pending):
            each.cancel()

    def _run(self, work: Coroutine[Any, Any, Result]) -> Result:
        if self._has_ended:
            work.close()
            raise RuntimeError("the client is closed")
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        self._pending.add(future)
        try:
            return future.result()
        except CancelledError as error:
            raise RuntimeError("the client was closed meanwhile") from error
        except BaseException:
            # An interrupt must not leave it running.
            future.cancel()
            raise
        finally:
            self._pending.discard(future)

    def _each(self, found: AsyncIterator[Result]) -> Iterator[Result]:
        async def following() -> Result | _End:
            return await anext(found, _END)

        async def end() -> None:
            close = getattr(found, "aclose", None)
            if close is not None:
                await close()

        try:
            while True:
                one = self._run(following())
                if isinstance(one, _End):
                    return
                yield one
        finally:
            if not self._has_ended:
                self._run(end())

    # ---- sending ----

    def send(self, positions: Position | Iterable[Position]) -> Sent:
        """See AsyncClient."""
        return self._run(self._client.send(positions))

    # ---- where devices are ----

    def devices(self, *, page: int | None = None) -> Iterator[Device]:
        """See AsyncClient."""
        return self._each(self._client.devices(page=page))

    def device(self, device: str) -> Device:
        """See AsyncClient."""
        return self._run(self._client.device(device))

    def address(self, device: str) -> Address:
        """See AsyncClient."""
        return self._run(self._client.address(device))

    def live(
        self,
        *,
        devices: Sequence[str] | None = None,
        bbox: tuple[float, float, float, float] | None = None,
        friends: bool = True,
    ) -> Iterator[Event]:
        """See AsyncClient."""
        return self._each(self._client.live(devices=devices, bbox=bbox, friends=friends))

    # ---- where they were ----

    def track(
        self, device: str, since: Time | None = None, until: Time | None = None
    ) -> list[TrackPoint]:
        """See AsyncClient."""
        return self._run(self._client.track(device, since, until))

    def track_file(
        self,
        device: str,
        file_format: TrackFormat,
        since: Time | None = None,
        until: Time | None = None,
    ) -> bytes:
        """See AsyncClient."""
        return self._run(self._client.track_file(device, file_format, since, until))

    def places(self, device: str) -> list[FavouritePlace]:
        """See AsyncClient."""
        return self._run(self._client.places(device))

    def visits(
        self, device: str, since: Time | None = None, until: Time | None = None
    ) -> list[Visit]:
        """See AsyncClient."""
        return self._run(self._client.visits(device, since, until))

    def trips(
        self, device: str, since: Time | None = None, until: Time | None = None
    ) -> list[Journey]:
        """See AsyncClient."""
        return self._run(self._client.trips(device, since, until))

    def timeline(self, device: str, since: Time, until: Time) -> list[Item]:
        """See AsyncClient."""
        return self._run(self._client.timeline(device, since, until))

    def days(
        self, device: str, since: Time, until: Time, *, time_zone: str = "UTC"
    ) -> dict[str, int]:
        """See AsyncClient."""
        return self._run(self._client.days(device, since, until, time_zone=time_zone))

    def statistics(
        self, device: str, since: Time, until: Time, *, by: Span = "day", time_zone: str = "UTC"
    ) -> list[Total]:
        """See AsyncClient."""
        return self._run(self._client.statistics(device, since, until, by=by, time_zone=time_zone))

    def receipt(self, device: str, day: str = "today", *, time_zone: str = "UTC") -> DeviceReceipt:
        """See AsyncClient."""
        return self._run(self._client.receipt(device, day, time_zone=time_zone))

    # ---- the user's devices ----

    def device_tokens(self) -> list[DeviceToken]:
        """See AsyncClient."""
        return self._run(self._client.device_tokens())

    def create_device_token(self, name: str, app: str) -> NewDeviceToken:
        """See AsyncClient."""
        return self._run(self._client.create_device_token(name, app))

    def revoke_device_tokens(self, name: str) -> None:
        """See AsyncClient."""
        self._run(self._client.revoke_device_tokens(name))

    # ---- everything else ----

    def request(self, method: str, path: str, body: Any = None) -> Any:
        """See AsyncClient."""
        return self._run(self._client.request(method, path, body))
