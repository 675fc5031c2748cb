"""Start a server and prove with real requests that it decodes well, or say which property failed."""
