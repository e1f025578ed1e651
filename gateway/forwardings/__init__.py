"""Forwardings of users: what they ask for, and the log that keeps it."""
