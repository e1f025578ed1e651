"""The HTTP listener: routes, refusals as JSON, limit of connections."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any, Final, cast

import msgspec
from aiohttp import web

from gateway.http.ingest import ulogger_sessions
from gateway.http.ingest.ingest import Ingest
from gateway.http.ingest.paths import PATHS
from gateway.http.ingest.registrations import Registrations
from gateway.http.ingest.ulogger_sessions import UloggerSessions
from gateway.http.kafka_rest.kafka_rest import KafkaRest
from gateway.http.openapi import openapi
from gateway.http.plain.plain_server import PlainServer
from gateway.http.plain.shared_state import Accept
from gateway.http.requests.authentication import (
    ASKER,
    party_at_first,
    remote_of,
    require_metrics_access,
    shown_credentials,
    stranger_of,
)
from gateway.http.requests.browsers import (
    require_served_host,
    require_sound_head,
    same_origin,
)
from gateway.http.requests.large_answers import send_if_large
from gateway.http.requests.responses import (
    Refused,
    json_answer,
    raw_json_answer,
    refusal_answer,
    unavailable,
)
from gateway.http.requests.services import SERVICES, Services
from gateway.http.routes import diary_routes, reading, receipts
from gateway.http.routes.alert_routes import AlertRoutes
from gateway.http.routes.device_token_routes import DeviceTokenRoutes
from gateway.http.routes.forwarding_admin_routes import ForwardingAdminRoutes
from gateway.http.routes.forwarding_routes import ForwardingRoutes
from gateway.http.routes.geocoder import GeocoderProxy
from gateway.http.routes.notice_routes import NoticeRoutes
from gateway.http.routes.operations.group_routes import GroupRoutes
from gateway.http.routes.operations.overview_routes import OverviewRoutes
from gateway.http.routes.operations.refused_routes import RefusedRoutes
from gateway.http.routes.operations.topic_routes import TopicRoutes
from gateway.http.routes.own_data.export_routes import ExportRoutes
from gateway.http.routes.own_data.import_routes import ImportRoutes
from gateway.http.routes.pages import Pages
from gateway.http.routes.people.account_routes import AccountRoutes
from gateway.http.routes.people.friend_routes import FriendRoutes
from gateway.http.routes.people.passkey_routes import PasskeyRoutes
from gateway.http.routes.people.share_routes import ShareRoutes
from gateway.http.routes.people.shared_routes import SharedRoutes
from gateway.http.routes.people.user_admin_routes import UserAdminRoutes
from gateway.http.routes.place_routes import PlaceRoutes
from gateway.http.routes.push_routes import PushRoutes
from gateway.http.routes.session_routes import SessionRoutes
from gateway.http.routes.stream import serve_stream
from gateway.http.routes.websocket import serve_websocket
from gateway.http.routes.zone_routes import ZoneRoutes
from gateway.http.starting import StartingServer, listen
from gateway.limits.turn_clock import Asker
from gateway.observability.exposition import exposition
from gateway.viewers.log_range import LogRanges
from waylog.config import Endpoint
from waylog.network.acceptor import Acceptor
from waylog.network.chunked_requests import end_connections_after_chunks

logger = logging.getLogger(__name__)

# aiohttp logs every malformed request with a part of it, which may be a token. Errors of handlers
# are logged by `explain_refusals`.
_silent = logging.getLogger(f"{__name__}.malformed")
_silent.disabled = True

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

#: Routes to which devices send. Their handlers require credentials, and answer requests without
#: credentials themselves.
_ASK_FOR_CREDENTIALS: Final = frozenset((*PATHS, *ulogger_sessions.PATHS, "/mqtt"))
#: Routes that need no credentials, or issue them: on these, credentials do not make up for a
#: foreign Host header.
_ANSWER_ANYBODY: Final = frozenset(
    (
        *("/static/{path}", "/healthz", "/readyz", "/openapi.json", "none"),
        *("/v1/session", "/v1/session/passkey-options", "/v1/push/key"),
        *("/v1/shared", "/v1/shared/track", "/v1/shared/stream"),
    )
)

_SHUTDOWN_S: Final = 5.0
_LINGER_S: Final = 2.0


@web.middleware
async def explain_refusals(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Count every request, and answer every failure with JSON that gives the reason."""
    answer: web.StreamResponse
    turns = request.app[SERVICES].turns
    asker = Asker(stranger_of(request))
    try:
        require_sound_head(request)
        refuse_foreign_hosts(request)
        if not request.app[SERVICES].addresses.may_ask(remote_of(request)):
            raise unavailable("too many requests from your address")
        asker = request[ASKER] = Asker(party_at_first(request))
        work = cast(Coroutine[Any, Any, web.StreamResponse], handler(request))
        answer = await turns.run(asker, work)
        answer = await send_if_large(request, answer, asker)
    except Refused as refusal:
        headers = refusal.headers
        if headers and "WWW-Authenticate" in headers and _is_asked_by_script(request):
            # With a Basic challenge, the browser would ask the user before the page can.
            headers = {**headers, "WWW-Authenticate": 'Bearer realm="waylog"'}
        answer = refusal_answer(refusal.status, refusal.reason, headers, refusal.code)
    except web.HTTPException as error:
        if error.status < 400:
            raise
        # aiohttp keeps the error of a path that does not exist with the request, and the traceback
        # would keep both until the garbage collector comes.
        error.with_traceback(None)
        headers = {"Allow": error.headers["Allow"]} if "Allow" in error.headers else None
        answer = refusal_answer(error.status, error.reason, headers)
    except ConnectionError as error:
        # The body keeps its error, and a traceback would keep all that has come of it.
        error.with_traceback(None)
        raise ConnectionResetError(str(error)) from None
    except Exception as error:
        if request.transport is None and isinstance(error, RuntimeError):
            # aiohttp says so of a body that ends with its connection.
            raise ConnectionResetError(str(error)) from None
        logger.exception("%s %s failed", request.method, _route_of(request))
        answer = refusal_answer(500, "an error of the gateway; its log has the details")
    request.app[SERVICES].metrics.request(_route_of(request), answer.status)
    if not answer.prepared:
        await turns.charge(asker, _send(request, answer))
    return answer


