"""Clients of Kafka: producers, readers, topics, requests and errors."""
