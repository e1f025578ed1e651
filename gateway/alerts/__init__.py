"""Zones of users, and how users are told of what happens there."""
