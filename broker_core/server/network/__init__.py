"""Connections of clients and of other brokers: sockets, limits, requests in, answers out."""
