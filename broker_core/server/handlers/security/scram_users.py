"""DescribeUserScramCredentials, AlterUserScramCredentials (KIP-554)."""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING

from broker_core import errors
from broker_core.security.credentials import ScramUsers
from broker_core.security.scram import BY_NAME
from broker_core.server.handlers.administration import answer_each
from broker_core.server.network.request import Request
from broker_core.server.settings.admin_operations import Administration, AdminOperations

if TYPE_CHECKING:
    from broker_core.protocol.definitions.bodies import (
        AlterUserScramCredentialsRequest,
        AlterUserScramCredentialsResponse,
        AlterUserScramCredentialsResponseResult,
        DescribeUserScramCredentialsRequest,
        DescribeUserScramCredentialsResponse,
        DescribeUserScramCredentialsResponseResult,
    )

logger = logging.getLogger(__name__)


def handle_describe(
    users: ScramUsers,
    request: Request[DescribeUserScramCredentialsRequest, DescribeUserScramCredentialsResponse],
) -> None:
    """Answer DescribeUserScramCredentials with the users' mechanisms, never with secrets."""
    asked = request.body["users"]
    names = list(users) if not asked else [each["name"] for each in asked]
    results: list[DescribeUserScramCredentialsResponseResult] = []
    for name, count in Counter(names).items():
        result: DescribeUserScramCredentialsResponseResult = {
            "user": name,
            "error_code": errors.NONE,
            "error_message": None,
        }
        results.append(result)
        try:
            if count > 1:
                raise errors.DuplicateResource(
                    f"Cannot describe SCRAM credentials for the same user twice: {name}"
                )
            result["credential_infos"] = [
                {"mechanism": BY_NAME[mechanism].number, "iterations": credential.iterations}
                for mechanism, credential in users.of(name).items()
            ]
        except errors.BrokerError as error:
            result["error_code"] = error.code
            result["error_message"] = str(error)
    request.reply({"error_code": errors.NONE, "error_message": None, "results": results})


def handle_alter(
    cluster: Administration,
    request: Request[AlterUserScramCredentialsRequest, AlterUserScramCredentialsResponse],
) -> None:
    """Answer an AlterUserScramCredentials request."""
    body = request.body
    results: list[AlterUserScramCredentialsResponseResult] = []

    def alter(authority: AdminOperations) -> None:
        outcome = authority.scram_users.alter(body["deletions"], body["upsertions"])
        results.extend(
            {
                "user": user,
                "error_code": errors.NONE if error is None else error.code,
                "error_message": None if error is None else str(error),
            }
            for user, error in outcome.items()
        )
        logger.info("%s changes the credentials of %d users", request.principal, len(outcome))
        authority.save()

    cluster.administer(alter, answer_each(lambda: request.reply({"results": results}), results))
