"""Sends over HTTP: the fixes of a device in order, several devices at once."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

import aiohttp
import msgspec

from waylog.cli import CommandError
from waylog.malformed import MALFORMED
from waylog.replay.senders import wire
from waylog.replay.senders.tally import Tally
from waylog.replay.senders.wire import Outgoing

_LANES: Final = 32
#: Fixes; large enough that a device that falls behind does not delay those after it in the file.
_QUEUE_FIXES: Final = 500
#: Fixes; a device that waits for each answer must not delay the reading of others' fixes.
_LANE_FIXES: Final = 2000
_BATCH_FIXES: Final = {"positions": 200, "overland": 200, "owntracks": 1, "osmand": 1}
_PATHS: Final = {
    "positions": "/v1/positions",
    "overland": "/overland",
    "owntracks": "/owntracks",
    "osmand": "/osmand",
}
_BACKOFF_MIN_S: Final = 0.1
_BACKOFF_MAX_S: Final = 5.0
_REQUEST_TIMEOUT_S: Final = 60.0


class HttpSender:
    """Sends fixes to a gateway, and repeats each until it is acknowledged or refused for good.

    All fixes of a device take the same lane. A lane has one request in flight at a time, so that
    the fixes of a device stay in order.
    """

    def __init__(
        self, gateway: str, user: str, token: str | None, wire_format: str, tally: Tally
    ) -> None:
        self._url = gateway.rstrip("/") + _PATHS[wire_format]
        self._user = user
        self._token = token
        self._format = wire_format
        self._batch_fixes = _BATCH_FIXES[wire_format]
        self._tally = tally
        self._lane_of: dict[str, int] = {}

    async def run(self, fixes: AsyncIterator[Outgoing]) -> None:
        """Send all; returns when all are answered. Raises CommandError for bad credentials."""
        queues: list[asyncio.Queue[Outgoing | None]] = [
            asyncio.Queue(_LANE_FIXES) for _ in range(_LANES)
        ]
        async with (
            aiohttp.ClientSession(
                headers={
                    "Authorization": aiohttp.encode_basic_auth(
                        self._user, self._token or "", "utf-8"
                    )
                },
                connector=aiohttp.TCPConnector(limit=_LANES),
                timeout=aiohttp.ClientTimeout(total=_REQUEST_TIMEOUT_S),
            ) as session,
            asyncio.TaskGroup() as tasks,
        ):
            for queue in queues:
                tasks.create_task(self._serve(queue, session))
            async for fix in fixes:
                lane = self._lane_of.setdefault(fix.name, len(self._lane_of) % _LANES)
                await queues[lane].put(fix)
            for queue in queues:
                await queue.put(None)

    async def _serve(
        self, queue: asyncio.Queue[Outgoing | None], session: aiohttp.ClientSession
    ) -> None:
        following: Outgoing | None = None
        while True:
            fix = following or await queue.get()
            if fix is None:
                return
            batch, following, ended = [fix], None, False
            while len(batch) < self._batch_fixes and not queue.empty():
                another = queue.get_nowait()
                if another is None:
                    ended = True
                    break
                if another.name != fix.name:
                    following = another
                    break
                batch.append(another)
            await self._deliver(session, batch)
            if ended:
                return

    async def _deliver(self, session: aiohttp.ClientSession, batch: Sequence[Outgoing]) -> None:
        for fix in batch:
            self._tally.fix_sent(fix)
        request = self._request(batch)
        backoff_s = _BACKOFF_MIN_S
        while True:
            try:
                async with session.post(self._url, **request) as response:
                    answer = await response.read()
                    if response.status < 300:
                        self._account(batch, answer)
                        return
                    self._refuse(response.status, answer)
                    trouble = f"{self._url} answered {response.status}"
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                trouble = f"{self._url}: {error or type(error).__name__}"
            self._tally.attempt_failed(trouble, len(batch))
            await asyncio.sleep(backoff_s * random.uniform(0.5, 1.0))
            backoff_s = min(_BACKOFF_MAX_S, backoff_s * 2)

    def _request(self, batch: Sequence[Outgoing]) -> dict[str, Any]:
        json_body = {"Content-Type": "application/json"}
        if self._format == "positions":
            return {"data": wire.positions(batch), "headers": json_body}
        if self._format == "overland":
            return {"data": wire.overland(batch), "headers": json_body}
        if self._format == "osmand":
            query = wire.osmand_query(batch[0]).encode()
            return {
                "data": query,
                "headers": {"Content-Type": "application/x-www-form-urlencoded"},
            }
        return {
            "data": wire.owntracks(batch[0]),
            "headers": json_body | {"X-Limit-U": self._user, "X-Limit-D": batch[0].name},
        }

    def _refuse(self, status: int, answer: bytes) -> None:
        """Raise CommandError for an answer that a repetition will not change."""
        if status in (408, 425, 429) or status >= 500:
            return
        text = answer[:200].decode("utf-8", "replace").strip()
        if status in (401, 403):
            raise CommandError(
                f"{self._url} does not accept user {self._user!r} ({status}): {text or 'no reason'}"
            )
        raise CommandError(f"{self._url} answered {status}: {text or 'no reason'}")

    def _account(self, batch: Sequence[Outgoing], answer: bytes) -> None:
        refused: set[int] = set()
        if self._format == "positions":
            try:
                refused = {each.index for each in _positions_answer.decode(answer).rejected}
            except MALFORMED as error:
                raise CommandError(f"{self._url} is not a gateway's: {error}") from error
        for index, fix in enumerate(batch):
            if index in refused:
                self._tally.fix_rejected()
            else:
                self._tally.fix_acknowledged(fix)


class _Refused(msgspec.Struct):
    index: int


class _PositionsAnswer(msgspec.Struct):
    accepted: int
    rejected: list[_Refused] = []


_positions_answer = msgspec.json.Decoder(_PositionsAnswer)
