"""Kafka's protocol as clients speak it: requests, error codes, batches and codecs."""
