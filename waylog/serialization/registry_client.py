"""A schema registry as serializers need it: confluent-kafka's client, with bounded memory.

The client keeps each schema and each subject that it has seen. Here so many are kept as fit, and
for a time also which ids do not exist: each record with such an id would else be a request.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.error import SchemaRegistryError

from waylog.serialization.registered_schemas import RecordSchema, record_schema
from waylog.serialization.schema_ids import SchemaId
from waylog.serialization.schema_types import AVRO
from waylog.serialization.serializer import SchemaRegistryUnavailable, SerializationError

_SCHEMAS_MAX: Final = 1_000
_UNKNOWN_MAX: Final = 10_000
#: Seconds for which a missing schema stays missing.
_UNKNOWN_S: Final = 10.0
#: Seconds for which the newest schema of a subject is taken for the newest.
_LATEST_S: Final = 60.0
_REFERENCES_MAX: Final = 100
_TIMEOUT_S: Final = 10.0

Answer = TypeVar("Answer")


class RegisteredSchema(NamedTuple):
    """A schema with its names in the registry."""

    number: int | None
    guid: str | None  # None if the registry does not know of GUIDs
    schema: RecordSchema


class RegistryClient:
    """Asks a registry; methods block, and may be called in any thread."""

    def __init__(self, url: str, properties: Mapping[str, Any] | None = None) -> None:
        """`url` is one or several of one registry, separated by commas.

        `properties` are more of confluent-kafka's client (`basic.auth.user.info`,
        `ssl.ca.location`). Raises ValueError for what it does not know.
        """
        self._client: Final = SchemaRegistryClient(
            {
                "url": url,
                "timeout": _TIMEOUT_S,
                "max.retries": 2,
                "cache.capacity": _SCHEMAS_MAX,
                "cache.latest.ttl.sec": _LATEST_S,
                **(properties or {}),
            }
        )
        self._url: Final = url
        self._lock: Final = threading.Lock()
        self._by_id: Final[dict[SchemaId, RecordSchema]] = {}
        self._by_subject: Final[dict[tuple[str, str, str], RegisteredSchema]] = {}
        self._latest: Final[dict[tuple[str, str | None], tuple[RegisteredSchema, float]]] = {}
        #: Why an id has no schema that could be read, and until when that is believed.
        self._unknown: Final[dict[SchemaId, tuple[str, float]]] = {}
        #: Answers since the client's own memory was emptied.
        self._answers = 0

    def close(self) -> None:
        """Close connections."""
        self._client.close()

    def schema_of(self, schema_id: SchemaId) -> RecordSchema:
        """Return the schema that a record was written with.

        Raises SerializationError if there is none, or one that is not read, and
        SchemaRegistryUnavailable.
        """
        found = self._by_id.get(schema_id)
        if found is not None:
            return found
        with self._lock:
            reason, until = self._unknown.get(schema_id, ("", 0.0))
            if time.monotonic() < until:
                raise SerializationError(reason)
            try:
                found = self._parsed(self._fetched(schema_id))
            except SerializationError as error:
                _keep(
                    self._unknown,
                    schema_id,
                    (str(error), time.monotonic() + _UNKNOWN_S),
                    _UNKNOWN_MAX,
                )
                raise
            _keep(self._by_id, schema_id, found, _SCHEMAS_MAX)
            return found

    def register(
        self, subject: str, text: str, *, schema_type: str = AVRO, normalize: bool = False
    ) -> RegisteredSchema:
        """Return a schema that is registered under a subject, registering it if it is not.

        Raises SerializationError, with the registry's reason if the schema is incompatible with
        those before it, and SchemaRegistryUnavailable.
        """
        return self._of_subject(
            (subject, schema_type, text),
            lambda: self._client.register_schema_full_response(
                subject, Schema(text, schema_type), normalize_schemas=normalize
            ),
        )

    def registered(
        self, subject: str, text: str, *, schema_type: str = AVRO, normalize: bool = False
    ) -> RegisteredSchema:
        """Return a schema of a subject; raises SerializationError if it is not registered there."""
        return self._of_subject(
            (subject, schema_type, text),
            lambda: self._client.lookup_schema(
                subject, Schema(text, schema_type), normalize_schemas=normalize
            ),
        )

    def latest(self, subject: str, *, message: str | None = None) -> RegisteredSchema:
        """Return the newest schema of a subject, for a minute the same.

        `message` is the one that is written, of a schema of Protobuf. Raises SerializationError if
        there is none, and SchemaRegistryUnavailable.
        """
        with self._lock:
            found, until = self._latest.get((subject, message), (None, 0.0))
            if found is None or time.monotonic() >= until:
                answer = self._asked(lambda: self._client.get_latest_version(subject))
                schema = self._parsed(answer.schema, message=message)
                found = RegisteredSchema(answer.schema_id, answer.guid, schema)
                until = time.monotonic() + _LATEST_S
                _keep(self._latest, (subject, message), (found, until), _SCHEMAS_MAX)
            return found

    def _of_subject(self, wanted: tuple[str, str, str], ask: Callable[[], Any]) -> RegisteredSchema:
        known = self._by_subject.get(wanted)
        if known is not None:
            return known
        _, schema_type, text = wanted
        with self._lock:
            answer = self._asked(ask)
            schema = record_schema(schema_type, text)
            found = RegisteredSchema(answer.schema_id, answer.guid, schema)
            _keep(self._by_subject, wanted, found, _SCHEMAS_MAX)
            return found

    def _fetched(self, schema_id: SchemaId) -> Schema:
        number, guid = schema_id
        if number is not None:
            return self._asked(lambda: self._client.get_schema(number))
        assert guid is not None
        return self._asked(lambda: self._client.get_schema_by_guid(guid))

    def _parsed(self, schema: Schema, *, message: str | None = None) -> RecordSchema:
        references = self._references(schema, {})
        return record_schema(
            schema.schema_type or AVRO, schema.schema_str or "", references, message=message
        )

    def _references(self, schema: Schema, found: dict[str, str]) -> dict[str, str]:
        """Return the texts of all schemas that one refers to, those they need themselves first."""
        for reference in schema.references or ():
            name, subject, version = reference.name, reference.subject, reference.version
            if name in found:
                continue
            if name is None or subject is None or version is None:
                raise SerializationError("the schema has a reference without name or place")
            if len(found) >= _REFERENCES_MAX:
                raise SerializationError(f"the schema has more than {_REFERENCES_MAX} references")
            referred = self._asked(partial(self._client.get_version, subject, version, True))
            found[name] = ""  # schemas that refer to each other
            self._references(referred.schema, found)
            del found[name]
            found[name] = referred.schema.schema_str or ""
        return found

    def _asked(self, ask: Callable[[], Answer]) -> Answer:
        self._answers += 1
        if self._answers > _SCHEMAS_MAX:
            # It keeps all schemas that it was ever told (confluent-kafka's _SchemaCache, as of
            # 2.16; `cache.capacity` is of other things).
            self._client.clear_caches()  # type: ignore[no-untyped-call]
            self._answers = 1
        try:
            return ask()
        except SchemaRegistryError as error:
            status, code = error.http_status_code, error.error_code
            if status in (401, 403, 408, 429) or status >= 500 or (status == 404 and code < 40400):
                raise SchemaRegistryUnavailable(
                    f"the schema registry at {self._url} answers {status}: {_shortened(error)}"
                ) from error
            raise SerializationError(f"the schema registry says: {_shortened(error)}") from error
        except (OSError, ValueError, RuntimeError) as error:
            raise self._unreachable(error) from error
        except Exception as error:
            # Its HTTP library has a family of exceptions of its own.
            if type(error).__module__.partition(".")[0] not in ("httpx", "httpx2", "httpcore2"):
                raise
            raise self._unreachable(error) from error

    def _unreachable(self, error: Exception) -> SchemaRegistryUnavailable:
        return SchemaRegistryUnavailable(
            f"the schema registry at {self._url} does not answer: {error}"
        )


_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


def _keep(kept: dict[_Key, _Value], key: _Key, value: _Value, most: int) -> None:
    if len(kept) >= most:
        del kept[next(iter(kept))]
    kept[key] = value


def _shortened(error: SchemaRegistryError) -> str:
    return f"{error.error_message} ({error.error_code})"[:1000]
