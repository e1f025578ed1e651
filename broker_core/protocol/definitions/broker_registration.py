"""BrokerRegistration, API key 62, from brokers to the controller (KIP-631)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.protocol.schema import Api

if TYPE_CHECKING:
    from broker_core.protocol.definitions.bodies import (
        BrokerRegistrationRequest,
        BrokerRegistrationResponse,
    )

BROKER_REGISTRATION: Api[BrokerRegistrationRequest, BrokerRegistrationResponse] = Api(
    key=62,
    name="BrokerRegistration",
    versions=(3, 4),
    flexible_from=0,
    request="""
    broker_id int32 0+
    cluster_id string 0+
    incarnation_id uuid 0+
    listeners [] 0+
        name string 0+
        host string 0+
        port uint16 0+
        security_protocol int16 0+
    features [] 0+
        name string 0+
        min_supported_version int16 0+
        max_supported_version int16 0+
    rack string 0+ nullable 0+
    is_migrating_zk_broker bool 1+
    log_dirs []uuid 2+
    previous_broker_epoch int64 3+ default -1
""",
    response="""
    throttle_time_ms int32 0+
    error_code int16 0+
    broker_epoch int64 0+ default -1
""",
)
