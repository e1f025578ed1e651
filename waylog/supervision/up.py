"""`waylog up`: the platform on one machine, under a supervisor.

Broker, gateway, geocoder, resolvers and the history job are ordinary processes that know each other
only by address; each can run on another machine instead (docs/deploy.md).
"""

from __future__ import annotations

import argparse
import asyncio
import fcntl
import os
from pathlib import Path
from typing import IO

from waylog.cli import EXIT_DONE, CommandError
from waylog.config import DataDirectory
from waylog.history.storage_url import check_storage_url
from waylog.observability.log_lines import configure_logging
from waylog.private_files import make_private, temporary_folder
from waylog.supervision import preflight
from waylog.supervision.platform_plan import PlatformPlan
from waylog.supervision.platform_processes import PlatformProcesses
from waylog.supervision.platform_start import PlatformStart
from waylog.supervision.reserved_ports import ReservedPorts
from waylog.supervision.up_options import add_arguments, check_options, say_what_has_no_effect

__all__ = ["add_arguments", "run"]


def run(arguments: argparse.Namespace) -> int:
    """Run until SIGINT or SIGTERM, then stop everything."""
    configure_logging(line="%(levelname)s %(message)s")
    data = DataDirectory(arguments.data) if arguments.data else DataDirectory.default()
    check_start(arguments, data)
    make_private(data)
    with _lock(data.root / "lock"):
        os.environ.update(temporary_folder(data.temporary))
        if arguments.encrypt_values:
            _name_master_key(data)
        if arguments.forwarding:
            _name_forwarding_key(data)
        with ReservedPorts() as ports:
            plan = PlatformPlan.of(arguments, data, ports)
            PlatformProcesses(plan).check(ports)
            os.environ.update(ports.environment())
            asyncio.run(PlatformStart(plan).run())
    return EXIT_DONE


def check_start(arguments: argparse.Namespace, data: DataDirectory) -> None:
    """Raise ConfigError or CommandError for mistakes, before anything starts."""
    check_options(arguments)
    preflight.check_limits()
    preflight.check_data(data)
    if arguments.geo is not None:
        preflight.check_index(arguments.geo)
    if not arguments.no_history:
        check_storage_url("--history", arguments.history or str(data.history), written=True)
    if arguments.bootstrap_servers is not None:
        preflight.check_cluster(arguments.bootstrap_servers)
    say_what_has_no_effect(arguments)


def _name_master_key(data: DataDirectory) -> None:
    """Set the master key's file for all processes, unless the environment names another."""
    from waylog.sealing.sealing import ENVIRONMENT
    from waylog.sealing.value_encryption import ensure_master_key

    path = Path(os.environ.setdefault(ENVIRONMENT, str(data.master_key.resolve())))
    ensure_master_key(path)


def _name_forwarding_key(data: DataDirectory) -> None:
    """Set the file of the key that seals forwardings, unless the environment names another."""
    from waylog.forwarding.keys import FORWARDING_KEY
    from waylog.sealing.value_encryption import ensure_master_key

    path = Path(os.environ.setdefault(FORWARDING_KEY, str(data.master_key.resolve())))
    ensure_master_key(path)


def _lock(path: Path) -> IO[str]:
    handle = path.open("w", encoding="utf-8")
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        handle.close()
        raise CommandError(
            f"another `waylog up` is running on {path.parent.resolve()}; stop it, or choose "
            "another folder with --data"
        ) from None
    return handle
