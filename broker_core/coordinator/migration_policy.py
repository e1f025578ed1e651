"""Which way a group may change its protocol while members are in it."""

from __future__ import annotations

from enum import Enum


class MigrationPolicy(Enum):
    """`group.consumer.migration.policy`: which way a group with members may go."""

    BIDIRECTIONAL = "bidirectional"
    UPGRADE = "upgrade"
    DOWNGRADE = "downgrade"
    DISABLED = "disabled"

    @property
    def allows_upgrade(self) -> bool:
        """Tell whether the first member of the consumer protocol takes a classic group over."""
        return self in {MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.UPGRADE}

    @property
    def allows_downgrade(self) -> bool:
        """True if a group becomes classic when its last member of the consumer protocol goes."""
        return self in {MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.DOWNGRADE}
