"""Builds: one step from a source to a checked wheel in the store."""
