"""The registry over HTTP: Confluent's REST interface.

https://docs.confluent.io/platform/current/schema-registry/develop/api.html
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from importlib import metadata
from typing import Any, Final

import msgspec
from aiohttp import hdrs, web

from gateway.schema_registry.access import Access
from gateway.schema_registry.changes import Changes, Decision
from gateway.schema_registry.comparisons import Comparisons
from gateway.schema_registry.errors import RegistryError, schema_not_found
from gateway.schema_registry.metrics import RegistryMetrics
from gateway.schema_registry.queries import Queries
from gateway.schema_registry.records import SchemaValue
from gateway.schema_registry.schema_types import SCHEMA_TYPES
from gateway.schema_registry.schemas import SchemaRequest, Schemas
from gateway.schema_registry.store import SchemaStore
from waylog.malformed import MALFORMED
from waylog.network.chunked_requests import end_connections_after_chunks

logger = logging.getLogger(__name__)

#: A schema has at most a mebibyte; as text in JSON it may take more.
BODY_BYTES_MAX: Final = 4 * 1024 * 1024
MEDIA_TYPE: Final = "application/vnd.schemaregistry.v1+json"
_JSON: Final = "application/json"
_MEDIA_TYPES: Final = frozenset(
    (
        *(MEDIA_TYPE, "application/vnd.schemaregistry+json", _JSON),
        "application/octet-stream",
    )
)
_ID_DIGITS_MAX: Final = 10
#: What a body may have and what is not kept; where it asks for something it is refused.
_UNKEPT: Final = (
    *("alias", "normalize", "validateFields", "compatibilityGroup", "compatibilityPolicy"),
    *("defaultMetadata", "overrideMetadata", "defaultRuleSet", "overrideRuleSet"),
    *("metadata", "ruleSet", "schemaTagsToAdd", "schemaTagsToRemove"),
)
#: Who asks, as `Access` has found out.
_PARTY: Final = web.RequestKey("party", str)
_encode: Final = msgspec.json.Encoder().encode
_schema_request: Final = msgspec.json.Decoder(SchemaRequest).decode

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class _Level(msgspec.Struct):
    compatibility: str
    # What Confluent's registry keeps beside the level.
    alias: Any = None
    normalize: Any = None
    validateFields: Any = None  # noqa: N815 as Confluent's clients write it
    compatibilityGroup: Any = None  # noqa: N815 as above
    compatibilityPolicy: Any = None  # noqa: N815 as above
    defaultMetadata: Any = None  # noqa: N815 as above
    overrideMetadata: Any = None  # noqa: N815 as above
    defaultRuleSet: Any = None  # noqa: N815 as above
    overrideRuleSet: Any = None  # noqa: N815 as above


class _Mode(msgspec.Struct):
    mode: str


_level: Final = msgspec.json.Decoder(_Level).decode
_mode: Final = msgspec.json.Decoder(_Mode).decode


def make_application(
    schemas: Schemas,
    store: SchemaStore,
    access: Access,
    metrics: RegistryMetrics,
    comparisons: Comparisons,
) -> web.Application:
    """Return the application of a listener; the caller runs it."""
    return _Routes(schemas, store, access, metrics, comparisons).application()


def _answer(body: object, status: int = 200) -> web.Response:
    return web.Response(body=_encode(body), status=status, content_type=MEDIA_TYPE)


def _flag(request: web.Request, name: str) -> bool:
    return request.query.get(name, "").lower() == "true"


def _subject(request: web.Request) -> str | None:
    return request.match_info.get("subject")


class _Routes:
    def __init__(
        self,
        schemas: Schemas,
        store: SchemaStore,
        access: Access,
        metrics: RegistryMetrics,
        comparisons: Comparisons,
    ) -> None:
        self._metrics: Final = metrics
        self._of_state: Final = schemas
        self._comparisons: Final = comparisons
        self._queries: Final = Queries(schemas)
        self._changes: Final = Changes(schemas)
        self._store: Final = store
        self._access: Final = access
        #: The handlers that may write; all others only ask.
        self._writing: Final = frozenset(
            (
                *(self._register, self._delete_subject, self._delete_version),
                *(self._put_level, self._delete_level, self._put_mode, self._delete_mode),
            )
        )

    def application(self) -> web.Application:
        application = web.Application(middlewares=[self._errors], client_max_size=BODY_BYTES_MAX)
        end_connections_after_chunks(application)
        versions = "/subjects/{subject}/versions"
        schema = "/schemas/ids/{id}"
        compatibility = "/compatibility/subjects/{subject}/versions"
        for method, path, handler in (
            ("GET", "/", self._root),
            ("GET", "/contexts", self._contexts),
            ("GET", "/v1/metadata/id", self._metadata),
            ("GET", "/v1/metadata/version", self._program),
            ("GET", "/metrics", self._counts),
            ("GET", "/subjects", self._subjects),
            ("POST", "/subjects/{subject}", self._lookup),
            ("DELETE", "/subjects/{subject}", self._delete_subject),
            ("GET", versions, self._versions),
            ("POST", versions, self._register),
            ("GET", versions + "/{version}", self._version),
            ("DELETE", versions + "/{version}", self._delete_version),
            ("GET", versions + "/{version}/schema", self._text),
            ("GET", versions + "/{version}/referencedby", self._referenced_by),
            ("GET", "/schemas", self._schemas),
            ("GET", "/schemas/types", self._types),
            ("GET", schema, self._schema),
            ("GET", schema + "/schema", self._schema_text),
            ("GET", schema + "/subjects", self._subjects_of),
            ("GET", schema + "/versions", self._versions_of),
            ("GET", "/schemas/guids/{guid}", self._schema_with_guid),
            ("POST", compatibility, self._compatibility),
            ("POST", compatibility + "/{version}", self._compatibility),
            *self._of_settings("/config", self._get_level, self._put_level, self._delete_level),
            *self._of_settings("/mode", self._get_mode, self._put_mode, self._delete_mode),
        ):
            application.router.add_route(method, path, handler)
            if path != "/":
                application.router.add_route(method, path + "/", handler)
        return application

    @staticmethod
    def _of_settings(
        path: str, get: Handler, put: Handler, delete: Handler
    ) -> list[tuple[str, str, Handler]]:
        return [
            (method, each, handler)
            for each in (path, path + "/{subject}")
            for method, handler in (("GET", get), ("PUT", put), ("DELETE", delete))
        ]

    @web.middleware
    async def _errors(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        began = time.perf_counter()
        answer = await self._answered(request, handler)
        resource = request.match_info.route.resource
        route = "none" if resource is None else resource.canonical
        self._metrics.request(route, answer.status, time.perf_counter() - began)
        # A client that takes several kinds of JSON names this one first, and understands all.
        if request.headers.get(hdrs.ACCEPT, "").startswith(_JSON):
            answer.content_type = _JSON
        return answer

    async def _answered(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            if request.match_info.handler == self._counts:
                await self._access.check_metrics(request)
            else:
                changes = request.match_info.handler in self._writing
                request[_PARTY] = await self._access.check(request, changes=changes)
            if request.body_exists and request.content_type not in _MEDIA_TYPES:
                raise RegistryError(415, "HTTP 415 Unsupported Media Type")
            return await handler(request)
        except RegistryError as error:
            answer = _refusal(error.status, error.code, str(error))
            if error.retry_after_s is not None:
                answer.headers[hdrs.RETRY_AFTER] = str(error.retry_after_s)
            return answer
        except web.HTTPException as error:
            if error.status < 400:
                raise
            answer = _refusal(error.status, error.status, f"HTTP {error.status} {error.reason}")
            if hdrs.ALLOW in error.headers:
                answer.headers[hdrs.ALLOW] = error.headers[hdrs.ALLOW]
            return answer
        except Exception:
            logger.exception("%s %s has failed", request.method, request.path)
            return _refusal(500, 500, "Internal Server Error")

    # ---- bodies ----

    @staticmethod
    async def _body(request: web.Request, decode: Callable[[bytes], Any]) -> Any:
        try:
            body = decode(await request.read())
        except MALFORMED as error:
            raise RegistryError(422, f"the body is not what is expected: {error}") from error
        for name in _UNKEPT:
            if _asks(getattr(body, name, None)):
                raise RegistryError(422, f"this registry does not keep {name}: leave it out")
        return body

    async def _prepare(
        self,
        request: web.Request,
        body: SchemaRequest,
        against: Sequence[SchemaValue] | None = None,
        *,
        registering: bool = False,
    ) -> None:
        """Do in a thread what may take long: other requests go on."""
        steps = self._of_state.preparation(
            request.match_info["subject"],
            body,
            against,
            normalize=_flag(request, "normalize"),
            registering=registering,
        )
        await self._comparisons.run(request[_PARTY], steps)

    async def _change(self, decide: Callable[[], Decision]) -> web.Response:
        return _answer(await self._store.change(decide))

    # ---- subjects ----

    async def _root(self, _: web.Request) -> web.Response:
        return _answer({})

    async def _contexts(self, _: web.Request) -> web.Response:
        return _answer(["."])

    async def _metadata(self, _: web.Request) -> web.Response:
        return _answer({"id": "", "scope": {"path": [], "clusters": {}}})

    async def _program(self, _: web.Request) -> web.Response:
        try:
            version = metadata.version("waylog")
        except metadata.PackageNotFoundError:  # run from its sources
            version = ""
        return _answer({"version": version, "commitId": ""})

    async def _counts(self, _: web.Request) -> web.Response:
        return web.Response(
            body=self._metrics.exposition(),
            headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"},
        )

    async def _subjects(self, request: web.Request) -> web.Response:
        prefix = request.query.get("subjectPrefix", "").removesuffix(":*:")
        found = self._queries.subjects(
            prefix,
            deleted=_flag(request, "deleted"),
            deleted_only=_flag(request, "deletedOnly"),
        )
        return _answer(_page(request, found))

    async def _versions(self, request: web.Request) -> web.Response:
        found = self._queries.versions(
            request.match_info["subject"],
            deleted=_flag(request, "deleted"),
            deleted_only=_flag(request, "deletedOnly"),
        )
        return _answer(_page(request, found))

    async def _register(self, request: web.Request) -> web.Response:
        body = await self._body(request, _schema_request)
        subject, normalize = request.match_info["subject"], _flag(request, "normalize")
        await self._prepare(request, body, registering=True)
        return await self._change(
            lambda: self._changes.register(subject, body, normalize=normalize)
        )

    async def _lookup(self, request: web.Request) -> web.Response:
        body = await self._body(request, _schema_request)
        if self._of_state.state.versions(request.match_info["subject"], deleted=True):
            await self._prepare(request, body, ())
        return _answer(
            self._queries.lookup(
                request.match_info["subject"],
                body,
                deleted=_flag(request, "deleted"),
                normalize=_flag(request, "normalize"),
            )
        )

    async def _version(self, request: web.Request) -> web.Response:
        subject, version = request.match_info["subject"], request.match_info["version"]
        found = self._queries.version(subject, version, deleted=_flag(request, "deleted"))
        return _answer(self._queries.formatted(found, request.query.get("format", "")))

    async def _text(self, request: web.Request) -> web.Response:
        subject, version = request.match_info["subject"], request.match_info["version"]
        text = self._queries.text(subject, version, deleted=_flag(request, "deleted"))
        return web.Response(text=text, content_type=MEDIA_TYPE)

    async def _referenced_by(self, request: web.Request) -> web.Response:
        subject, version = request.match_info["subject"], request.match_info["version"]
        return _answer(self._queries.referenced_by(subject, version))

    async def _delete_subject(self, request: web.Request) -> web.Response:
        subject, permanent = request.match_info["subject"], _flag(request, "permanent")
        return await self._change(
            lambda: self._changes.delete_subject(subject, permanent=permanent)
        )

    async def _delete_version(self, request: web.Request) -> web.Response:
        subject, version = request.match_info["subject"], request.match_info["version"]
        permanent = _flag(request, "permanent")
        return await self._change(
            lambda: self._changes.delete_version(subject, version, permanent=permanent)
        )

    # ---- schemas ----

    async def _types(self, _: web.Request) -> web.Response:
        return _answer(SCHEMA_TYPES)

    async def _schemas(self, request: web.Request) -> web.Response:
        found = self._queries.schemas(
            request.query.get("subjectPrefix", "").removesuffix(":*:"),
            deleted=_flag(request, "deleted"),
            latest_only=_flag(request, "latestOnly"),
        )
        return _answer(_page(request, found))

    async def _found(self, ask: Callable[[], Any]) -> Any:
        """Return what is asked for; what is missing may have been written just now."""
        try:
            return ask()
        except RegistryError as error:
            if error.status != 404:
                raise
            await self._store.catch_up()
            return ask()

    async def _schema(self, request: web.Request) -> web.Response:
        number, id_max = _id(request), _flag(request, "fetchMaxId")
        found = await self._found(lambda: self._queries.schema(number, with_id_max=id_max))
        return _answer(self._queries.formatted(found, request.query.get("format", "")))

    async def _schema_text(self, request: web.Request) -> web.Response:
        number = _id(request)
        found = await self._found(lambda: self._queries.schema(number))
        return web.Response(text=found["schema"], content_type=MEDIA_TYPE)

    async def _schema_with_guid(self, request: web.Request) -> web.Response:
        guid = request.match_info["guid"]
        found = await self._found(lambda: self._queries.schema_with_guid(guid))
        return _answer(self._queries.formatted(found, request.query.get("format", "")))

    async def _subjects_of(self, request: web.Request) -> web.Response:
        found = self._queries.subjects_of(_id(request), deleted=_flag(request, "deleted"))
        return _answer(_page(request, found))

    async def _versions_of(self, request: web.Request) -> web.Response:
        found = self._queries.versions_of(_id(request), deleted=_flag(request, "deleted"))
        return _answer(_page(request, found))

    async def _compatibility(self, request: web.Request) -> web.Response:
        body = await self._body(request, _schema_request)
        subject, version = request.match_info["subject"], request.match_info.get("version")
        against = None if version is None else [self._of_state.get(subject, version)]
        await self._prepare(request, body, against)
        return _answer(
            self._queries.compatibility(
                request.match_info["subject"],
                request.match_info.get("version"),
                body,
                verbose=_flag(request, "verbose"),
                normalize=_flag(request, "normalize"),
            )
        )

    # ---- settings ----

    async def _get_level(self, request: web.Request) -> web.Response:
        return _answer(
            self._queries.level(
                _subject(request), default_to_global=_flag(request, "defaultToGlobal")
            )
        )

    async def _put_level(self, request: web.Request) -> web.Response:
        body = await self._body(request, _level)
        subject = _subject(request)
        return await self._change(lambda: self._changes.set_level(subject, body.compatibility))

    async def _delete_level(self, request: web.Request) -> web.Response:
        subject = _subject(request)
        return await self._change(lambda: self._changes.delete_level(subject))

    async def _get_mode(self, request: web.Request) -> web.Response:
        return _answer(
            self._queries.mode(
                _subject(request), default_to_global=_flag(request, "defaultToGlobal")
            )
        )

    async def _put_mode(self, request: web.Request) -> web.Response:
        body = await self._body(request, _mode)
        subject, force = _subject(request), _flag(request, "force")
        return await self._change(lambda: self._changes.set_mode(subject, body.mode, force=force))

    async def _delete_mode(self, request: web.Request) -> web.Response:
        subject = _subject(request)
        return await self._change(lambda: self._changes.delete_mode(subject))


def _asks(value: object) -> bool:
    """Tell whether a member says more than one that is left out: clients write empty ones."""
    return any(value.values()) if isinstance(value, dict) else bool(value)


def _page(request: web.Request, found: list[Any]) -> list[Any]:
    """Return the part of a list that `offset` and `limit` name; a limit below 1 is none."""
    offset, limit = (_whole(request.query.get(name, "")) for name in ("offset", "limit"))
    start = max(0, offset)
    return found[start : start + limit] if limit > 0 else found[start:]


def _whole(text: str) -> int:
    digits = text.removeprefix("-")
    if not digits.isascii() or not digits.isdigit() or len(digits) > _ID_DIGITS_MAX:
        return 0
    return int(text)


def _id(request: web.Request) -> int:
    text = request.match_info["id"]
    if not text.isascii() or not text.isdigit() or len(text) > _ID_DIGITS_MAX:
        raise schema_not_found(text[:100])
    return int(text)


def _refusal(status: int, code: int, message: str) -> web.Response:
    answer = _answer({"error_code": code, "message": message}, status)
    if status == 401:
        answer.headers[hdrs.WWW_AUTHENTICATE] = 'Basic realm="schema registry"'
    return answer
