"""Access control lists: operations of principals on resources, with the numbers of the protocol."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

from broker_core.errors import InvalidRequest

if TYPE_CHECKING:
    from broker_core.protocol.definitions.bodies import (
        CreateAclsRequestCreation,
        DeleteAclsRequestFilter,
        DescribeAclsRequest,
    )

WILDCARD = "*"


class ResourceType(IntEnum):
    """The types of protected resources."""

    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


#: The name of the only resource of type CLUSTER.
CLUSTER_NAME = "kafka-cluster"


class PatternType(IntEnum):
    """The ways in which the resource name of an ACL or a filter matches resources."""

    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Operation(IntEnum):
    """The operations on resources."""

    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class Permission(IntEnum):
    """The effects of an ACL."""

    ANY = 1
    DENY = 2
    ALLOW = 3


_TOPIC = frozenset(
    {
        Operation.READ, Operation.WRITE, Operation.CREATE, Operation.DESCRIBE, Operation.DELETE,
        Operation.ALTER, Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS,
    }
)  # fmt: skip

#: The operations that each type of resource supports.
OPERATIONS_OF = {
    ResourceType.TOPIC: _TOPIC,
    ResourceType.GROUP: frozenset(
        {
            Operation.READ, Operation.DESCRIBE, Operation.DELETE,
            Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS,
        }
    ),
    ResourceType.CLUSTER: frozenset(
        {
            Operation.CREATE, Operation.CLUSTER_ACTION, Operation.DESCRIBE_CONFIGS,
            Operation.ALTER_CONFIGS, Operation.ALTER, Operation.DESCRIBE,
            Operation.IDEMPOTENT_WRITE,
        }
    ),
    ResourceType.TRANSACTIONAL_ID: frozenset(
        {Operation.DESCRIBE, Operation.WRITE, Operation.TWO_PHASE_COMMIT}
    ),
    ResourceType.DELEGATION_TOKEN: frozenset({Operation.DESCRIBE}),
    ResourceType.USER: frozenset({Operation.CREATE_TOKENS, Operation.DESCRIBE_TOKENS}),
}  # fmt: skip


class Acl(NamedTuple):
    """One ACL."""

    resource_type: ResourceType
    resource_name: str
    pattern_type: PatternType
    principal: str
    host: str
    operation: Operation
    permission: Permission

    @classmethod
    def parse(cls, asked: CreateAclsRequestCreation) -> Acl:
        """Read an element of CreateAcls; raises InvalidRequest."""
        try:
            acl = cls(
                ResourceType(asked["resource_type"]),
                asked["resource_name"],
                PatternType(asked["resource_pattern_type"]),
                asked["principal"],
                asked["host"],
                Operation(asked["operation"]),
                Permission(asked["permission_type"]),
            )
        except ValueError as error:
            raise InvalidRequest(f"Invalid ACL: {error}") from None
        if acl.resource_type is ResourceType.ANY:
            raise InvalidRequest("Invalid resource type")
        if acl.pattern_type not in {PatternType.LITERAL, PatternType.PREFIXED}:
            raise InvalidRequest("Invalid pattern type")
        if acl.operation is Operation.ANY:
            raise InvalidRequest("Invalid operation type")
        if acl.permission is Permission.ANY:
            raise InvalidRequest("Invalid permission type")
        if acl.operation not in {Operation.ALL, *OPERATIONS_OF[acl.resource_type]}:
            raise InvalidRequest(
                f"{acl.operation.name} is no operation of {acl.resource_type.name}"
            )
        if not acl.resource_name:
            raise InvalidRequest("Resource name should not be empty")
        if acl.resource_type is ResourceType.CLUSTER and acl.resource_name != CLUSTER_NAME:
            raise InvalidRequest(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
        kind, separator, name = acl.principal.partition(":")
        if not (kind and separator and name):
            raise InvalidRequest(
                "Could not parse principal from string: expected a string in format "
                f"principalType:principalName but got {acl.principal}"
            )
        if not acl.host:
            raise InvalidRequest("The host of an ACL should not be empty")
        return acl


class AclFilter(NamedTuple):
    """A filter for ACLs; None and ANY match everything."""

    resource_type: ResourceType
    resource_name: str | None
    pattern_type: PatternType
    principal: str | None
    host: str | None
    operation: Operation
    permission: Permission

    @classmethod
    def parse(cls, asked: DescribeAclsRequest | DeleteAclsRequestFilter) -> AclFilter:
        """Read DescribeAcls or an element of DeleteAcls; raises InvalidRequest."""
        try:
            return cls(
                ResourceType(asked["resource_type_filter"]),
                asked["resource_name_filter"],
                PatternType(asked["pattern_type_filter"]),
                asked["principal_filter"],
                asked["host_filter"],
                Operation(asked["operation"]),
                Permission(asked["permission_type"]),
            )
        except ValueError as error:
            raise InvalidRequest(f"Invalid filter: {error}") from None

    def fits(self, acl: Acl) -> bool:
        """Tell whether the filter matches an ACL."""
        return (
            self.resource_type in {ResourceType.ANY, acl.resource_type}
            and self._fits_name(acl)
            and self.principal in {None, acl.principal}
            and self.host in {None, acl.host}
            and self.operation in {Operation.ANY, acl.operation}
            and self.permission in {Permission.ANY, acl.permission}
        )

    def _fits_name(self, acl: Acl) -> bool:
        if self.pattern_type in {PatternType.LITERAL, PatternType.PREFIXED}:
            return acl.pattern_type == self.pattern_type and self.resource_name in {
                None,
                acl.resource_name,
            }
        if self.resource_name is None:
            return True
        if self.pattern_type is PatternType.ANY:
            return acl.resource_name == self.resource_name
        if acl.pattern_type is PatternType.PREFIXED:
            return self.resource_name.startswith(acl.resource_name)
        return acl.resource_name in {self.resource_name, WILDCARD}
