"""Rules for the names of topics."""

from __future__ import annotations

from broker_core.cluster.image import ClusterImage
from broker_core.errors import InvalidTopic, TopicAlreadyExists
from waylog.topic_names import TOPIC_NAME_RULE, is_topic_name


def check_name(name: str) -> None:
    """Raise InvalidTopic for a name that Kafka would refuse."""
    if not is_topic_name(name):
        raise InvalidTopic(f"the topic name {name!r} is not allowed: {TOPIC_NAME_RULE}")


def check_new_name(name: str, image: ClusterImage) -> None:
    """Raise InvalidTopic or TopicAlreadyExists for a name that a new topic cannot have."""
    check_name(name)
    if name in image.topics:
        raise TopicAlreadyExists(f"Topic '{name}' already exists.")
    other = image.collision(name)
    if other is not None:
        raise InvalidTopic(f"Topic '{name}' collides with existing topic: {other}")
