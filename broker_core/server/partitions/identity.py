"""`meta.properties`, Kafka's file that says which broker a log directory belongs to."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final

from broker_core.environment import Environment
from waylog.config import ConfigError, parse_properties

logger = logging.getLogger(__name__)

_META: Final = "meta.properties"


def stored_cluster_id(directory: Path, node_id: int, environment: Environment) -> str | None:
    """Return the cluster's id in the file, None if there is no file.

    Raises ConfigError if the file is damaged or belongs to another node.
    """
    path = directory / _META
    disk = environment.disk
    if disk.size(path) is None:
        return None
    try:
        stored = parse_properties(disk.read(path).decode(), path)
    except UnicodeDecodeError:
        stored = {}
    if not {"node.id", "cluster.id"} <= stored.keys():
        raise ConfigError(
            f"{path}: is damaged; put a copy of it back, or, if no other node has used the folder, "
            "remove it: it is written again"
        )
    if stored["node.id"] != str(node_id):
        raise ConfigError(
            f"{path}: the directory belongs to node {stored['node.id']}, the configuration says "
            f"node.id={node_id}: name the right log.dirs, or the right node.id"
        )
    return stored["cluster.id"]


def check_cluster_id(
    directory: Path, node_id: int, environment: Environment, cluster_id: str, *, is_new: bool
) -> None:
    """Store the cluster's id, as the metadata has it, if there is no file.

    Raises ConfigError if the file is damaged or belongs to another node or cluster. `is_new`: there
    have been no partitions in the directory.
    """
    path = directory / _META
    stored = stored_cluster_id(directory, node_id, environment)
    if stored is None:
        if not is_new:
            logger.warning("%s was missing: written again, as the metadata says", path)
        text = f"version=1\ncluster.id={cluster_id}\nnode.id={node_id}\n"
        environment.disk.replace(path, text.encode())
    elif stored != cluster_id:
        raise ConfigError(
            f"{path}: the directory belongs to cluster {stored}, the controllers keep the metadata "
            f"of {cluster_id}: name the right log.dirs, or the right controllers; if the folders "
            "of the partitions in it are of this cluster, remove the file: it is written again"
        )
