from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.cluster.image import ClusterImage, ImageError
from broker_core.cluster.records import (
    AccessControlEntry,
    BrokerRegistrationChange,
    ClientQuota,
    ClusterRecord,
    ConfigRecord,
    ListenerAddress,
    MetadataRecord,
    PartitionChange,
    PartitionRecord,
    ProducerIds,
    RegisterBroker,
    RemoveTopic,
    RemoveUserScramCredential,
    TopicRecord,
    UserScramCredential,
    decode_records,
    encode_records,
)
from broker_core.cluster.snapshot import decode_image, encode_image

TOPIC = b"t" * 16
ADDRESS = ListenerAddress("PLAINTEXT", "127.0.0.1", 9092, "PLAINTEXT")

HISTORY: list[list[MetadataRecord]] = [
    [ClusterRecord("cluster")],
    [RegisterBroker(1, b"i" * 16, (ADDRESS,), "rack-a")],
    [BrokerRegistrationChange(1, 1, fenced=False)],
    [TopicRecord("a", TOPIC), PartitionRecord(TOPIC, 0, (1, 2), (1, 2), 1)],
    [PartitionChange(TOPIC, 0, isr=(2,), leader=2)],
    [PartitionChange(TOPIC, 0, isr=(2, 1))],
    [ConfigRecord(2, "a", "retention.ms", "5"), ConfigRecord(4, "", "max.connections", "7")],
    [ProducerIds(1, 1, 1000)],
    [AccessControlEntry(2, "a", 3, "User:x", "*", 3, 3)],
    [UserScramCredential("x", "SCRAM-SHA-256", b"s", b"k", b"v", 4096)],
    [ClientQuota((("user", None),), "producer_byte_rate", 5.0)],
]


def image_of(history: list[list[MetadataRecord]]) -> ClusterImage:
    image = ClusterImage()
    for offset, records in enumerate(history):
        image.apply(offset, records)
    return image


def test_an_image_is_what_its_records_made() -> None:
    image = image_of(HISTORY)
    assert image.offset == len(HISTORY)
    assert image.cluster_id == "cluster"
    assert image.brokers[1].epoch == 1
    assert image.is_active(1)
    partition = image.partition("a", 0)
    assert partition is not None
    assert (partition.isr, partition.leader) == ((2, 1), 2)
    assert (partition.leader_epoch, partition.partition_epoch) == (1, 2)
    assert image.configs == {(2, "a"): {"retention.ms": "5"}, (4, ""): {"max.connections": "7"}}


def test_a_broker_that_registers_again_is_fenced_and_has_a_newer_epoch() -> None:
    image = image_of(HISTORY)
    changes = image.apply(50, [RegisterBroker(1, b"j" * 16, (ADDRESS,))])
    assert changes.brokers == {1}
    assert image.brokers[1].fenced
    assert image.brokers[1].epoch == 50


def test_a_deleted_topic_takes_its_settings_with_it() -> None:
    image = image_of(HISTORY)
    changes = image.apply(50, [RemoveTopic(TOPIC)])
    assert [topic.name for topic in changes.deleted] == ["a"]
    assert "a" not in image.topics
    assert (2, "a") not in image.configs


def test_names_that_collide_already_are_told_apart_when_one_goes() -> None:
    """A log of an older version may have such topics."""
    image = ClusterImage()
    image.apply(0, [TopicRecord("a.b", TOPIC), TopicRecord("a_b", b"u" * 16)])
    assert (image.collision("a.b"), image.collision("a_b")) == ("a_b", "a.b")
    image.apply(1, [RemoveTopic(TOPIC)])
    assert (image.collision("a.b"), image.collision("a_b")) == ("a_b", None)
    image.apply(2, [RemoveTopic(b"u" * 16)])
    assert image.collision("a.b") is None


def test_partitions_are_counted_as_long_as_their_topic_exists() -> None:
    image = image_of(HISTORY)
    other = b"u" * 16
    parts = [PartitionRecord(other, index, (1,), (1,), 1) for index in range(3)]
    image.apply(50, [TopicRecord("b", other), *parts])
    for each in (image, image.copy(), decode_image(encode_image(image), 51)):
        assert each.partition_count == 4
        each.apply(51, [RemoveTopic(other)])
        assert each.partition_count == 1
        each.apply(52, [RemoveTopic(TOPIC)])
        assert each.partition_count == 0


def test_what_is_removed_is_gone() -> None:
    image = image_of(HISTORY)
    image.apply(
        50,
        [
            AccessControlEntry(2, "a", 3, "User:x", "*", 3, 3, removed=True),
            RemoveUserScramCredential("x", "SCRAM-SHA-256"),
            ClientQuota((("user", None),), "producer_byte_rate", None),
        ],
    )
    assert not image.acls
    assert not image.scram_users
    assert not image.quotas


def test_a_record_that_does_not_fit_is_refused() -> None:
    image = image_of(HISTORY)
    with pytest.raises(ImageError):
        image.apply(50, [PartitionChange(TOPIC, 9, leader=1)])
    with pytest.raises(ImageError):
        image.apply(50, [BrokerRegistrationChange(1, 77, fenced=True)])


@given(st.integers(min_value=0, max_value=len(HISTORY)))
def test_a_snapshot_stands_for_all_entries_before_it(cut: int) -> None:
    image = decode_image(encode_image(image_of(HISTORY[:cut])), cut)
    for offset, records in enumerate(HISTORY[cut:], cut):
        image.apply(offset, decode_records(encode_records(records)))
    assert image.offset == len(HISTORY)
    assert encode_image(image) == encode_image(image_of(HISTORY))


def test_a_copy_changes_on_its_own() -> None:
    image = image_of(HISTORY)
    before = encode_image(image)
    image.copy().apply(50, [PartitionChange(TOPIC, 0, leader=1), ConfigRecord(2, "a", "x", "y")])
    assert encode_image(image) == before
