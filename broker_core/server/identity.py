"""The log directory's lock, and who it belongs to: Kafka's `meta.properties`."""

from __future__ import annotations

import base64
import fcntl
import os
import uuid
from pathlib import Path
from typing import Final

from broker_core.environment import Environment
from waylog.config import ConfigError, load_properties

_META: Final = "meta.properties"
_LOCK: Final = ".lock"


class DirectoryLock:
    """Keeps a second broker out of a log directory; held until `release` or the process's end."""

    def __init__(self, directory: Path) -> None:
        self._descriptor = os.open(directory / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._descriptor)
            raise ConfigError(f"{directory}: another broker uses this directory") from error

    def release(self) -> None:
        """Let others in."""
        os.close(self._descriptor)


def load_cluster_id(
    directory: Path, node_id: int, environment: Environment, cluster_id: str | None = None
) -> str:
    """The cluster's id: the one given, else made up at the first start.

    Raises ConfigError if the directory belongs to another node or cluster.
    """
    path = directory / _META
    if path.exists():
        stored = load_properties(path)
        if stored.get("node.id") != str(node_id):
            raise ConfigError(
                f"{path}: the directory belongs to node {stored.get('node.id')}, "
                f"the configuration says node.id={node_id}"
            )
        if cluster_id not in {None, stored["cluster.id"]}:
            raise ConfigError(
                f"{path}: the directory belongs to cluster {stored['cluster.id']}, "
                f"the controllers keep the metadata of {cluster_id}"
            )
        return stored["cluster.id"]
    cluster_id = cluster_id or base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
    text = f"version=1\ncluster.id={cluster_id}\nnode.id={node_id}\n"
    environment.disk.replace(path, text.encode())
    return cluster_id
