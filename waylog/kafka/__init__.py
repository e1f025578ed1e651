"""Kafka clients: producers, readers, topics, requests and errors."""