async def _send(request: web.Request, answer: web.StreamResponse) -> None:
    """Send an answer, which aiohttp would do after the handler, at nobody's expense."""
    # aiohttp finds out by itself that the client has gone. It would take the error for one of the
    # handler, whose traceback keeps the request until the garbage collector comes.
    with suppress(ConnectionError):
        await answer.prepare(request)
        await answer.write_eof()


async def _keep_to_the_asker(_: web.BaseRequest, response: web.StreamResponse) -> None:
    """Let no cache, of a proxy for example, answer others with what one person was told."""
    response.headers.setdefault("Cache-Control", "no-store")
    response.headers.setdefault("X-Content-Type-Options", "nosniff")


def refuse_foreign_hosts(request: web.Request) -> None:
    """Raise Refused (421) for a foreign Host header, unless credentials make up for it.

    A page that resolves its own name to this host (DNS rebinding) has no credentials. Devices send
    theirs, and may have been configured with any name. In open mode credentials prove nothing.
    """
    services = request.app[SERVICES]
    if services.hosts.serves(request.headers.get("Host")):
        return
    if not services.authenticator.open_mode:
        route = _route_of(request)
        if route in _ASK_FOR_CREDENTIALS:
            return
        token = request.match_info.get("token")
        public = _ANSWER_ANYBODY | services.metrics_access.public_routes
        if route not in public and shown_credentials(request, token) is not None:
            return
    require_served_host(request)


def _is_asked_by_script(request: web.Request) -> bool:
    """Tell whether a script of a page sends the request (W3C Fetch Metadata)."""
    return request.headers.get("Sec-Fetch-Mode", "navigate") != "navigate"


def _route_of(request: web.Request) -> str:
    """Return the route, never the path, which may hold a token."""
    resource = request.match_info.route.resource
    return resource.canonical if resource is not None else "none"


async def _metrics(request: web.Request) -> web.Response:
    await require_metrics_access(request)
    return web.Response(
        body=exposition(request.app[SERVICES].metrics),
        headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"},
    )


async def _healthz(_: web.Request) -> web.Response:
    return json_answer({"status": "ok"})


async def _readyz(request: web.Request) -> web.Response:
    services = request.app[SERVICES]
    problems = services.readiness.problems()
    for view in (services.location_view, services.address_view):
        if not view.caught_up.is_set():
            problems.setdefault(view.topic, "still being read")
    others = services.readiness.others()
    beside = {"others": others} if others else {}
    if problems:
        return json_answer({"status": "not ready", "parts": problems} | beside, 503)
    views = (services.location_view, services.address_view)
    back = [view.topic for view in views if view.reading_back]
    # Devices that have been silent for long are not known yet; everything else works.
    return json_answer({"status": "ready"} | ({"reading_back": back} if back else {}) | beside)


async def _mqtt(request: web.Request) -> web.StreamResponse:
    server = request.app[SERVICES].mqtt
    if server is None:
        raise Refused(404, "this gateway does not speak MQTT")
    if request.app[SERVICES].authenticator.open_mode and not same_origin(request):
        # In other modes MQTT needs a password, so the page must know one.
        raise Refused(403, "a page of another site may not connect")
    from gateway.mqtt.listening.websocket import serve_mqtt_websocket

    services = request.app[SERVICES]
    address = remote_of(request)
    counted = address == (services.remotes.get(request.transport) or request.remote)
    return await serve_mqtt_websocket(
        server, request, address, services.turns, stranger_of(request), counted=counted
    )


def _told(document: bytes) -> Handler:
    """Return a handler that sends a document. It is encoded once, because that takes long."""

    async def tell(_: web.Request) -> web.StreamResponse:
        return raw_json_answer(document)

    return tell


