"""A package with a command."""


def main() -> int:
    """Do nothing, well."""
    return 0
