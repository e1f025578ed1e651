"""ApiVersions, the first request of a client."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from broker_core import errors
from broker_core.protocol.definitions import ADVERTISED_FROM, APIS, CONTROLLER_APIS
from broker_core.protocol.schema import AnyApi
from broker_core.server.network.request import Request

if TYPE_CHECKING:
    from broker_core.protocol.definitions.bodies import (
        ApiVersionsRequest,
        ApiVersionsResponse,
    )

API_KEY: Final = 18

#: Features by Kafka's names, and their levels: from them clients decide how to run transactions
#: (KIP-890), and whether they may use the new group protocol (KIP-848).
_FEATURES: Final = {"group.version": 1, "share.version": 1, "transaction.version": 2}


def handle(request: Request[ApiVersionsRequest, ApiVersionsResponse]) -> None:
    """Answer ApiVersions; a client with a too new version learns which one to use (KIP-511)."""
    _answer(request, APIS)


def handle_controller(request: Request[ApiVersionsRequest, ApiVersionsResponse]) -> None:
    """Answer ApiVersions on a controller's listener."""
    _answer(request, CONTROLLER_APIS)


def _answer(
    request: Request[ApiVersionsRequest, ApiVersionsResponse], apis: Mapping[int, AnyApi]
) -> None:
    served = apis[API_KEY]
    if not served.serves(request.version):
        low, high = served.versions
        request.reply(
            {
                "error_code": errors.UnsupportedVersion.code,
                "api_keys": [{"api_key": API_KEY, "min_version": low, "max_version": high}],
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
                for key, api in sorted(apis.items())
            ],
            "supported_features": [
                {"name": name, "min_version": 0, "max_version": level}
                for name, level in _FEATURES.items()
            ],
            "finalized_features_epoch": 0,
            "finalized_features": [
                {"name": name, "min_version_level": level, "max_version_level": level}
                for name, level in _FEATURES.items()
            ],
        }
    )
