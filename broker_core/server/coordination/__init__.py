"""Coordinators on the log: groups and transactions, and the topics that hold their records."""
