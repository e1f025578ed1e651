"""ApiVersions, InitProducerId: what a client asks before everything else."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from broker_core import errors
from broker_core.protocol.definitions import ADVERTISED_FROM, APIS
from broker_core.server.request import Request

if TYPE_CHECKING:
    from broker_core.server.runtime import Broker

logger = logging.getLogger(__name__)

_API_VERSIONS = 18


def handle(broker: Broker, request: Request) -> None:
    """ApiVersions; one that is too new learns which version to use (KIP-511)."""
    served = APIS[_API_VERSIONS]
    if not served.serves(request.version):
        low, high = served.versions
        request.reply(
            {
                "error_code": errors.UnsupportedVersion.code,
                "api_keys": [{"api_key": _API_VERSIONS, "min_version": low, "max_version": high}],
            }
        )
        return
    request.reply(
        {
            "api_keys": [
                {
                    "api_key": key,
                    "min_version": ADVERTISED_FROM.get(key, api.versions[0]),
                    "max_version": api.versions[1],
                }
                for key, api in sorted(APIS.items())
            ]
        }
    )


def handle_init_producer_id(broker: Broker, request: Request) -> None:
    """InitProducerId: a new id for every idempotent producer."""
    if request.body["transactional_id"] is not None:
        request.reply({"error_code": errors.InvalidRequest.code, "producer_epoch": -1})
        return
    try:
        producer_id = broker.producer_ids.next_id()
    except errors.KafkaStorageError as error:
        logger.error("no producer id: %s", error)
        request.reply({"error_code": error.code, "producer_epoch": -1})
        return
    # One that asks again for an epoch of its id gets a new id with epoch 0, as from Kafka.
    request.reply({"producer_id": producer_id, "producer_epoch": 0})
