"""A part of Confluent's REST proxy, version 2."""
