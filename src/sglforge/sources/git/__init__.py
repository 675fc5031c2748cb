"""Git repositories as sources: mirrors on this machine, refs and versions, what a build sees of a commit."""
