"""Connections to brokers: TLS (KIP-651), SASL (KIP-152, KIP-368), requests and their answers."""
