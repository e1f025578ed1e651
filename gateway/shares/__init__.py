"""Shares: links by which people without an account see some devices for some time."""
