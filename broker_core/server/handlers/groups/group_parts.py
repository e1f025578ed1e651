"""What the handlers of several families need to know of groups."""

from __future__ import annotations

from typing import Protocol

from broker_core.server.coordination.groups import Groups
from broker_core.server.partitions.topics import TopicRegistry


class GroupParts(Protocol):
    """The parts of a broker that keep groups, and name the topics that these read."""

    groups: Groups
    topics: TopicRegistry
