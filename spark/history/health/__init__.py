"""Tells the supervisor, probes and Prometheus whether a history job is well."""
