"""TLS: what all our listeners have in common."""
