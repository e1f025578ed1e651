"""Ways into the platform: HTTP, MQTT, or straight into the log."""
