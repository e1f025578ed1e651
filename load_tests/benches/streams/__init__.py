"""What the measurement of topologies sends and reads."""
