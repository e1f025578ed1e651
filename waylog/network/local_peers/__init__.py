"""Finds the local account to which the peer of a connection belongs."""
