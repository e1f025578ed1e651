"""Which names topics may have. Source: Kafka's `org.apache.kafka.common.internals.Topic`."""

from __future__ import annotations

import re
from typing import Final

#: What names are, for messages.
TOPIC_NAME_RULE: Final = "1 to 249 letters, digits, '.', '_' and '-'"

_LEGAL_NAME: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")


def is_topic_name(name: str) -> bool:
    """Tell whether any cluster could have a topic of this name."""
    return name not in {".", ".."} and _LEGAL_NAME.fullmatch(name) is not None
