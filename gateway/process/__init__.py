"""The processes of the gateway: assembly of their parts, start and stop."""
