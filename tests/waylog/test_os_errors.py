"""Errors of the operating system in words."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
import uvloop

from waylog.os_errors import describe_os_error


def _serve(loop: asyncio.AbstractEventLoop, host: str, port: int) -> OSError:
    with pytest.raises(OSError) as raised:
        loop.run_until_complete(loop.create_server(asyncio.Protocol, host, port))
    return raised.value


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_an_address_that_is_taken_is_named(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    loop = new_loop()
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
            said = describe_os_error(_serve(loop, "127.0.0.1", port))
        assert said == f"cannot listen on 127.0.0.1:{port}: address already in use"
        said = describe_os_error(_serve(loop, "no-such-host.invalid", 1))
        assert said.startswith("the name of a host cannot be resolved: ")
    finally:
        loop.close()


def test_a_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(OSError) as raised:
        (tmp_path / "typo").read_text()
    assert describe_os_error(raised.value) == f"{tmp_path}/typo: No such file or directory"
    assert describe_os_error(OSError("something else")) == "something else"
