"""Seeing and changing any Kafka, for console tools and the gateway's administrators. It blocks."""
