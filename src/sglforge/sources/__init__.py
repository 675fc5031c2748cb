"""Sources: archives found on package indexes, fetched, verified and unpacked safely; folders as sources."""
