"""The process that listens on a port is named."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

from tests.attacks.strangers import needs_root
from tests.ports import reserved_ports
from tests.waylog.supervision.test_reserved_ports import in_namespaces, needs_ipv6
from waylog.network.listeners import listener_of


def test_a_process_that_opens_and_closes_files_all_the_time_is_still_named() -> None:
    """A descriptor that is closed between listing and reading is skipped; the others are not."""
    over = threading.Event()

    def open_and_close() -> None:
        while not over.is_set():
            for each in [os.open(os.devnull, os.O_RDONLY) for _ in range(20)]:
                os.close(each)

    low = [os.open(os.devnull, os.O_RDONLY) for _ in range(20)]
    with socket.create_server(("127.0.0.1", 0)) as server:
        # The thread gets the lowest descriptors, which are read before the server's.
        for each in low:
            os.close(each)
        busy = threading.Thread(target=open_and_close)
        busy.start()
        try:
            found = {listener_of(server.getsockname()[1]) for _ in range(50)}
        finally:
            over.set()
            busy.join()
    assert None not in found
    assert all(str(each).endswith(f"(process {os.getpid()})") for each in found)


def test_a_command_of_ours_is_named_as_one_types_it() -> None:
    program = (
        "import socket, sys\n"
        "with socket.create_server(('127.0.0.1', 0)) as server:\n"
        "    print(server.getsockname()[1], flush=True)\n"
        "    sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, "waylog.cli", "gateway"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        assert listener_of(port) == f"waylog gateway (process {process.pid})"
        process.communicate("")


@needs_ipv6
def test_a_process_that_listens_at_an_address_of_ipv6_is_named() -> None:
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as server:
        name = Path("/proc/self/comm").read_text().strip()
        assert listener_of(server.getsockname()[1]) == f"{name} (process {os.getpid()})"


@needs_root
def test_the_only_program_that_listens_on_a_machine_is_named() -> None:
    program = (
        "import os, socket\n"
        "from waylog.network.listeners import listener_of\n"
        "with socket.create_server(('127.0.0.1', 0)) as server:\n"
        "    print(str(os.getpid()) in (listener_of(server.getsockname()[1]) or ''))\n"
    )
    assert in_namespaces("--net", "ip link set lo up", program) == ("True\n", "")


def test_who_is_connected_from_a_port_does_not_listen_there() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as client,
    ):
        assert listener_of(client.getsockname()[1]) is None


def test_nobody_is_named_where_nobody_listens() -> None:
    assert listener_of(reserved_ports(1)[0]) is None
