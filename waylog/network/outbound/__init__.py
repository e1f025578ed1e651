"""Connections to servers of others: MQTT; where those that users choose may go, by name."""
