"""DescribeAcls, CreateAcls, DeleteAcls."""

from __future__ import annotations

import logging
from itertools import groupby
from typing import TYPE_CHECKING, Protocol

from broker_core import errors
from broker_core.security.acl import Acl, AclFilter
from broker_core.security.authorizer import ACLS_MAX, Authorizer, require
from broker_core.server.handlers.administration import Administered, answer_each
from broker_core.server.network.request import Request
from broker_core.server.settings.admin_operations import AdminOperations

if TYPE_CHECKING:
    from broker_core.protocol.definitions.bodies import (
        CreateAclsRequest,
        CreateAclsResponse,
        CreateAclsResponseResult,
        DeleteAclsRequest,
        DeleteAclsResponse,
        DeleteAclsResponseFilterResult,
        DeleteAclsResponseMatchingAcl,
        DescribeAclsRequest,
        DescribeAclsResponse,
        DescribeAclsResponseAcl,
        DescribeAclsResponseResource,
    )

logger = logging.getLogger(__name__)


class AclParts(Administered, Protocol):
    """The parts of a broker that know and change its ACLs."""

    authorizer: Authorizer | None


def _rule(acl: Acl) -> DescribeAclsResponseAcl:
    return {
        "principal": acl.principal,
        "host": acl.host,
        "operation": acl.operation,
        "permission_type": acl.permission,
    }


def handle_describe(
    broker: AclParts, request: Request[DescribeAclsRequest, DescribeAclsResponse]
) -> None:
    """Answer a DescribeAcls request."""
    try:
        found = require(broker.authorizer).find(AclFilter.parse(request.body))
    except errors.BrokerError as error:
        request.reply({"error_code": error.code, "error_message": str(error), "resources": []})
        return
    resources: list[DescribeAclsResponseResource] = []
    for resource, acls in groupby(found, key=lambda acl: acl[:3]):
        rules = list(acls)
        resources.append(
            {
                "resource_type": rules[0].resource_type,
                "resource_name": rules[0].resource_name,
                "pattern_type": rules[0].pattern_type,
                "acls": [_rule(acl) for acl in rules],
            }
        )
        assert resource == rules[0][:3]
    request.reply({"error_code": errors.NONE, "error_message": None, "resources": resources})


def handle_create(
    broker: AclParts, request: Request[CreateAclsRequest, CreateAclsResponse]
) -> None:
    """Answer a CreateAcls request."""
    results: list[CreateAclsResponseResult] = []
    creations = request.body["creations"]

    def create(authority: AdminOperations) -> None:
        wanted: list[Acl] = []
        for asked in creations:
            result: CreateAclsResponseResult = {"error_code": errors.NONE, "error_message": None}
            results.append(result)
            try:
                authorizer = require(authority.authorizer)
                acl = Acl.parse(asked)
                if len(authorizer) + len(wanted) >= ACLS_MAX:
                    raise errors.InvalidRequest(f"this broker keeps at most {ACLS_MAX} ACLs")
                wanted.append(acl)
            except errors.BrokerError as error:
                result["error_code"] = error.code
                result["error_message"] = str(error)
        if wanted and authority.authorizer is not None:
            authority.authorizer.add(wanted)
            logger.info("%s creates %d ACLs", request.principal, len(wanted))
            authority.save()

    broker.cluster.administer(
        create, answer_each(lambda: request.reply({"results": results}), results)
    )


def handle_delete(
    broker: AclParts, request: Request[DeleteAclsRequest, DeleteAclsResponse]
) -> None:
    """Answer a DeleteAcls request."""
    results: list[DeleteAclsResponseFilterResult] = []
    filters = request.body["filters"]

    def delete(authority: AdminOperations) -> None:
        gone: set[Acl] = set()
        for asked in filters:
            try:
                found = require(authority.authorizer).find(AclFilter.parse(asked))
            except errors.BrokerError as error:
                results.append(
                    {"error_code": error.code, "error_message": str(error), "matching_acls": []}
                )
                continue
            gone.update(found)
            matching: list[DeleteAclsResponseMatchingAcl] = [
                {
                    "error_code": errors.NONE,
                    "error_message": None,
                    "resource_type": acl.resource_type,
                    "resource_name": acl.resource_name,
                    "pattern_type": acl.pattern_type,
                    **_rule(acl),
                }
                for acl in found
            ]
            results.append(
                {"error_code": errors.NONE, "error_message": None, "matching_acls": matching}
            )
        if gone and authority.authorizer is not None:
            authority.authorizer.remove(gone)
            logger.info("%s deletes %d ACLs", request.principal, len(gone))
            authority.save()

    broker.cluster.administer(
        delete, answer_each(lambda: request.reply({"filter_results": results}), results)
    )
