"""A status page for people: brokers, the quorum, and partitions that lack replicas or a leader."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from html import escape
from typing import Final

from broker_core.cluster.image import ClusterImage, PartitionImage
from broker_core.pieces import in_pieces
from broker_core.server.cluster.membership import Cluster

#: Partitions that are listed; more are only counted.
_ROWS_MAX: Final = 200

_STYLE: Final = (
    "body{font:14px system-ui,sans-serif;margin:2em;color:#222;background:#fff}"
    "table{border-collapse:collapse;margin:.5em 0 1.5em}"
    "td,th{border-bottom:1px solid #ccc;padding:.3em 1em .3em 0;text-align:left}"
    "@media(prefers-color-scheme:dark){body{color:#ddd;background:#1b1b1b}}"
)


async def status_page(cluster: Cluster, node_id: int) -> bytes:
    """Return the page as HTML; the partitions are looked at beside the broker's other work."""
    image = cluster.image
    leader = cluster.controller_id
    partitions = list(image.partitions())
    behind: list[tuple[str, int, PartitionImage]] = []
    behind_count = offline = 0
    led: Counter[int] = Counter()
    async for piece in in_pieces(partitions):
        led.update(partition.leader for _, _, partition in piece)
        for topic, index, partition in piece:
            is_offline = not image.is_active(partition.leader)
            offline += is_offline
            if is_offline or partition.is_under_replicated:
                behind_count += 1
                if behind_count <= _ROWS_MAX:
                    behind.append((topic.name, index, partition))
    body = [
        f"<h1>Cluster {escape(image.cluster_id or 'unknown')}</h1>",
        *_trouble(cluster),
        f"<p>As broker {node_id} knows it: {len(partitions)} partitions, "
        f"{behind_count - offline} under-replicated, {offline} without a leader.</p>",
        "<h2>Brokers</h2>",
        _table(("broker", "address", "rack", "state", "leads"), _brokers(image, led)),
        f"<h2>Metadata quorum</h2><p>Epoch {cluster.quorum.node.replica.epoch}, led by "
        f"{f'node {leader}' if leader >= 0 else 'nobody'}; {image.offset} entries hold here.</p>",
        _quorum(cluster),
        "<h2>Partitions with replicas behind</h2>",
        _table(("partition", "leader", "replicas", "in sync"), map(_partition, behind))
        if behind
        else "<p>None.</p>",
    ]
    if behind_count > _ROWS_MAX:
        body.append(f"<p>And {behind_count - _ROWS_MAX} more.</p>")
    title = "<!doctype html><meta charset=utf-8><title>Waylog cluster</title>"
    head = f"{title}<style>{_STYLE}</style>"
    return (head + "\n".join(body) + "\n").encode()


def _trouble(cluster: Cluster) -> Iterable[str]:
    trouble = cluster.lifecycle.trouble
    if trouble is not None:
        yield f"<p><b>Not up to date: {escape(trouble)}.</b> What follows held before.</p>"


def _table(names: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    head = "".join(f"<th>{name}</th>" for name in names)
    lines = (
        "<tr>" + "".join(f"<td>{escape(str(each))}</td>" for each in row) + "</tr>" for row in rows
    )
    return f"<table><tr>{head}</tr>{''.join(lines)}</table>"


def _brokers(image: ClusterImage, led: Counter[int]) -> Iterable[tuple[object, ...]]:
    for broker in sorted(image.brokers.values(), key=lambda each: each.id):
        state = "fenced" if broker.fenced else "serves" if broker.is_active else "is stopping"
        address = broker.listeners[0] if broker.listeners else None
        yield (
            broker.id,
            "" if address is None else f"{address.host}:{address.port}",
            broker.rack or "",
            state,
            led[broker.id],
        )


def _quorum(cluster: Cluster) -> str:
    replica = cluster.quorum.node.replica
    lag = cluster.quorum_lag()
    rows = (
        (
            key.node_id,
            "leader" if key.node_id == replica.leader_id else "voter",
            lag.get(key.node_id, ""),
        )
        for key in sorted(replica.voters)
    )
    return _table(("node", "role", "entries behind, if known here"), rows)


def _partition(place: tuple[str, int, PartitionImage]) -> tuple[str, str, str, str]:
    topic, index, partition = place
    return (
        f"{topic}-{index}",
        str(partition.leader) if partition.leader >= 0 else "none",
        ", ".join(map(str, partition.replicas)),
        ", ".join(map(str, partition.isr)),
    )
