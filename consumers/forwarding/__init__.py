"""Sends records of users on to servers of their own (docs/decisions/0033)."""
