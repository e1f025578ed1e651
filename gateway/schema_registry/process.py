"""The process of a schema registry: the store, the users, the listeners."""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final, NamedTuple

from aiohttp import web

from gateway.process.lifecycle import Started, serve_until_stopped
from gateway.schema_registry.access import Access
from gateway.schema_registry.comparisons import Comparisons
from gateway.schema_registry.metrics import RegistryMetrics
from gateway.schema_registry.routes import make_application
from gateway.schema_registry.schemas import Schemas
from gateway.schema_registry.state import State
from gateway.schema_registry.store import SchemaStore, schemas_topic
from gateway.users.auth import Authenticator
from gateway.users.database import UserStore
from waylog.config import Endpoint
from waylog.kafka.clients import ensure_topics
from waylog.network.bound_listeners import Listener
from waylog.network.served_hosts import ServedHosts
from waylog.observability.telemetry import KafkaTelemetry
from waylog.process.stop_limit import STOP_MAX_S

_SHUTDOWN_S: Final = 2.0


class RegistrySettings(NamedTuple):
    """What a registry is told at its start."""

    bootstrap_servers: str
    listeners: Sequence[Endpoint]
    users: Path
    open_mode: bool
    topic: str
    replication_factor: int  # of a new topic; -1: the brokers' default
    hosts: Sequence[str]  # more names by which it may be asked
    tls: ssl.SSLContext | None
    metrics_token: str | None = None  # reads /metrics and nothing else


async def serve(settings: RegistrySettings, listeners: Sequence[Listener]) -> int:
    """Serve until stopped; return the exit status."""

    async def start(_telemetry: KafkaTelemetry, stack: AsyncExitStack) -> Started:
        return await _start(settings, listeners, stack)

    return await serve_until_stopped(
        *(settings.bootstrap_servers, "waylog-schema-registry", start), name="schema registry"
    )


async def _start(
    settings: RegistrySettings, listeners: Sequence[Listener], stack: AsyncExitStack
) -> Started:
    users = UserStore(settings.users)
    stack.callback(users.close)
    authenticator = Authenticator(users, open_mode=settings.open_mode)
    stack.callback(authenticator.close)
    ensure_topics(
        settings.bootstrap_servers,
        [schemas_topic(settings.topic)],
        replication_factor=settings.replication_factor,
        timeout_s=STOP_MAX_S,
    )
    state = State()
    metrics = RegistryMetrics(state)
    store = SchemaStore(settings.bootstrap_servers, settings.topic, state, metrics)
    stack.push_async_callback(store.close)
    await store.start()
    schemas = Schemas(state)
    comparisons = Comparisons()
    stack.callback(comparisons.close)
    for listener in listeners:
        hosts = ServedHosts(listener.endpoint.host, settings.hosts)
        access = Access(authenticator, hosts, settings.metrics_token)
        runner = web.AppRunner(
            make_application(schemas, store, access, metrics, comparisons),
            access_log=None,
            shutdown_timeout=_SHUTDOWN_S,
        )
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        for each in listener.sockets:
            await web.SockSite(runner, each, ssl_context=settings.tls).start()
    scheme = "http" if settings.tls is None else "https"
    where = " ".join(f"{scheme}://{each.endpoint}" for each in listeners)
    return Started(store, f"{where} kafka={settings.bootstrap_servers}")
