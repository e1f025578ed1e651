"""The directions in which a group with members may change its protocol."""

from __future__ import annotations

from enum import Enum


class MigrationPolicy(Enum):
    """Values of `group.consumer.migration.policy`."""

    BIDIRECTIONAL = "bidirectional"
    UPGRADE = "upgrade"
    DOWNGRADE = "downgrade"
    DISABLED = "disabled"

    @property
    def allows_upgrade(self) -> bool:
        """Tell whether a classic group is converted when a member with the new protocol joins."""
        return self in {MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.UPGRADE}

    @property
    def allows_downgrade(self) -> bool:
        """True if a group becomes classic when its last member of the consumer protocol leaves."""
        return self in {MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.DOWNGRADE}
