"""Rules for the names of topics."""

from __future__ import annotations

import re
from typing import Final

from broker_core.cluster.image import ClusterImage
from broker_core.errors import InvalidTopic, TopicAlreadyExists

_LEGAL_NAME: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")


def check_name(name: str) -> None:
    """Raise InvalidTopic for a name that Kafka would refuse."""
    if name in {".", ".."} or not _LEGAL_NAME.fullmatch(name):
        raise InvalidTopic(
            f"the topic name {name!r} is not allowed: 1 to 249 letters, digits, '.', '_' and '-'"
        )


def check_new_name(name: str, image: ClusterImage) -> None:
    """Raise InvalidTopic or TopicAlreadyExists for a name that a new topic cannot have."""
    check_name(name)
    if name in image.topics:
        raise TopicAlreadyExists(f"Topic '{name}' already exists.")
    other = image.collision(name)
    if other is not None:
        raise InvalidTopic(f"Topic '{name}' collides with existing topic: {other}")
