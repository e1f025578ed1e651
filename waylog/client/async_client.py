"""The client for asyncio."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from types import TracebackType
from typing import Any, Final, Literal, Self, TypeVar
from urllib.parse import quote, unquote

import aiohttp
import msgspec
from yarl import URL

from waylog.client.answers import (
    Device,
    DeviceReceipt,
    DeviceToken,
    FavouritePlace,
    Journey,
    NewDeviceToken,
    Position,
    Refusal,
    Sent,
    TrackPoint,
    Visit,
)
from waylog.client.errors import ApiError, Unreachable
from waylog.client.live import Event, EventReader, Subscription
from waylog.client.requests import (
    PAUSE_S,
    Numbered,
    Time,
    authorization,
    batches,
    decoded,
    error_of,
    is_later,
    of_device,
    period,
    retry_after_s,
    track_points,
    with_query,
)
from waylog.messages import Address
from waylog.movement.diary import Item, Total

Answer = TypeVar("Answer")
TrackFormat = Literal["geojson", "gpx", "kml", "csv"]
Span = Literal["day", "week", "month", "year"]

_CONNECT_S: Final = 10.0
_HEARTBEAT_S: Final = 20.0
#: The longest pause between two attempts to connect.
_PAUSE_S_MAX: Final = 30.0
#: Of a device that is not known yet, or not to be seen by the user.
_NOT_SEEN: Final = frozenset((403, 404))
_MESSAGE_BYTES_MAX: Final = 16 * 1024 * 1024


class _Accepted(msgspec.Struct):
    ids: list[str]
    rejected: list[Refusal] = []


class _Timeline(msgspec.Struct):
    items: list[Item]


class _Day(msgspec.Struct):
    date: str
    fixes: int


class _Days(msgspec.Struct):
    days: list[_Day]


class _Totals(msgspec.Struct):
    totals: list[Total]


class AsyncClient:
    """Talks to one gateway as one user or device.

    Used in the event loop in which it was made, as an asynchronous context manager or with `close`.
    All methods raise ApiError for a refusal, and Unreachable if nothing answers.
    """

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
        """`url` is that of the gateway, such as https://waylog.example.org.

        `token` is the token or password of `user`, or without one a token that names its device.
        `timeout_s` is for one request. Positions are sent again for `patience_s` while the gateway
        is not there, or cannot take them yet. `ssl_context` is for certificates of one's own.
        """
        self._base: Final = url.rstrip("/")
        self._user: Final = user
        self._patience_s: Final = patience_s
        connector = aiohttp.TCPConnector(ssl=True if ssl_context is None else ssl_context)
        self._http: Final = aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"Authorization": authorization(user, token)},
            timeout=aiohttp.ClientTimeout(timeout_s, sock_connect=_CONNECT_S),
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._http.close()

    # ---- sending ----

    async def send(self, positions: Position | Iterable[Position]) -> Sent:
        """Store positions; return once all in-sync replicas of the log have all of them.

        Those that can never be accepted are in `rejected`. Sent in batches; after an exception the
        first batches may be stored, and sending all of them again stores nothing twice.
        """
        several = [positions] if isinstance(positions, Position) else positions
        ids: list[str] = []
        rejected: list[Refusal] = []
        for batch in batches(several):
            stored = await self._send_batch(batch)
            ids += stored.ids
            rejected += [Refusal(each.index + batch.first, each.reason) for each in stored.rejected]
        return Sent(ids, rejected)

    async def _send_batch(self, batch: Numbered) -> _Accepted:
        deadline = time.monotonic() + self._patience_s
        pause_s = PAUSE_S
        while True:
            failure: Exception
            try:
                answer = await self._answer("POST", "/v1/positions", batch.body)
            except Unreachable as error:
                failure, wait_s = error, pause_s
                pause_s = min(2 * pause_s, _PAUSE_S_MAX)
            else:
                if answer.status == 200:
                    return decoded(answer.body, _Accepted)
                failure = error_of(answer.status, answer.body)
                if not is_later(answer.status):
                    raise failure
                wait_s = retry_after_s(answer.retry_after)
            if time.monotonic() + wait_s > deadline:
                raise failure
            await asyncio.sleep(wait_s)

    # ---- where devices are ----

    async def devices(self, *, page: int | None = None) -> AsyncIterator[Device]:
        """Yield all devices that the user may see, sorted by name.

        `page` is how many one request asks for; None: as many as the gateway gives.
        """
        after: str | None = None
        while True:
            answer = await self._success("GET", with_query("/v1/devices", limit=page, after=after))
            for device in decoded(answer.body, list[Device]):
                yield device
            if answer.more_after is None:
                return
            after = unquote(answer.more_after)

    async def device(self, device: str) -> Device:
        """Return what is known now of `user/name`."""
        return await self._get(of_device(device), Device)

    async def address(self, device: str) -> Address:
        """Return the address of a device's newest resolved fix."""
        return await self._get(of_device(device, "address"), Address)

    async def live(
        self,
        *,
        devices: Sequence[str] | None = None,
        bbox: tuple[float, float, float, float] | None = None,
        friends: bool = True,
    ) -> AsyncIterator[Event]:
        """Yield the newest fix and address of each device, then what comes, without a gap.

        `bbox` is west, south, east and north. What comes while the newest ones are read may be
        yielded twice. A connection that is lost is made again, and goes on where it was; only after
        `patience_s` without one Unreachable is raised.
        """
        wanted = Subscription(
            devices=None if devices is None else list(devices), bbox=bbox, friends=friends
        )
        reader = EventReader()
        has_begun = False
        lost_since: float | None = None
        pause_s = PAUSE_S
        while True:
            try:
                async with self._http.ws_connect(
                    self._url(with_query("/v1/ws", since=reader.cursor)),
                    heartbeat=_HEARTBEAT_S,
                    max_msg_size=_MESSAGE_BYTES_MAX,
                ) as socket:
                    await socket.send_bytes(msgspec.json.encode(wanted))
                    async for message in socket:
                        if message.type not in (aiohttp.WSMsgType.TEXT, aiohttp.WSMsgType.BINARY):
                            continue
                        lost_since, pause_s = None, PAUSE_S
                        event = reader.read(message.data)
                        if reader.is_subscribed and not has_begun:
                            has_begun = True
                            async for known in self._newest(wanted):
                                yield known
                        if event is not None:
                            yield event
                cause: Exception = Unreachable("the live stream has ended")
            except aiohttp.WSServerHandshakeError as error:
                if not is_later(error.status):
                    raise ApiError(error.status, error.message) from error
                cause = error
            except (aiohttp.ClientError, OSError, TimeoutError) as error:
                cause = error
            now = time.monotonic()
            lost_since = now if lost_since is None else lost_since
            if now + pause_s - lost_since > self._patience_s:
                raise Unreachable(f"{self._base}: {cause}") from cause
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _PAUSE_S_MAX)

    async def _newest(self, wanted: Subscription) -> AsyncIterator[Event]:
        if wanted.devices is None:
            async for device in self.devices():
                for event in wanted.events_of(device, self._user):
                    yield event
            return
        for name in wanted.devices:
            try:
                known = await self.device(name)
            except ApiError as error:
                if error.status not in _NOT_SEEN:
                    raise
                continue
            for event in wanted.events_of(known, self._user):
                yield event

    # ---- where they were ----

    async def track(
        self, device: str, since: Time | None = None, until: Time | None = None
    ) -> list[TrackPoint]:
        """Return the points of a device by time, at most some 250,000."""
        return track_points(await self.track_file(device, "geojson", since, until))

    async def track_file(
        self,
        device: str,
        file_format: TrackFormat,
        since: Time | None = None,
        until: Time | None = None,
    ) -> bytes:
        """Return a track as a file."""
        query = period(since, until)
        answer = await self._success("GET", of_device(device, "track", format=file_format, **query))
        return answer.body

    async def places(self, device: str) -> list[FavouritePlace]:
        """Return the favourite places of a device."""
        return await self._get(of_device(device, "places"), list[FavouritePlace])

    async def visits(
        self, device: str, since: Time | None = None, until: Time | None = None
    ) -> list[Visit]:
        """Return the stays that the history job has found, by time."""
        return await self._get(of_device(device, "visits", **period(since, until)), list[Visit])

    async def trips(
        self, device: str, since: Time | None = None, until: Time | None = None
    ) -> list[Journey]:
        """Return the trips between visits, by time."""
        return await self._get(of_device(device, "trips", **period(since, until)), list[Journey])

    async def timeline(self, device: str, since: Time, until: Time) -> list[Item]:
        """Return what a device did in at most 32 days: stays, trips and gaps, without holes."""
        found = await self._get(of_device(device, "timeline", **period(since, until)), _Timeline)
        return found.items

    async def days(
        self, device: str, since: Time, until: Time, *, time_zone: str = "UTC"
    ) -> dict[str, int]:
        """Return the days (YYYY-MM-DD) with fixes, and how many; at most 400 days."""
        path = of_device(device, "days", tz=time_zone, **period(since, until))
        return {day.date: day.fixes for day in (await self._get(path, _Days)).days}

    async def statistics(
        self, device: str, since: Time, until: Time, *, by: Span = "day", time_zone: str = "UTC"
    ) -> list[Total]:
        """Return totals of days, weeks, months or years."""
        path = of_device(device, "statistics", by=by, tz=time_zone, **period(since, until))
        return (await self._get(path, _Totals)).totals

    async def receipt(
        self, device: str, day: str = "today", *, time_zone: str = "UTC"
    ) -> DeviceReceipt:
        """Return where the fixes of a day (YYYY-MM-DD, today or yesterday) are."""
        return await self._get(of_device(device, "receipts", day=day, tz=time_zone), DeviceReceipt)

    # ---- the user's devices ----

    async def device_tokens(self) -> list[DeviceToken]:
        """Return the user's devices that have tokens of their own."""
        return await self._get("/v1/device-tokens", list[DeviceToken])

    async def create_device_token(self, name: str, app: str) -> NewDeviceToken:
        """Make a token for a device, and what sets up an app such as `owntracks_mqtt`."""
        body = msgspec.json.encode({"name": name, "app": app})
        answer = await self._success("POST", "/v1/device-tokens", body)
        return decoded(answer.body, NewDeviceToken)

    async def revoke_device_tokens(self, name: str) -> None:
        """Revoke all tokens of a device."""
        await self._success("DELETE", f"/v1/device-tokens/{quote(name, safe='')}")

    # ---- everything else ----

    async def request(self, method: str, path: str, body: Any = None) -> Any:
        """Return the decoded answer of any path of /openapi.json; None for one without a body."""
        encoded = None if body is None else msgspec.json.encode(body)
        answer = await self._success(method, path, encoded)
        return decoded(answer.body, object) if answer.body else None

    async def _get(self, path: str, kind: type[Answer]) -> Answer:
        return decoded((await self._success("GET", path)).body, kind)

    async def _success(self, method: str, path: str, body: bytes | None = None) -> _Answer:
        answer = await self._answer(method, path, body)
        if not 200 <= answer.status < 300:
            raise error_of(answer.status, answer.body)
        return answer

    async def _answer(self, method: str, path: str, body: bytes | None = None) -> _Answer:
        headers = {} if body is None else {"Content-Type": "application/json"}
        try:
            async with self._http.request(
                method, self._url(path), data=body, headers=headers, allow_redirects=False
            ) as answer:
                return _Answer(
                    answer.status,
                    await answer.read(),
                    answer.headers.get("Retry-After"),
                    answer.headers.get("Waylog-More-After"),
                )
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            # Some say nothing about themselves.
            raise Unreachable(f"{self._base}: {str(error) or type(error).__name__}") from error

    def _url(self, path: str) -> URL:
        # A device's slash is percent-encoded, and has to stay so.
        return URL(self._base + path, encoded=True)


class _Answer(msgspec.Struct, frozen=True):
    status: int
    body: bytes
    retry_after: str | None
    more_after: str | None
