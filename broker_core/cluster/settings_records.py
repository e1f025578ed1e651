"""Conversion of settings between the image and the objects that use them.

Those objects (users, quotas, authorizer) load and save one plain value each. A client's change
becomes records through a comparison of two such values.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

import msgspec

from broker_core.cluster.image import ClusterImage
from broker_core.cluster.records import (
    AccessControlEntry,
    ClientQuota,
    MetadataRecord,
    RemoveUserScramCredential,
    UserScramCredential,
)


def stored_acls(image: ClusterImage) -> list[list[Any]]:
    """Return the ACLs in the form that an authorizer loads."""
    return sorted(
        [
            each.resource_type,
            each.resource_name,
            each.pattern_type,
            each.principal,
            each.host,
            each.operation,
            each.permission,
        ]
        for each in image.acls
    )


def acl_records(image: ClusterImage, stored: list[list[Any]]) -> Iterator[MetadataRecord]:
    """Yield the records that change the image's ACLs to `stored`."""
    before = set(image.acls)
    after = {AccessControlEntry(*each) for each in stored}
    for gone in sorted(before - after, key=repr):
        yield msgspec.structs.replace(gone, removed=True)
    yield from sorted(after - before, key=repr)


def stored_scram_users(image: ClusterImage) -> dict[str, dict[str, dict[str, Any]]]:
    """Return the credentials by user and mechanism."""
    users: dict[str, dict[str, dict[str, Any]]] = {}
    for each in image.scram_users.values():
        users.setdefault(each.user, {})[each.mechanism] = {
            "salt": base64.b64encode(each.salt).decode(),
            "stored_key": base64.b64encode(each.stored_key).decode(),
            "server_key": base64.b64encode(each.server_key).decode(),
            "iterations": each.iterations,
        }
    return users


def scram_records(
    image: ClusterImage, stored: dict[str, dict[str, dict[str, Any]]]
) -> Iterator[MetadataRecord]:
    """Yield the records that change the image's credentials to `stored`."""
    before = stored_scram_users(image)
    for user, mechanism in sorted(image.scram_users):
        if mechanism not in stored.get(user, {}):
            yield RemoveUserScramCredential(user, mechanism)
    for user, credentials in sorted(stored.items()):
        for mechanism, each in credentials.items():
            if before.get(user, {}).get(mechanism) != each:
                yield UserScramCredential(
                    user,
                    mechanism,
                    base64.b64decode(each["salt"]),
                    base64.b64decode(each["stored_key"]),
                    base64.b64decode(each["server_key"]),
                    each["iterations"],
                )


def stored_quotas(image: ClusterImage) -> list[Any]:
    """Return the quotas by entity."""
    return [[list(map(list, entity)), values] for entity, values in image.quotas.items()]


def quota_records(image: ClusterImage, stored: list[Any]) -> Iterator[MetadataRecord]:
    """Yield the records that change the image's quotas to `stored`."""
    after = {
        tuple((kind, name) for kind, name in entity): dict(values) for entity, values in stored
    }
    for entity in sorted({*image.quotas, *after}, key=repr):
        old, new = image.quotas.get(entity, {}), after.get(entity, {})
        for key in sorted({*old, *new}):
            if old.get(key) != new.get(key):
                yield ClientQuota(entity, key, new.get(key))
