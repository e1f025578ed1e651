"""Sockets, TLS, WebSocket, and the authentication of clients from CONNECT to a session."""
