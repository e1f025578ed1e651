"""Ways of sending fixes into the platform: HTTP, MQTT, or directly into the log."""
