"""What the connections of one listener share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from broker_core.protocol.schema import AnyApi
from broker_core.server.network.request import AnyRequest
from broker_core.server.network.request_metrics import RequestMetrics
from broker_core.server.network.request_turns import RequestTurns
from broker_core.server.network.session import ListenerSecurity

#: Answers a request, now or later.
Handle = Callable[[AnyRequest], None]


@dataclass(slots=True)
class ConnectionContext:
    """Settings of a listener's connections, and what they work with."""

    handle: Handle
    security: ListenerSecurity
    apis: Mapping[int, AnyApi]
    metrics: RequestMetrics | None
    #: Requests without an answer above which a connection reads no further ones.
    pending_max: int
    frame_bytes_max: int
    #: Takes the place of `frame_bytes_max` before the login.
    login_bytes_max: int
    #: The receive buffer of connections without an incomplete request.
    shared_buffer: memoryview
    loop: asyncio.AbstractEventLoop
    turns: RequestTurns
    now: Callable[[], float]
