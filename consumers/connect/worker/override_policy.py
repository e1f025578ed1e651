"""Properties of Kafka clients that a connector sets: whether it may, and whether they are valid.

`connector.client.config.override.policy` of the worker is All, None or Principal (KIP-458). What is
allowed is tried with librdkafka, which knows its properties.
"""

from __future__ import annotations

import re
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from consumers.connect.configuration.connector_validation import ConfigInfo, ConfigInfos, ValueInfo
from consumers.connect.configuration.exceptions import ConfigException
from consumers.connect.configuration.password import HIDDEN
from consumers.connect.configuration.variables import Resolved
from consumers.connect.tasks.client_properties import (
    POLL_RECORDS,
    librdkafka_properties,
    poll_records,
)
from waylog.kafka.errors import error_text

_CONSUMER: Final = "consumer.override."
_PREFIXES: Final = ("producer.override.", _CONSUMER, "admin.override.")
_PRINCIPAL: Final = ("sasl.jaas.config", "sasl.mechanism", "security.protocol")
#: How an error begins that other properties may be the cause of: a login has several.
_INCOMPLETE: Final = "Failed to create"
#: Properties whose values are not shown.
_SECRET: Final = re.compile(r"password|jaas|secret|\.key$|\.pem$|\.certificates?")


def check_overrides(infos: ConfigInfos, resolved: Resolved, policy: str) -> None:
    """Add an error for each property of a client that is not allowed, or not valid."""
    for name, value in resolved.properties.items():
        prefix = next((each for each in _PREFIXES if name.startswith(each)), None)
        if prefix is None or value is None:
            continue
        own = name.removeprefix(prefix)
        if policy == "None" or (policy == "Principal" and own not in _PRINCIPAL):
            error: str | None = (
                f"The '{policy}' policy does not allow '{own}' to be overridden in the connector "
                "configuration."
            )
        else:
            error = _error(name, own, value)
        if error is not None:
            shown = resolved.without_secrets(error, name, name)
            info = ValueInfo(
                name=name, value=None, recommended_values=[], errors=[shown], visible=True
            )
            infos.configs.append(ConfigInfo(None, info))
            infos.error_count += 1


def _error(name: str, own: str, value: str) -> str | None:
    """Return what is wrong with a property; None if nothing is."""
    try:
        if own == POLL_RECORDS and name.startswith(_CONSUMER):
            poll_records(value)
        translated = librdkafka_properties({own: value})
        # A client without brokers only checks its properties.
        AdminClient({"bootstrap.servers": "", "log_level": 2, **translated})
    except (ConfigException, KafkaException) as error:
        reason = error_text(error)
        if reason.startswith(_INCOMPLETE):
            return None
        if _SECRET.search(own) and value:
            reason = reason.replace(value, HIDDEN)
        return f"Invalid value for configuration {name}: {reason}"
    return None
