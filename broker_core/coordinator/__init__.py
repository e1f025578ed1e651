"""Coordinators of groups, share groups and transactions: sans-IO state machines."""