def build_application(services: Services, client_id: str) -> web.Application:
    """Build the application with all routes."""
    application = web.Application(
        middlewares=[explain_refusals], client_max_size=services.limits.body_bytes_max
    )
    application[SERVICES] = services
    end_connections_after_chunks(application)
    application.on_response_prepare.append(_keep_to_the_asker)
    ingest = Ingest(services)
    ranges = LogRanges(services.bootstrap_servers, client_id)
    proxy = GeocoderProxy(services.geo_url, ingest)
    pages = Pages(ingest.osmand_at_root(), services.tile_servers)
    kafka_rest = KafkaRest(services, ingest, client_id)
    application.add_routes(
        [
            *ingest.routes(),
            *UloggerSessions(services, ingest).routes(),
            *Registrations(services, ingest).routes(),
            *reading.routes(),
            *diary_routes.routes(),
            *receipts.routes(),
            web.get("/v1/stream", partial(serve_stream, ranges), allow_head=False),
            web.get("/v1/ws", partial(serve_websocket, ranges), allow_head=False),
            *ShareRoutes(services, ingest).routes(),
            *SharedRoutes(ranges).routes(),
            web.get("/mqtt", _mqtt, allow_head=False),
            *proxy.routes(),
            *PushRoutes(services, ingest).routes(),
            *NoticeRoutes(services, ingest).routes(),
            *ZoneRoutes(services, ingest).routes(),
            *AlertRoutes(services, ingest).routes(),
            *PlaceRoutes(services, ingest).routes(),
            *ForwardingRoutes(services, ingest).routes(),
            *ForwardingAdminRoutes(services, ingest).routes(),
            *ImportRoutes(services, ingest).routes(),
            *ExportRoutes(services).routes(),
            *DeviceTokenRoutes(services, ingest).routes(),
            *SessionRoutes(services, ingest).routes(),
            *AccountRoutes(services, ingest).routes(),
            *FriendRoutes(services, ingest).routes(),
            *UserAdminRoutes(services, ingest).routes(),
            *PasskeyRoutes(services, ingest).routes(),
            *OverviewRoutes(services).routes(),
            *TopicRoutes(services, ingest).routes(),
            *GroupRoutes(services, ingest).routes(),
            *RefusedRoutes(services, ingest).routes(),
            *kafka_rest.routes(),
            web.get("/metrics", _metrics),
            web.get("/healthz", _healthz),
            web.get("/readyz", _readyz),
            web.get("/openapi.json", _told(msgspec.json.encode(openapi()))),
            *pages.routes(),
        ]
    )

    async def end_viewers(_: web.Application) -> None:
        services.viewers.close()
        await services.recent_events.close()

    async def close(_: web.Application) -> None:
        await ranges.close()
        await services.parsing.close()
        await proxy.close()
        await kafka_rest.close()
        await services.operations.close()

    application.on_shutdown.append(end_viewers)
    application.on_cleanup.append(close)
    return application


class HttpServer:
    """A running HTTP listener."""

    def __init__(
        self,
        runner: web.AppRunner,
        plain: PlainServer,
        acceptor: Acceptor,
        endpoint: Endpoint,
    ) -> None:
        self._runner = runner
        self._plain = plain
        self._acceptor = acceptor
        self.endpoint = endpoint  # with the port that the system has chosen

    async def close(self) -> None:
        """Stop listening, let running requests end, close connections."""
        await self._acceptor.close()
        await self._plain.close(_SHUTDOWN_S)
        await self._runner.cleanup()


async def start_http(
    endpoint: Endpoint,
    services: Services,
    client_id: str,
    *,
    reuse_port: bool = False,
    starting: StartingServer | None = None,
) -> HttpServer:
    """Listen, or take over what `starting` has. Raises OSError if the address cannot be bound."""
    limits = services.limits
    runner = web.AppRunner(
        build_application(services, client_id),
        access_log=None,  # URLs may hold tokens
        logger=_silent,
        keepalive_timeout=limits.header_timeout_s,
        max_line_size=limits.header_line_bytes_max,
        max_field_size=limits.header_line_bytes_max,
        max_headers=limits.headers_max,
        auto_decompress=False,  # would block the event loop, see gateway.bodies.content_encoding
        shutdown_timeout=_SHUTDOWN_S,
        # Seconds in which the rest of a refused body is read, so that the client can read the
        # response.
        lingering_time=_LINGER_S,
        # A handler continues after its client has disconnected: submitted records must be accounted
        # for.
        handler_cancellation=False,
    )
    await runner.setup()
    accept = runner.server
    assert accept is not None

    plain = PlainServer(services, cast(Accept, accept))
    services.metrics.gauge(
        "http_connections", "Open HTTP connections.", lambda: len(plain.connections)
    )
    if starting is not None:
        acceptor = starting.take_over(plain.connection)
        return HttpServer(runner, plain, acceptor, endpoint.bound_to(acceptor.address))
    try:
        acceptor = listen(endpoint, plain.connection, reuse_port=reuse_port)
    except OSError:
        await plain.close(0)
        await runner.cleanup()
        raise
    return HttpServer(runner, plain, acceptor, endpoint.bound_to(acceptor.address))
