"""Forwardings: what users have sent on to servers of their own, as the log holds it."""
