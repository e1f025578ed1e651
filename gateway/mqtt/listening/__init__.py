"""Sockets, TLS, WebSocket, and the way from CONNECT to a session."""
