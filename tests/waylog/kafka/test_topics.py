from __future__ import annotations

from waylog.kafka.topics import ADDRESS, EVENT, LOCATION, TOPICS


def test_topics_with_the_device_as_key_have_as_many_partitions() -> None:
    partitions = {topic.name: topic.partitions for topic in TOPICS}
    assert partitions[LOCATION] == partitions[ADDRESS] == partitions[EVENT]


def test_names_are_unique_and_what_must_be_compacted_is() -> None:
    assert len({topic.name for topic in TOPICS}) == len(TOPICS)
    (address,) = [topic for topic in TOPICS if topic.name == ADDRESS]
    assert "compact" in address.config["cleanup.policy"]
