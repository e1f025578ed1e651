"""Errors of a schema registry: Confluent's codes, of which the first digits are the HTTP status.

https://docs.confluent.io/platform/current/schema-registry/develop/api.html
"""

from __future__ import annotations

from typing import Final

#: Seconds after which a request may be tried again that would have to wait.
RETRY_AFTER_S: Final = 2


class RegistryError(Exception):
    """A refused request."""

    def __init__(self, code: int, message: str, *, retry_after_s: int | None = None) -> None:
        """`code` is the HTTP status, or five digits of which it is the first three.

        `retry_after_s`: the same request may succeed after so many seconds.
        """
        super().__init__(message)
        self.code = code
        self.retry_after_s = retry_after_s

    @property
    def status(self) -> int:
        """The HTTP status."""
        return self.code if self.code < 1000 else self.code // 100


def subject_not_found(subject: str) -> RegistryError:
    """Return the error for a subject without versions."""
    return RegistryError(40401, f"Subject '{subject}' not found.")


def version_not_found(version: int | str) -> RegistryError:
    """Return the error for a version that a subject does not have."""
    return RegistryError(40402, f"Version {version} not found.")


def schema_not_found(schema_id: int | str | None = None) -> RegistryError:
    """Return the error for an id, or a text, without a schema."""
    return RegistryError(
        40403, "Schema not found" if schema_id is None else f"Schema {schema_id} not found"
    )


def subject_is_soft_deleted(subject: str) -> RegistryError:
    """Return the error for the deletion of a subject that is deleted but for its records."""
    return RegistryError(
        40404,
        f"Subject '{subject}' was soft deleted. Set permanent=true to delete permanently",
    )


def subject_is_not_soft_deleted(subject: str) -> RegistryError:
    """Return the error for a permanent deletion without an ordinary one before."""
    return RegistryError(
        40405, f"Subject '{subject}' was not deleted first before being permanently deleted"
    )


def version_is_soft_deleted(subject: str, version: int) -> RegistryError:
    """Return the error for the deletion of a version that is deleted but for its record."""
    return RegistryError(
        40406,
        f"Subject '{subject}' Version {version} was soft deleted. Set permanent=true to delete "
        "permanently",
    )


def version_is_not_soft_deleted(subject: str, version: int) -> RegistryError:
    """Return the error for a permanent deletion without an ordinary one before."""
    return RegistryError(
        40407,
        f"Subject '{subject}' Version {version} was not deleted first before being permanently "
        "deleted",
    )


def no_compatibility_of(subject: str) -> RegistryError:
    """Return the error for a subject that has no compatibility level of its own."""
    return RegistryError(
        40408, f"Subject '{subject}' does not have subject-level compatibility configured"
    )


def no_mode_of(subject: str) -> RegistryError:
    """Return the error for a subject that has no mode of its own."""
    return RegistryError(40409, f"Subject '{subject}' does not have subject-level mode configured")


def incompatible(message: str) -> RegistryError:
    """Return the error for a schema that is incompatible with those before it."""
    return RegistryError(409, message)


def invalid_schema(reason: str) -> RegistryError:
    """Return the error for a text that is no schema."""
    return RegistryError(42201, f"Invalid schema: {reason}")


def invalid_version(version: str) -> RegistryError:
    """Return the error for a version that is no number."""
    return RegistryError(
        42202,
        f"The specified version '{version}' is not a valid version id. Allowed values are between "
        '[1, 2^31-1] and the string "latest"',
    )


def invalid_compatibility() -> RegistryError:
    """Return the error for a word that is no compatibility level."""
    return RegistryError(
        42203,
        "Invalid compatibility level. Valid values are none, backward, forward, full, "
        "backward_transitive, forward_transitive, and full_transitive",
    )


def invalid_mode() -> RegistryError:
    """Return the error for a word that is no mode."""
    return RegistryError(
        42204, "Invalid mode. Valid values are READWRITE, READONLY, READONLY_OVERRIDE, and IMPORT"
    )


def not_permitted(reason: str) -> RegistryError:
    """Return the error for what the mode does not permit."""
    return RegistryError(42205, reason)


def is_referred_to(subject: str, version: int) -> RegistryError:
    """Return the error for the deletion of a schema that others refer to."""
    return RegistryError(
        42206,
        "One or more references exist to the schema "
        f"{{magic=1,keytype=SCHEMA,subject={subject},version={version}}}.",
    )


def too_many_comparisons(*, of_one: bool) -> RegistryError:
    """Return the error for a request that would have to wait behind too many others.

    `of_one`: these are of whoever asks, else of all.
    """
    if of_one:
        return RegistryError(
            429,
            "too many schemas of yours are being compared: try again when some are done",
            retry_after_s=RETRY_AFTER_S,
        )
    return RegistryError(
        503, "too many schemas are being compared: try again", retry_after_s=RETRY_AFTER_S
    )
