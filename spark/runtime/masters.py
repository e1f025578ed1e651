"""Spark's master: what its URL may look like, and whether anybody answers there.

Spark itself says so with the stack traces of two languages, and of a cluster that does not answer
only after a minute.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from waylog.cli import CommandError
from waylog.config import ConfigError, parse_endpoint

#: Spark's forms (org.apache.spark.SparkMasterRegex); with no thread it does not start.
_LOCAL: Final = re.compile(
    r"local(\[(\*|0*[1-9][0-9]*)(\s*,\s*[0-9]+)?\])?"
    r"|local-cluster\[\s*[0-9]+\s*,\s*[0-9]+\s*,\s*[0-9]+\s*\]"
)
_STANDALONE: Final = "spark://"
_KUBERNETES: Final = "k8s://"
_YARN: Final = "yarn"
#: Either of them names the folder with the configuration of a YARN cluster.
_YARN_FOLDERS: Final = ("HADOOP_CONF_DIR", "YARN_CONF_DIR")
_HTTPS_PORT: Final = 443
_HTTP_PORT: Final = 80
_CONNECT_S: Final = 10.0


def check_master_form(master: str) -> None:
    """Raise ConfigError for a master that Spark does not know."""
    if not _LOCAL.fullmatch(master) and master != _YARN:
        list(_addresses(master))


def check_master(master: str, environment: Mapping[str, str] | None = None) -> None:
    """Raise ConfigError for a master that Spark does not know, CommandError if none answers.

    Blocks for some seconds at most.
    """
    environment = os.environ if environment is None else environment
    if _LOCAL.fullmatch(master):
        return
    if master == _YARN:
        _check_yarn(environment)
        return
    reasons = []
    for host, port in _addresses(master):
        try:
            socket.create_connection((host, port), _CONNECT_S).close()
        except OSError as error:
            reasons.append(f"{host}:{port}: {error.strerror or error}")
        else:
            return
    raise CommandError(f"--master {master}: nothing answers there ({'; '.join(reasons)})")


def _check_yarn(environment: Mapping[str, str]) -> None:
    folders = [environment[name] for name in _YARN_FOLDERS if environment.get(name)]
    if not folders:
        raise ConfigError(
            "--master yarn: HADOOP_CONF_DIR or YARN_CONF_DIR has to name the folder with the "
            "configuration of the cluster"
        )
    for folder in folders:
        if not Path(folder).is_dir():
            raise ConfigError(f"--master yarn: {folder}: there is no such folder")


def _addresses(master: str) -> Iterator[tuple[str, int]]:
    """Yield where a master may listen; raises ConfigError for what is none."""
    if master.startswith(_STANDALONE):
        for address in master.removeprefix(_STANDALONE).split(","):
            try:
                endpoint = parse_endpoint(address)
            except ConfigError as error:
                raise ConfigError(f"--master {master}: {error}") from error
            yield endpoint.host, endpoint.port
        return
    if master.startswith(_KUBERNETES):
        url = master.removeprefix(_KUBERNETES)
        try:
            parts = urlsplit(url if "://" in url else f"https://{url}")
            host, port = parts.hostname, parts.port
        except ValueError as error:
            raise ConfigError(f"--master {master}: {error}") from error
        if host:
            yield host, port or (_HTTP_PORT if parts.scheme == "http" else _HTTPS_PORT)
            return
    raise ConfigError(
        f"--master {master}: local, local[N] (N threads, or *), spark://HOST:PORT, "
        "k8s://https://HOST:PORT or yarn is expected"
    )
