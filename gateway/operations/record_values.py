"""Keys and values of records as administrators are shown them: bounded, and never as markup."""

from __future__ import annotations

import base64
import logging
import threading
import time
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from waylog.administration.value_text import hex_dump, readable_text
from waylog.config import ConfigError
from waylog.kafka.topics import VALUE_KEY
from waylog.malformed import MALFORMED
from waylog.sealing.sealing import is_sealed
from waylog.serialization.by_name import AUTO, Serde, close_serde, make_serde
from waylog.serialization.schema_ids import names_schema
from waylog.serialization.serializer import (
    RecordHeaders,
    RecordPart,
    SchemaRegistryUnavailable,
    SerializationError,
)

logger = logging.getLogger(__name__)

#: Bytes that are parsed, so that a value that is shown as JSON is JSON.
_PARSED_BYTES_MAX: Final = 1024 * 1024
_AWAY: Final = "the schema registry does not answer"
_AWAY_S: Final = 10.0


class ShownValue(msgspec.Struct, frozen=True, omit_defaults=True):
    """A key or a value: what it is, and as much of it as was asked for."""

    #: `null`, `json`, `text`, `schema` (decoded with one), `bytes` or `sealed`.
    kind: str
    bytes: int = 0
    #: JSON, text, or lines of a hexadecimal dump.
    text: str = ""
    #: Not all of it is in `text`.
    cut: bool = False
    #: Why a value that names a schema is shown as bytes.
    note: str = ""


class ValueReader:
    """Tells what the bytes of records are."""

    def __init__(self, registry: Mapping[str, str] | None = None) -> None:
        """`registry` has the properties of the schema registry, if there is one."""
        self._registry = registry
        self._serdes: dict[RecordPart, Serde] = {}
        self._away_until = float("-inf")
        #: Threads that read records share the connection to the registry.
        self._lock = threading.Lock()

    def close(self) -> None:
        """Close connections to the registry."""
        with self._lock:
            for serde in self._serdes.values():
                close_serde(serde)
            self._serdes.clear()

    def shown(
        self,
        topic: str,
        data: bytes | None,
        bytes_max: int,
        *,
        part: RecordPart = RecordPart.VALUE,
        headers: RecordHeaders = (),
    ) -> ShownValue:
        """Return what people are shown; never raises."""
        if data is None:
            return ShownValue("null")
        if is_sealed(data) or (topic == VALUE_KEY and part is RecordPart.VALUE):
            return ShownValue("sealed", len(data))
        if names_schema(part, data, headers):
            return self._with_schema(topic, data, bytes_max, part, headers)
        if (text := readable_text(data)) is not None:
            kind = "json" if _is_json(data) else "text"
            return ShownValue(kind, len(data), text[:bytes_max], len(text) > bytes_max)
        return _dumped(data, bytes_max)

    def _with_schema(
        self, topic: str, data: bytes, bytes_max: int, part: RecordPart, headers: RecordHeaders
    ) -> ShownValue:
        if time.monotonic() < self._away_until:
            return _dumped(data, bytes_max, _AWAY)
        try:
            with self._lock:
                value: Any = self._serde(part).deserialize(topic, data, headers)
            text = msgspec.json.encode(value, enc_hook=str).decode("utf-8", "replace")
        except SchemaRegistryUnavailable as error:
            # A question has many records, each of which would wait for it.
            self._away_until = time.monotonic() + _AWAY_S
            return _dumped(data, bytes_max, str(error))
        except (ConfigError, SerializationError) as error:
            return _dumped(data, bytes_max, str(error))
        except Exception as error:
            # Whoever writes records chooses both schema and bytes.
            logger.debug("a value of topic %s could not be decoded", topic, exc_info=error)
            return _dumped(data, bytes_max, "it is not what its schema says")
        return ShownValue("schema", len(data), text[:bytes_max], len(text) > bytes_max)

    def _serde(self, part: RecordPart) -> Serde:
        if self._registry is None:
            raise ConfigError("no schema registry is configured (--schema-registry)")
        if part not in self._serdes:
            self._serdes[part] = make_serde(AUTO, part, self._registry)
        return self._serdes[part]


def _is_json(data: bytes) -> bool:
    if len(data) > _PARSED_BYTES_MAX:
        return False
    try:
        return isinstance(msgspec.json.decode(data), dict | list)
    except MALFORMED:
        return False


def _dumped(data: bytes, bytes_max: int, note: str = "") -> ShownValue:
    shown = data[: bytes_max // 4]
    return ShownValue("bytes", len(data), hex_dump(shown), len(shown) < len(data), note)


def as_base64(data: bytes | None) -> str | None:
    """Return all bytes, for programs."""
    return None if data is None else base64.b64encode(data).decode()
