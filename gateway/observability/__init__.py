"""The gateway's metrics and its readiness."""
