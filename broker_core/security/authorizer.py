"""Authorization by ACLs, with the semantics of Kafka's StandardAuthorizer.

A super user may do everything. Otherwise the ACLs of the resource decide: a denial wins, else an
allowing ACL permits the operation. A resource without any ACL is open to everybody or nobody.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from broker_core.errors import SecurityDisabled
from broker_core.security.acl import (
    OPERATIONS_OF,
    WILDCARD,
    Acl,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from broker_core.security.principal import Principal

_EVERY_PRINCIPAL: Final = "User:*"
#: A permission for one of these includes DESCRIBE.
_IMPLY_DESCRIBE: Final = frozenset(
    {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}
)
_DECISIONS_MAX: Final = 10_000
#: Characters of a name whose decision is kept: a client may ask about names of any length.
_NAME_MAX: Final = 500
#: Limit of the memory that a client with the right to alter the cluster can occupy.
ACLS_MAX: Final = 100_000

_Key = tuple[ResourceType, str]


class Authorizer:
    """The ACLs, and decisions by them."""

    def __init__(
        self, *, super_users: Iterable[Principal] = (), allow_if_no_acl: bool = False
    ) -> None:
        self._super_users = frozenset(super_users)
        self._allow_if_no_acl = allow_if_no_acl
        self._acls: set[Acl] = set()
        self._literal: dict[_Key, list[Acl]] = {}
        self._prefixed: dict[_Key, list[Acl]] = {}
        # Lengths of a type's prefixes since the last change, ascending: a name is cut there only.
        self._lengths: dict[ResourceType, list[int]] = {}
        # Decisions since the last change: most requests repeat an earlier one.
        self._decisions: dict[tuple[Principal, str, Operation, ResourceType, str], bool] = {}
        #: A number that is different after every change of the ACLs.
        self.version = 0

    def __len__(self) -> int:
        return len(self._acls)

    # -------------------------------------------------------------------------------------- rules

    def find(self, wanted: AclFilter) -> list[Acl]:
        """Return the ACLs that a filter matches, sorted."""
        return sorted(acl for acl in self._acls if wanted.fits(acl))

    def add(self, acls: Iterable[Acl]) -> None:
        """Add ACLs; ignore those that exist already."""
        for acl in acls:
            if acl not in self._acls:
                self._acls.add(acl)
                self._index(acl).append(acl)
        self._changed()

    def remove(self, acls: Iterable[Acl]) -> None:
        """Delete ACLs."""
        for acl in acls:
            if acl in self._acls:
                self._acls.remove(acl)
                self._index(acl).remove(acl)
        self._changed()

    def _changed(self) -> None:
        self._decisions.clear()
        self._lengths.clear()
        self.version += 1

    def _index(self, acl: Acl) -> list[Acl]:
        index = self._literal if acl.pattern_type is PatternType.LITERAL else self._prefixed
        return index.setdefault((acl.resource_type, acl.resource_name), [])

    def to_stored(self) -> list[list[Any]]:
        """Return the ACLs as JSON values."""
        return [[*map(_plain, acl)] for acl in sorted(self._acls)]

    def load(self, stored: list[list[Any]]) -> None:
        """Replace the ACLs by what `to_stored` returned."""
        self._acls.clear()
        self._literal.clear()
        self._prefixed.clear()
        self.add(
            Acl(
                ResourceType(each[0]),
                each[1],
                PatternType(each[2]),
                each[3],
                each[4],
                Operation(each[5]),
                Permission(each[6]),
            )
            for each in stored
        )

    # ---------------------------------------------------------------------------------- decisions

    def allows(
        self,
        principal: Principal,
        host: str,
        operation: Operation,
        resource_type: ResourceType,
        name: str,
    ) -> bool:
        """Tell whether a principal at a host may perform an operation on a resource."""
        key = (principal, host, operation, resource_type, name)
        decision = self._decisions.get(key)
        if decision is None:
            decision = self._decide(*key)
            if len(name) <= _NAME_MAX:
                if len(self._decisions) >= _DECISIONS_MAX:
                    self._decisions.clear()
                self._decisions[key] = decision
        return decision

    def _decide(
        self,
        principal: Principal,
        host: str,
        operation: Operation,
        resource_type: ResourceType,
        name: str,
    ) -> bool:
        if principal in self._super_users:
            return True
        found = allowed = False
        for acl in self._rules_for(resource_type, name):
            found = True
            if not _concerns(acl, principal, host):
                continue
            if acl.permission is Permission.DENY:
                if acl.operation in {Operation.ALL, operation}:
                    return False
            elif _covers(acl.operation, operation):
                allowed = True
        return allowed or (not found and self._allow_if_no_acl)

    def _rules_for(self, resource_type: ResourceType, name: str) -> Iterator[Acl]:
        yield from self._literal.get((resource_type, name), ())
        if name != WILDCARD:
            yield from self._literal.get((resource_type, WILDCARD), ())
        for length in self._prefix_lengths(resource_type):
            if length > len(name):
                break
            yield from self._prefixed.get((resource_type, name[:length]), ())

    def _prefix_lengths(self, resource_type: ResourceType) -> list[int]:
        found = self._lengths.get(resource_type)
        if found is None:
            lengths = {
                len(prefix)
                for (of_type, prefix), acls in self._prefixed.items()
                if of_type is resource_type and prefix and acls
            }
            found = self._lengths[resource_type] = sorted(lengths)
        return found

    def allows_any(
        self, principal: Principal, host: str, operation: Operation, resource_type: ResourceType
    ) -> bool:
        """Tell whether a principal may perform an operation on some resource of a type."""
        if principal in self._super_users:
            return True
        mine = [
            acl
            for acl in self._acls
            if acl.resource_type is resource_type and _concerns(acl, principal, host)
        ]
        denied = [
            acl
            for acl in mine
            if acl.permission is Permission.DENY and acl.operation in {Operation.ALL, operation}
        ]
        if any(
            acl.resource_name == WILDCARD and acl.pattern_type is PatternType.LITERAL
            for acl in denied
        ):
            return False
        if self._allow_if_no_acl:
            return True
        return any(
            acl.permission is Permission.ALLOW
            and _covers(acl.operation, operation)
            and not any(_dominates(each, acl) for each in denied)
            for acl in mine
        )

    def authorized_operations(
        self, principal: Principal, host: str, resource_type: ResourceType, name: str
    ) -> int:
        """Return a bit field of the allowed operations, as Metadata and other responses have it."""
        return sum(
            1 << operation
            for operation in OPERATIONS_OF[resource_type]
            if self.allows(principal, host, operation, resource_type, name)
        )


def require(authorizer: Authorizer | None) -> Authorizer:
    """Return the authorizer; raises SecurityDisabled if there is none."""
    if authorizer is None:
        raise SecurityDisabled("No Authorizer is configured.")
    return authorizer


def _plain(value: object) -> object:
    return int(value) if isinstance(value, int) else value


def _concerns(acl: Acl, principal: Principal, host: str) -> bool:
    return acl.principal in {_EVERY_PRINCIPAL, str(principal)} and acl.host in {WILDCARD, host}


def _covers(given: Operation, wanted: Operation) -> bool:
    if given in {Operation.ALL, wanted}:
        return True
    if wanted is Operation.DESCRIBE:
        return given in _IMPLY_DESCRIBE
    return wanted is Operation.DESCRIBE_CONFIGS and given is Operation.ALTER_CONFIGS


def _dominates(deny: Acl, allow: Acl) -> bool:
    """Tell whether a denying ACL overrides all of an allowing one."""
    if deny.pattern_type is PatternType.PREFIXED:
        return allow.resource_name.startswith(deny.resource_name)
    return allow.pattern_type is deny.pattern_type and allow.resource_name == deny.resource_name
