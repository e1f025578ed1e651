"""Several workers of one machine that act as one MQTT server."""
