"""Several workers on one machine act as one MQTT server."""
