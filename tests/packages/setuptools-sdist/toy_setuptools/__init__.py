"""A module that comes as a source archive."""
