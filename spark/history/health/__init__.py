"""Whether a history job is well, for the supervisor, for probes and for Prometheus."""
