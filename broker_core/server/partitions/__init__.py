"""Partitions on this broker: topics, replicas, flushing, retention and fetch sessions."""
