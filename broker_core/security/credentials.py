"""The SCRAM users, which AlterUserScramCredentials changes."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from broker_core.errors import (
    BrokerError,
    DuplicateResource,
    ResourceNotFound,
    UnacceptableCredential,
    UnsupportedSaslMechanism,
)
from broker_core.security.scram import (
    BY_NAME,
    BY_NUMBER,
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    ScramCredential,
    ScramMechanism,
    credential_from_salted,
)

if TYPE_CHECKING:
    from broker_core.protocol.definitions.bodies import (
        AlterUserScramCredentialsRequestDeletion,
        AlterUserScramCredentialsRequestUpsertion,
    )

#: Limits of the memory that one user can occupy.
_NAME_CHARS_MAX: Final = 1024
_SALT_BYTES_MAX: Final = 1024


def mechanism_numbered(number: int) -> ScramMechanism:
    """Return a mechanism by its number; raises UnsupportedSaslMechanism."""
    mechanism = BY_NUMBER.get(number)
    if mechanism is None:
        raise UnsupportedSaslMechanism(f"Unknown SCRAM mechanism {number}")
    return mechanism


class ScramUsers:
    """SCRAM credentials by user and mechanism."""

    def __init__(self) -> None:
        self._users: dict[str, dict[str, ScramCredential]] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._users))

    def __len__(self) -> int:
        return len(self._users)

    def find(self, mechanism: str, user: str) -> ScramCredential | None:
        """Return a user's credential, None if there is none."""
        return self._users.get(user, {}).get(mechanism)

    def of(self, user: str) -> dict[str, ScramCredential]:
        """Return all credentials of a user by mechanism; raises ResourceNotFound."""
        found = self._users.get(user)
        if found is None:
            raise ResourceNotFound(
                f"Attempt to describe a user credential that does not exist: {user}"
            )
        return found

    def put(self, user: str, mechanism: ScramMechanism, credential: ScramCredential) -> None:
        """Add or replace a credential."""
        self._users.setdefault(user, {})[mechanism.name] = credential

    def remove(self, user: str, mechanism: ScramMechanism) -> None:
        """Delete a credential."""
        of_user = self._users.get(user, {})
        of_user.pop(mechanism.name, None)
        if not of_user:
            self._users.pop(user, None)

    def alter(
        self,
        deletions: Sequence[AlterUserScramCredentialsRequestDeletion],
        upsertions: Sequence[AlterUserScramCredentialsRequestUpsertion],
    ) -> dict[str, BrokerError | None]:
        """Handle AlterUserScramCredentials; return each user's error, None for success.

        If one of a user's changes is not possible, none of them is made.
        """
        changes: dict[
            str,
            tuple[
                list[AlterUserScramCredentialsRequestDeletion],
                list[AlterUserScramCredentialsRequestUpsertion],
            ],
        ] = {}
        for deletion in deletions:
            changes.setdefault(deletion["name"], ([], []))[0].append(deletion)
        for upsertion in upsertions:
            changes.setdefault(upsertion["name"], ([], []))[1].append(upsertion)
        outcome: dict[str, BrokerError | None] = {}
        for user, mine in changes.items():
            try:
                self._alter(user, *mine)
                outcome[user] = None
            except (
                DuplicateResource,
                ResourceNotFound,
                UnacceptableCredential,
                UnsupportedSaslMechanism,
            ) as error:
                # Without the frames in which it was raised, one of which has `outcome`.
                outcome[user] = error.with_traceback(None)
        return outcome

    def _alter(
        self,
        user: str,
        deletions: Sequence[AlterUserScramCredentialsRequestDeletion],
        upsertions: Sequence[AlterUserScramCredentialsRequestUpsertion],
    ) -> None:
        if not user:
            raise UnacceptableCredential("Username must not be empty")
        if len(user) > _NAME_CHARS_MAX:
            raise UnacceptableCredential("The username is too long")
        numbers = [each["mechanism"] for each in (*deletions, *upsertions)]
        for number in numbers:
            mechanism_numbered(number)
        if len(set(numbers)) < len(numbers):
            raise DuplicateResource("A user credential cannot be altered twice in the same request")
        for each in deletions:
            if self.find(mechanism_numbered(each["mechanism"]).name, user) is None:
                raise ResourceNotFound("Attempt to delete a user credential that does not exist")
        made = [(mechanism_numbered(each["mechanism"]), _checked(each)) for each in upsertions]
        for each in deletions:
            self.remove(user, mechanism_numbered(each["mechanism"]))
        for mechanism, credential in made:
            self.put(user, mechanism, credential)

    def to_stored(self) -> dict[str, Any]:
        """Return the credentials as JSON values."""
        return {
            user: {
                name: {
                    "salt": base64.b64encode(credential.salt).decode(),
                    "stored_key": base64.b64encode(credential.stored_key).decode(),
                    "server_key": base64.b64encode(credential.server_key).decode(),
                    "iterations": credential.iterations,
                }
                for name, credential in credentials.items()
            }
            for user, credentials in self._users.items()
        }

    def load(self, stored: dict[str, Any]) -> None:
        """Replace the credentials by what `to_stored` returned."""
        self._users = {
            user: {
                name: ScramCredential(
                    base64.b64decode(each["salt"]),
                    base64.b64decode(each["stored_key"]),
                    base64.b64decode(each["server_key"]),
                    each["iterations"],
                )
                for name, each in credentials.items()
                if name in BY_NAME
            }
            for user, credentials in stored.items()
        }


def _checked(asked: AlterUserScramCredentialsRequestUpsertion) -> ScramCredential:
    mechanism = mechanism_numbered(asked["mechanism"])
    iterations = asked["iterations"]
    if iterations < ITERATIONS_MIN:
        raise UnacceptableCredential("Too few iterations")
    if iterations > ITERATIONS_MAX:
        raise UnacceptableCredential("Too many iterations")
    if not asked["salt"] or len(asked["salt"]) > _SALT_BYTES_MAX:
        raise UnacceptableCredential("The salt is empty or too long")
    if len(asked["salted_password"]) != mechanism.key_bytes:
        raise UnacceptableCredential(
            f"The salted password of {mechanism.name} has {mechanism.key_bytes} bytes"
        )
    return credential_from_salted(mechanism, asked["salted_password"], asked["salt"], iterations)
