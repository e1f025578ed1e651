"""What a turn of a forwarding to an MQTT server says of a server that does not answer."""

from __future__ import annotations

import socket

from consumers.forwarding.mqtt_turn import Turn
from consumers.forwarding.route import Route
from consumers.forwarding.schedule import Failure
from tests.consumers.forwarding.test_ledger import forwarding, record_of
from tests.ports import reserved_ports


def failure_at(port: int) -> Failure | None:
    """Return why a record was not sent to a port of this machine."""
    route = Route("anna", "1", forwarding(kind="mqtt", url=f"mqtt://127.0.0.1:{port}"))
    turn = Turn(route, "127.0.0.1", port, None, 0.5)
    return turn.run([record_of(0, 0, "anna/phone")]).failure


def test_a_server_that_is_down_is_told_from_one_that_is_silent() -> None:
    # Of the first one all forwardings are held back, of the other one only this.
    [port] = reserved_ports(1)
    down = failure_at(port)
    assert down is not None and not down.is_reached
    with socket.create_server(("127.0.0.1", 0)) as listening:
        silent = failure_at(listening.getsockname()[1])
    assert silent is not None and silent.is_reached
