"""DescribeClientQuotas, AlterClientQuotas (KIP-546)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from broker_core import errors
from broker_core.security.quotas import ClientQuotas
from broker_core.server.handlers.administration import answer_each
from broker_core.server.network.request import Request
from broker_core.server.settings.admin_operations import Administration, AdminOperations

if TYPE_CHECKING:
    from broker_core.protocol.definitions.bodies import (
        AlterClientQuotasRequest,
        AlterClientQuotasResponse,
        AlterClientQuotasResponseEntry,
        DescribeClientQuotasRequest,
        DescribeClientQuotasResponse,
        DescribeClientQuotasResponseEntry,
    )

logger = logging.getLogger(__name__)


def handle_describe(
    quotas: ClientQuotas,
    request: Request[DescribeClientQuotasRequest, DescribeClientQuotasResponse],
) -> None:
    """Answer a DescribeClientQuotas request."""
    body = request.body
    try:
        entries: list[DescribeClientQuotasResponseEntry] = [
            {
                "entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity],
                "values": [{"key": key, "value": value} for key, value in values.items()],
            }
            for entity, values in quotas.describe(body["components"], body["strict"])
        ]
    except errors.BrokerError as error:
        request.reply({"error_code": error.code, "error_message": str(error), "entries": None})
        return
    request.reply({"error_code": errors.NONE, "error_message": None, "entries": entries})


def handle_alter(
    cluster: Administration, request: Request[AlterClientQuotasRequest, AlterClientQuotasResponse]
) -> None:
    """Answer an AlterClientQuotas request."""
    body = request.body
    results: list[AlterClientQuotasResponseEntry] = []

    def alter(authority: AdminOperations) -> None:
        changed = 0
        for asked in body["entries"]:
            result: AlterClientQuotasResponseEntry = {
                "error_code": errors.NONE,
                "error_message": None,
                "entity": [
                    {"entity_type": each["entity_type"], "entity_name": each["entity_name"]}
                    for each in asked["entity"]
                ],
            }
            results.append(result)
            try:
                entity = authority.quotas.check(asked["entity"], asked["ops"])
                if not body["validate_only"]:
                    authority.quotas.alter(entity, asked["ops"])
                    changed += 1
            except errors.BrokerError as error:
                result["error_code"] = error.code
                result["error_message"] = str(error)
        if changed:
            logger.info("%s changes %d quotas", request.principal, changed)
            authority.save()

    cluster.administer(alter, answer_each(lambda: request.reply({"entries": results}), results))
