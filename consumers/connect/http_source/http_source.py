"""HttpSource: polls a server for JSON, at least once.

`docs/connect.md` has the properties. Its source offset is {"offset": .., "etag": ..,
"last_modified": ..} of {"connector": NAME}.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, ClassVar, Final, NamedTuple
from urllib.parse import urlsplit

import aiohttp
import uvloop
from yarl import URL

from consumers.connect.configuration.definitions import ConfigDef, ConfigValue
from consumers.connect.data.exceptions import ConnectException, DataException
from consumers.connect.data.records import SourceRecord
from consumers.connect.data.schemas import STRING
from consumers.connect.http.answers.status import Meaning, meaning_of, retry_after_s, status_text
from consumers.connect.http_source.answer_records import AnswerRecords, Offset
from consumers.connect.http_source.properties import CONFIG, Settings, validated
from consumers.connect.plugins.connector import SourceConnector
from consumers.connect.plugins.source_task import SourceTask
from waylog.process.log_throttle import LogThrottle, since_last_line

logger = logging.getLogger(__name__)

#: Seconds that `poll` waits for an answer, or for its time.
_WAIT_S: Final = 0.2
_CONNECT_S: Final = 10.0
_NOT_MODIFIED: Final = 304
_PIECE_BYTES: Final = 64 * 1024


class _Position(NamedTuple):
    """Holds the offset up to which was read, and what makes the same answer needless."""

    offset: Offset | None = None
    etag: str | None = None
    last_modified: str | None = None


class _Answer(NamedTuple):
    status: int
    headers: Mapping[str, str]  # whatever the case of their names
    body: bytes


class HttpSourceTask(SourceTask):
    """Asks, and makes records of the answers. One request is under way at most."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._session: aiohttp.ClientSession | None = None
        self._request: asyncio.Task[_Answer] | None = None
        self._position = _Position()
        self._next_s = 0.0
        self._failures = 0
        self._said = LogThrottle()

    def start(self, properties: Mapping[str, str]) -> None:
        """Make the event loop; raises ConfigException."""
        settings = self._settings = Settings.of(properties)
        parts = urlsplit(settings.url)
        #: For messages; path and query may have tokens in them.
        self._server = f"{parts.scheme}://{parts.netloc}"
        self._partition = {"connector": properties.get("name", "http")}
        self._records = AnswerRecords(settings)
        stored = self.context.offset_reader.offset(self._partition) or {}
        names = ("offset", "etag", "last_modified")
        self._position = _Position(*(stored.get(each) for each in names))
        self._loop = uvloop.new_event_loop()
        self._loop.run_until_complete(self._open())

    async def _open(self) -> None:
        settings = self._settings
        self._session = aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=settings.timeout_s, sock_connect=_CONNECT_S),
            headers={"User-Agent": "waylog-connect", "Accept": "application/json"}
            | settings.headers,
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            skip_auto_headers=("Accept-Encoding",),
        )

    def poll(self) -> Sequence[SourceRecord] | None:
        """Return the records of the next answer, or None after a moment without one.

        Raises ConnectException for what waiting does not cure.
        """
        assert self._loop is not None
        if self._request is None:
            wait_s = self._next_s - time.monotonic()
            if wait_s > 0:
                time.sleep(min(wait_s, _WAIT_S))
                return None
            self._request = self._loop.create_task(self._ask())
        self._loop.run_until_complete(asyncio.wait((self._request,), timeout=_WAIT_S))
        if not self._request.done():
            return None
        request, self._request = self._request, None
        try:
            return self._taken(request.result())
        except TimeoutError:
            self._postpone(f"no answer within {self._settings.timeout_s:g} s")
        except (aiohttp.ClientError, OSError) as error:
            self._postpone(type(error).__name__)
        except DataException as error:
            self._postpone(str(error))
        return None

    def stop(self) -> None:
        """Close connections and the event loop."""
        loop, self._loop = self._loop, None
        if loop is None:
            return
        if self._request is not None:
            self._request.cancel()
            loop.run_until_complete(asyncio.wait((self._request,)))
        if self._session is not None:
            loop.run_until_complete(self._session.close())
        loop.close()

    async def _ask(self) -> _Answer:
        assert self._session is not None
        position, settings = self._position, self._settings
        headers = {}
        if position.etag is not None:
            headers["If-None-Match"] = position.etag
        if position.last_modified is not None:
            headers["If-Modified-Since"] = position.last_modified
        async with self._session.get(
            URL(settings.url_at(position.offset), encoded=True),
            headers=headers,
            allow_redirects=False,
        ) as response:
            body = bytearray()
            async for piece in response.content.iter_chunked(_PIECE_BYTES):
                body += piece
                if len(body) > settings.bytes_max:
                    response.close()
                    raise ConnectException(
                        f"{self._server}: the answer has more than {settings.bytes_max} bytes; ask "
                        "for less at once, or raise response.bytes.max"
                    )
            return _Answer(response.status, response.headers, bytes(body))

    def _taken(self, answer: _Answer) -> Sequence[SourceRecord] | None:
        """Return the records of an answer; raises DataException, ConnectException."""
        if answer.status == _NOT_MODIFIED:
            self._succeed()
            return None
        meaning = meaning_of(answer.status)
        said = f"{self._server} answered {status_text(answer.status)}"
        if meaning is Meaning.LATER:
            after = retry_after_s(answer.headers.get("Retry-After"), datetime.now(UTC))
            self._postpone(said, after or 0.0)
            return None
        if meaning is not Meaning.DELIVERED:
            raise ConnectException(said)
        before = self._position
        # 204 has nothing, and no JSON.
        body = answer.body or b"[]"
        found, offset = self._records.read(body, before.offset)
        self._succeed()
        # Another offset is another question, whose answer the server has not tagged.
        is_same = self._settings.url_at(offset) == self._settings.url_at(before.offset)
        tags = (answer.headers.get("ETag"), answer.headers.get("Last-Modified")) if is_same else ()
        after_all = self._position = _Position(offset, *tags)
        now_ms = round(time.time() * 1000)
        # Only the last record has the new offset: with the others the answer would come in parts.
        positions = [before] * (len(found) - 1) + [after_all]
        return [
            SourceRecord(
                source_partition=self._partition,
                source_offset=_as_json(position),
                topic=self._settings.topic,
                key_schema=None if key is None else STRING,
                key=key,
                value_schema=STRING,
                value=value,
                timestamp=now_ms,
            )
            for (key, value), position in zip(found, positions, strict=False)
        ] or None

    def _succeed(self) -> None:
        self._failures = 0
        self._next_s = time.monotonic() + self._settings.interval_s

    def _postpone(self, reason: str, at_least_s: float = 0.0) -> None:
        self._failures += 1
        pause_s = max(self._settings.backoff.pause_s(self._failures), at_least_s)
        self._next_s = time.monotonic() + pause_s
        unsaid = self._said.count(time.monotonic())
        if unsaid is not None:
            more = since_last_line(unsaid)
            logger.warning("%s: %s; asked again in %.0f s%s", self._server, reason, pause_s, more)


def _as_json(position: _Position) -> dict[str, Any]:
    return {name: value for name, value in position._asdict().items() if value is not None}


class HttpSourceConnector(SourceConnector):
    """Polls one URL, in one task."""

    version = "1.0"
    config_def: ClassVar[ConfigDef] = CONFIG
    task_class = HttpSourceTask

    def start(self, properties: Mapping[str, str]) -> None:
        """Take the properties; raises ConfigException."""
        Settings.of(properties)
        self._properties = properties

    def task_configs(self, max_tasks: int) -> Sequence[Mapping[str, str]]:
        """Return the properties of the one task."""
        return [self._properties]

    def validate(self, properties: Mapping[str, str]) -> Mapping[str, ConfigValue]:
        """Return what there is to say about the properties."""
        return validated(properties)
