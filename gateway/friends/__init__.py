"""The filter of friends: the one place through which everything passes that a friend is told."""
