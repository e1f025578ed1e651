"""Finds out to which account of this machine the peer of a connection belongs."""
