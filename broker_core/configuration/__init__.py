"""The settings of a broker: property file, property names, listeners."""
