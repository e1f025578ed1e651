"""MQTT packets and topic filters: bytes to objects and back."""
