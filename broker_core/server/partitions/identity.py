"""`meta.properties`, Kafka's file that says which broker a log directory belongs to."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Final

from broker_core.environment import Environment
from waylog.config import ConfigError, parse_properties

_META: Final = "meta.properties"


def load_cluster_id(
    directory: Path, node_id: int, environment: Environment, cluster_id: str | None = None
) -> str:
    """Return the cluster's id, stored at the first start: the given one, or else a random one.

    Raises ConfigError if the file is damaged or belongs to another node or cluster.
    """
    path = directory / _META
    disk = environment.disk
    if disk.size(path) is not None:
        try:
            stored = parse_properties(disk.read(path).decode(), path)
        except UnicodeDecodeError:
            stored = {}
        if not {"node.id", "cluster.id"} <= stored.keys():
            raise ConfigError(
                f"{path}: is damaged; node.id={node_id} and the cluster.id of before belong there"
            )
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
    cluster_id = (
        cluster_id or base64.urlsafe_b64encode(environment.new_uuid().bytes).rstrip(b"=").decode()
    )
    text = f"version=1\ncluster.id={cluster_id}\nnode.id={node_id}\n"
    disk.replace(path, text.encode())
    return cluster_id
