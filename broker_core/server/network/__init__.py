"""Connections of clients and of other brokers: sockets, limits, requests, responses."""
