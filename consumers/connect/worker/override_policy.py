"""Which properties of Kafka clients a connector may set (KIP-458).

`connector.client.config.override.policy` of the worker is All, None or Principal.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from consumers.connect.configuration.connector_validation import ConfigInfo, ConfigInfos, ValueInfo

_PREFIXES: Final = ("producer.override.", "consumer.override.", "admin.override.")
_PRINCIPAL: Final = ("sasl.jaas.config", "sasl.mechanism", "security.protocol")


def refuse_overrides(infos: ConfigInfos, properties: Mapping[str, str | None], policy: str) -> None:
    """Add an error for each property that the policy does not allow."""
    if policy == "All":
        return
    for name in properties:
        prefix = next((each for each in _PREFIXES if name.startswith(each)), None)
        if prefix is None:
            continue
        own = name.removeprefix(prefix)
        if policy == "Principal" and own in _PRINCIPAL:
            continue
        error = (
            f"The '{policy}' policy does not allow '{own}' to be overridden in the connector "
            "configuration."
        )
        # The value may be a password.
        value = ValueInfo(
            name=name, value=None, recommended_values=[], errors=[error], visible=True
        )
        infos.configs.append(ConfigInfo(None, value))
        infos.error_count += 1
