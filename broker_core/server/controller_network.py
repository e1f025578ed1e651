"""The listener of a node's controller, for the other nodes of the cluster."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

from broker_core.environment import Environment
from broker_core.protocol.definitions import CONTROLLER_APIS, SASL_AUTHENTICATE, SASL_HANDSHAKE
from broker_core.security.credentials import ScramUsers
from broker_core.security.failures import LoginFailures
from broker_core.server.authorization import authorize
from broker_core.server.authorization.guard import Guarded
from broker_core.server.cluster.membership import Cluster
from broker_core.server.handlers import api_versions
from broker_core.server.handlers.security import sasl
from broker_core.server.network.network import Network
from broker_core.server.network.request import AnyRequest
from waylog.network.connection_pool import ConnectionPool


class ControllerParts(Guarded, Protocol):
    """The parts of a broker that serve the other nodes of its cluster."""

    cluster: Cluster
    scram_users: ScramUsers
    login_failures: LoginFailures
    connection_pool: ConnectionPool


def controller_network(broker: ControllerParts, environment: Environment) -> Network | None:
    """Return the network of the controllers' listener; None if this node has none."""
    config = broker.config
    if config.controller_listener is None or not config.is_controller:
        return None
    return Network(
        config,
        broker.scram_users,
        partial(_handle, broker),
        connections=broker.connection_pool,
        environment=environment,
        listeners=(config.controller_listener,),
        apis=CONTROLLER_APIS,
    )


def _handle(broker: ControllerParts, request: AnyRequest) -> None:
    """Answer a request from the controller's listener."""
    login = _LOGIN.get(request.header.api.key)
    if login is not None:
        login(broker, request)
    elif authorize(broker, request):
        broker.cluster.serve(request)


def _authenticate(broker: ControllerParts, request: AnyRequest) -> None:
    sasl.handle_authenticate(broker.login_failures, request)


_LOGIN: Final[dict[int, Callable[[ControllerParts, AnyRequest], None]]] = {
    api_versions.API_KEY: lambda _, request: api_versions.handle_controller(request),
    SASL_HANDSHAKE.key: lambda _, request: sasl.handle_handshake(request),
    SASL_AUTHENTICATE.key: _authenticate,
}

if not _LOGIN.keys() <= CONTROLLER_APIS.keys():
    raise RuntimeError("every API of a login has to be advertised")
