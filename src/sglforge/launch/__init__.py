"""A profile becomes a script that starts its server."""
