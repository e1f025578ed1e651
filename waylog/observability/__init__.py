"""Metrics, log messages and interceptors."""
