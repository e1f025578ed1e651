"""Notifications of arrivals, addresses and favourite places."""
