"""The settings of a broker: property file, names of properties, listeners."""
