"""The properties of HttpSource."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import quote

import msgspec

from consumers.connect.configuration.definitions import (
    ConfigDef,
    ConfigType,
    ConfigValue,
    Importance,
    grouped_key,
)
from consumers.connect.configuration.exceptions import hidden_value, invalid_value
from consumers.connect.configuration.validators import (
    all_of,
    at_least,
    between,
    non_empty,
    one_of,
    topic_name,
)
from consumers.connect.http.request_headers import (
    LOGIN_KEYS,
    authorization,
    checked_headers,
    header_errors,
    login_contradictions,
)
from consumers.connect.http.server_url import parts_of_url
from consumers.connect.http_source.json_pointer import JsonPointer
from consumers.connect.http_source.positions import TEMPLATES, Template
from consumers.connect.plugins.backoff import Backoff, backoff_keys

URL: Final = "http.url"
TOPIC: Final = "kafka.topic"
TEMPLATE: Final = "template"
INTERVAL: Final = "poll.interval.ms"
RECORDS: Final = "records.pointer"
KEY: Final = "key.pointer"
OFFSET: Final = "offset.pointer"
INITIAL: Final = "offset.initial"
BYTES: Final = "response.bytes.max"
TIMEOUT: Final = "request.timeout.ms"

_NONE: Final = "none"
_REQUEST, _RECORDS, _POLLING = "Request", "Records", "Polling"
_OFFSET: Final = "${offset}"
_OFFSET_TIME: Final = "${offset.time}"
_YEAR_MAX_S: Final = 253_402_300_799


def _valid_url(name: str, value: Any) -> None:
    """Raise ConfigException, which shows nothing of the URL."""
    if value is None:
        return
    parts = parts_of_url(name, value)
    rest = parts.query.replace(_OFFSET, "").replace(_OFFSET_TIME, "")
    if "$" in f"{parts.netloc}{parts.path}{parts.fragment}{rest}":
        raise hidden_value(name, f"{_OFFSET} and {_OFFSET_TIME} may stand in the query alone")


def _valid_pointer(name: str, value: Any) -> None:
    if value is not None:
        try:
            JsonPointer(value)
        except ValueError as error:
            raise invalid_value(name, value, str(error)) from None


CONFIG: Final = ConfigDef(
    [
        grouped_key(
            *(URL, ConfigType.STRING, _REQUEST, 1),
            "What is asked for. In the query ${offset} is the newest offset, ${offset.time} the "
            "same as ISO 8601 if it is seconds.",
            importance=Importance.HIGH,
            validator=_valid_url,
        ),
        grouped_key(
            *(TEMPLATE, ConfigType.STRING, _REQUEST, 2),
            "The platform, whose positions are made those of Waylog; none leaves records alone.",
            importance=Importance.HIGH,
            default=_NONE,
            validator=one_of(_NONE, *TEMPLATES),
        ),
        grouped_key(
            *(TOPIC, ConfigType.STRING, _RECORDS, 1),
            "The topic that gets the records.",
            importance=Importance.HIGH,
            validator=all_of(non_empty, topic_name),
        ),
        grouped_key(
            *(RECORDS, ConfigType.STRING, _RECORDS, 2),
            "Where the records are in the answer (JSON pointer): an array, or a single one.",
            importance=Importance.HIGH,
            default="",
            validator=_valid_pointer,
        ),
        grouped_key(
            *(KEY, ConfigType.STRING, _RECORDS, 3),
            "Where a record has its key; without it records have none.",
            importance=Importance.MEDIUM,
            default=None,
            validator=_valid_pointer,
        ),
        grouped_key(
            *(OFFSET, ConfigType.STRING, _RECORDS, 4),
            "Where a record has its offset: a number or a text that grows from record to record.",
            importance=Importance.MEDIUM,
            default=None,
            validator=_valid_pointer,
        ),
        grouped_key(
            *(INITIAL, ConfigType.STRING, _RECORDS, 5),
            "The offset of the first request.",
            importance=Importance.MEDIUM,
            default="0",
        ),
        *LOGIN_KEYS,
        grouped_key(
            *(INTERVAL, ConfigType.INT, _POLLING, 1),
            "Milliseconds between two requests.",
            importance=Importance.MEDIUM,
            default=60_000,
            validator=at_least(10),
        ),
        grouped_key(
            *(BYTES, ConfigType.INT, _POLLING, 2),
            "The most bytes of an answer; a larger one fails the task.",
            importance=Importance.LOW,
            default=8 * 1024 * 1024,
            validator=between(1024, 256 * 1024 * 1024),
        ),
        grouped_key(
            *(TIMEOUT, ConfigType.INT, _POLLING, 3),
            "Milliseconds for a request and its answer.",
            importance=Importance.LOW,
            default=30_000,
            validator=between(100, 600_000),
        ),
        *backoff_keys(_POLLING, 4),
    ]
)


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The properties, parsed."""

    url: str
    topic: str
    template: Template | None
    records: JsonPointer
    key: JsonPointer | None
    offset: JsonPointer | None
    initial: str
    headers: dict[str, str]
    interval_s: float
    bytes_max: int
    timeout_s: float
    backoff: Backoff

    @staticmethod
    def of(properties: Mapping[str, Any]) -> Settings:
        """Return what a connector's properties say; raises ConfigException."""
        parsed = CONFIG.parse(properties)
        for name, reason in contradictions(parsed):
            raise hidden_value(name, reason)
        headers = checked_headers(properties)
        template = TEMPLATES.get(parsed[TEMPLATE])
        key, offset = parsed[KEY], parsed[OFFSET]
        if template is not None:
            key = template.key_pointer if key is None else key
            offset = template.offset_pointer if offset is None else offset
        return Settings(
            url=parsed[URL],
            topic=parsed[TOPIC],
            template=template,
            records=JsonPointer(parsed[RECORDS]),
            key=None if key is None else JsonPointer(key),
            offset=None if offset is None else JsonPointer(offset),
            initial=parsed[INITIAL],
            headers=headers | authorization(parsed),
            interval_s=parsed[INTERVAL] / 1000,
            bytes_max=parsed[BYTES],
            timeout_s=parsed[TIMEOUT] / 1000,
            backoff=Backoff.of(parsed),
        )

    def url_at(self, offset: str | float | None) -> str:
        """Return the URL for what comes from an offset on."""
        now = self.initial if offset is None else offset
        text = self.url.replace(_OFFSET_TIME, quote(_iso_time(now), safe=""))
        return text.replace(_OFFSET, quote(str(now), safe=""))


def _iso_time(offset: str | float) -> str:
    """Return seconds since 1970 as ISO 8601; what are none as they are."""
    try:
        seconds = min(max(float(offset), 0.0), _YEAR_MAX_S)
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except ValueError:
        return str(offset)


def contradictions(parsed: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return properties that do not go with others, each with the reason."""
    found = login_contradictions(parsed)
    url = parsed[URL] or ""
    if parsed[TEMPLATE] == _NONE and parsed[OFFSET] is None and "${" in url:
        found.append((OFFSET, f"{_OFFSET} in {URL} needs it"))
    return found


def validated(properties: Mapping[str, Any]) -> dict[str, ConfigValue]:
    """Return what there is to say about each property, and about those that contradict."""
    found = CONFIG.validate(properties)
    parsed = {name: each.value for name, each in found.items()}
    if not any(each.errors for each in found.values()):
        for name, reason in contradictions(parsed):
            found[name].errors.append(str(hidden_value(name, reason)))
    return found | header_errors(properties)
