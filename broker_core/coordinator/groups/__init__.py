"""State machines of groups: their members, assignments and committed offsets."""
