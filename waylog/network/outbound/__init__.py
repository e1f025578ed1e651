"""Connections to servers that users choose: look-ups of their names, and where they may go."""
