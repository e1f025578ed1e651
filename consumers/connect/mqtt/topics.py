"""Names and filters of MQTT topics (MQTT 5.0, section 4.7)."""

from __future__ import annotations

import re
from typing import Any, Final

from consumers.connect.data.exceptions import DataException
from consumers.connect.data.records import SinkRecord
from consumers.connect.data.value_text import java_text

_BYTES_MAX: Final = 65_535
_PLACEHOLDER: Final = re.compile(r"\$\{([^}]*)\}")
_NAMES: Final = ("topic", "key")


def filter_problem(text: str) -> str | None:
    """Return what is wrong with a topic filter, None if it is one."""
    if not text or "\0" in text or len(text.encode("utf-8", "replace")) > _BYTES_MAX:
        return "a topic filter has 1 to 65535 bytes and no NUL"
    levels = text.split("/")
    for number, level in enumerate(levels):
        if "#" in level and (level != "#" or number < len(levels) - 1):
            return "# has to be the last level, alone"
        if "+" in level and level != "+":
            return "+ has to be a level of its own"
    return None


def format_problem(text: str) -> str | None:
    """Return what is wrong with a format of topic names, None if it is one."""
    if not text:
        return "it is empty"
    for found in _PLACEHOLDER.finditer(text):
        if found[1] not in _NAMES:
            return f"{found[0]} is neither ${{topic}} nor ${{key}}"
    if any(each in _PLACEHOLDER.sub("", text) for each in "+#\0"):
        return "a topic that is published to has no +, # and NUL"
    return None


def topic_of(record: SinkRecord, format_: str) -> str:
    """Return the MQTT topic of a record; raises DataException."""

    def fill(found: re.Match[str]) -> str:
        if found[1] == "topic":
            return record.topic
        if record.key is None:
            raise DataException("the record has no key for its MQTT topic")
        return _key_text(record.key)

    topic = _PLACEHOLDER.sub(fill, format_)
    if not topic or any(each in topic for each in "+#\0"):
        raise DataException(f"the key makes no MQTT topic: {topic!r}")
    try:
        if len(topic.encode()) > _BYTES_MAX:
            raise DataException("the MQTT topic is longer than 65535 bytes")
    except UnicodeEncodeError as error:
        raise DataException("the key makes no MQTT topic: it is no UTF-8") from error
    return topic


def _key_text(key: Any) -> str:
    if isinstance(key, bytes):
        try:
            return key.decode()
        except UnicodeDecodeError as error:
            raise DataException("the key makes no MQTT topic: it is no UTF-8") from error
    return java_text(key)
