"""Metrics, log lines and interceptors."""
