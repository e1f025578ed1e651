"""All listeners of a broker, with the limits that they share."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Mapping
from typing import Final

from broker_core.cluster.records import ListenerAddress
from broker_core.configuration.config import BrokerConfig
from broker_core.configuration.listeners import ListenerConfig
from broker_core.environment import Environment
from broker_core.protocol.definitions import APIS
from broker_core.protocol.schema import AnyApi
from broker_core.security.credentials import ScramUsers
from broker_core.security.sasl import SaslSettings
from broker_core.security.scram import CredentialLookup
from broker_core.server.network.limits import ConnectionLimits
from broker_core.server.network.listener import Listener
from broker_core.server.network.listener_secrets import ListenerSecrets
from broker_core.server.network.local_accounts_guard import LocalAccountsGuard
from broker_core.server.network.request import AnyRequest
from broker_core.server.network.request_metrics import RequestMetrics
from broker_core.server.network.request_turns import RequestTurns
from broker_core.server.network.session import ListenerSecurity
from waylog.config import Endpoint
from waylog.network.connection_pool import ConnectionPool
from waylog.network.local_peers.peers import LocalPeers
from waylog.network.tls.handshakes import HandshakeScheduler

_TLS_HANDSHAKE_S: Final = 10.0
_TLS_SHUTDOWN_S: Final = 2.0


class Network:
    """Opens and closes the listeners. Raises ConfigError for settings that are not valid."""

    def __init__(
        self,
        config: BrokerConfig,
        users: ScramUsers,
        handle: Callable[[AnyRequest], None],
        *,
        connections: ConnectionPool,
        environment: Environment,
        listeners: tuple[ListenerConfig, ...] | None = None,
        apis: Mapping[int, AnyApi] = APIS,
    ) -> None:
        """`connections` bounds all connections of the process.

        `listeners` are those of the configuration by default.
        """
        self._config = config
        self._handle = handle
        self._acceptor = environment.acceptor
        # Shared by all listeners, which run on one event loop.
        self.turns = RequestTurns(asyncio.get_running_loop(), environment.clock.monotonic)
        self._configs = config.listeners if listeners is None else listeners
        self._apis = apis
        self._lookup = CredentialLookup(users.find)
        self.limits = ConnectionLimits(
            config.max_connections,
            config.max_connections_per_ip,
            dict(config.max_connections_per_ip_overrides),
            config.max_connection_creation_rate,
            config.queued_max_request_bytes,
            pool=connections,
        )
        self.metrics = RequestMetrics() if config.metrics_listener is not None else None
        self._secrets = ListenerSecrets(
            self._configs, config.ssl_store_check_interval_ms, self._host_of
        )
        self._local_peers: LocalPeers | None = None
        # Shared by all listeners, which run on one event loop.
        self._handshakes: HandshakeScheduler | None = None
        #: The listeners by name.
        self.listeners: dict[str, Listener] = {}
        #: Actual address of each listener: port 0 is replaced by the port that the system chose.
        self.endpoints: dict[str, Endpoint] = {}

    def _host_of(self, listener: ListenerConfig) -> str:
        config = self._config
        if (
            config.controller_listener is not None
            and listener.name == config.controller_listener.name
        ):
            voter = dict(config.voters).get(config.node_id)
            return "" if voter is None else voter.host
        return (listener.advertised or listener.endpoint).host

    def bind(self) -> None:
        """Bind the addresses of all listeners; raises ConfigError, OSError."""
        if any(each.local_accounts is not None for each in self._configs):
            self._local_peers = LocalPeers.open()
        for each in self._configs:
            listener = self._listener(each)
            self.endpoints[each.name] = endpoint = listener.bind(each.endpoint)
            advertised = each.advertised or each.endpoint
            # Clients have to be told the port that the system chose for port 0.
            listener.security.advertised = Endpoint(
                advertised.host, advertised.port or endpoint.port
            )
            self.listeners[each.name] = listener

    async def serve(self) -> None:
        """Accept connections; raises OSError."""
        await self._secrets.start()
        for listener in self.listeners.values():
            listener.serve()

    def _listener(self, each: ListenerConfig) -> Listener:
        config = self._config
        sasl = None
        if each.protocol.uses_sasl:
            validator = self._secrets.validator(each.name)
            sasl = SaslSettings(
                each.sasl_mechanisms,
                each.plain_users,
                self._lookup,
                each.session_ms_max,
                None if validator is None else validator.validate,
            )
        return Listener(
            self._handle,
            ListenerSecurity(each, sasl, each.advertised or each.endpoint),
            self.limits,
            turns=self.turns,
            acceptor=self._acceptor,
            frame_bytes_max=config.socket_request_max_bytes,
            login_bytes_max=config.sasl_server_max_receive_bytes,
            idle_ms_max=config.connections_max_idle_ms,
            setup_ms_max=config.connection_setup_timeout_ms,
            pending_max=config.queued_max_requests,
            tls=self._tls(each),
            metrics=self.metrics,
            apis=self._apis,
            guard=self._guard(each),
        )

    def _tls(self, each: ListenerConfig) -> tuple[ssl.SSLContext, HandshakeScheduler] | None:
        context = self._secrets.context(each.name)
        if context is None:
            return None
        if self._handshakes is None:
            self._handshakes = HandshakeScheduler(
                _TLS_HANDSHAKE_S, shutdown_timeout_s=_TLS_SHUTDOWN_S
            )
        return context, self._handshakes

    def _guard(self, each: ListenerConfig) -> LocalAccountsGuard | None:
        if each.local_accounts is None or self._local_peers is None:
            return None
        setting = each.properties.get("local.accounts", "")
        return LocalAccountsGuard(each.name, setting, each.local_accounts, self._local_peers)

    @property
    def addresses(self) -> list[ListenerAddress]:
        """The addresses that clients of each listener are told to connect to."""
        return [
            ListenerAddress(
                each.name,
                self.listeners[each.name].security.advertised.host,
                self.listeners[each.name].security.advertised.port,
                each.protocol.value,
            )
            for each in self._configs
        ]

    @property
    def first_security(self) -> ListenerSecurity:
        """The security settings of the first listener."""
        return self.listeners[self._configs[0].name].security

    def certificate_problem(self) -> str | None:
        """Return which listeners' certificates are not valid now, None if all are."""
        return self._secrets.problem()

    def certificate_expiries(self) -> dict[str, float]:
        """Return when the certificates of each listener expire, in seconds since 1970."""
        return self._secrets.expiries()

    async def close(self) -> None:
        """Close all listeners and their connections."""
        await self._secrets.close()
        for listener in self.listeners.values():
            await listener.stop_accepting()
        for listener in self.listeners.values():
            await listener.close()
        if self._local_peers is not None:
            await self._local_peers.close()
