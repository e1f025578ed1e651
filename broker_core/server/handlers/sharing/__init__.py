"""Handlers of the APIs for share groups."""
