"""Which topics a member of a classic consumer group has subscribed to.

Metadata of members is opaque to the coordinator; this reads what consumers put there
(ConsumerProtocolSubscription: an int16 version, then the topics), for an administrator's questions.
"""

from __future__ import annotations

import struct


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """The topics, or None where the metadata is something else."""
    try:
        _, count = struct.unpack_from(">hi", metadata)
        position = 6
        topics: set[str] = set()
        if not 0 <= count <= len(metadata):
            return None
        for _ in range(count):
            (size,) = struct.unpack_from(">h", metadata, position)
            position += 2
            if not 0 <= size <= len(metadata) - position:
                return None
            topics.add(metadata[position : position + size].decode())
            position += size
    except (struct.error, UnicodeDecodeError):
        return None
    return frozenset(topics)
