"""Snapshots of the metadata log: an image, encoded as the records that produce it."""

from __future__ import annotations

from collections.abc import Iterator

from broker_core.cluster.image import ClusterImage
from broker_core.cluster.records import (
    ClientQuota,
    ClusterRecord,
    ConfigRecord,
    MetadataRecord,
    PartitionRecord,
    ProducerIds,
    RegisterBroker,
    TopicRecord,
    decode_records,
    encode_records,
)


def _records(image: ClusterImage) -> Iterator[MetadataRecord]:
    if image.cluster_id is not None:
        yield ClusterRecord(image.cluster_id)
    for broker_id in sorted(image.brokers):
        broker = image.brokers[broker_id]
        yield RegisterBroker(
            broker_id,
            broker.incarnation_id,
            broker.listeners,
            broker.rack,
            broker.fenced,
            broker.in_controlled_shutdown,
            broker.epoch,
        )
    for name in sorted(image.topics):
        topic = image.topics[name]
        yield TopicRecord(name, topic.id)
        for index, partition in enumerate(topic.partitions):
            yield PartitionRecord(
                topic.id,
                index,
                partition.replicas,
                partition.isr,
                partition.leader,
                partition.adding,
                partition.removing,
                partition.leader_epoch,
                partition.partition_epoch,
                partition.recovering,
                partition.elr,
            )
    for resource in sorted(image.configs):
        for key, value in sorted(image.configs[resource].items()):
            yield ConfigRecord(*resource, key, value)
    yield ProducerIds(-1, -1, image.next_producer_id)
    yield from sorted(image.acls, key=repr)
    for user in sorted(image.scram_users):
        yield image.scram_users[user]
    for entity in sorted(image.quotas, key=repr):
        for key, quota in sorted(image.quotas[entity].items()):
            yield ClientQuota(entity, key, quota)


def encode_image(image: ClusterImage) -> bytes:
    """Encode an image as the data of a snapshot; equal images give equal bytes."""
    return encode_records(_records(image))


def decode_image(data: bytes, end_offset: int) -> ClusterImage:
    """Decode the image of a snapshot. Raises msgspec.DecodeError, ImageError."""
    image = ClusterImage()
    image.apply(end_offset - 1, decode_records(data))
    return image
