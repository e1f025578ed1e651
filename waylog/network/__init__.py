"""Addresses, ports, TLS and connections of servers."""
