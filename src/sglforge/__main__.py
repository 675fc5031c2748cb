"""``python -m sglforge``."""

from sglforge.cli import main

if __name__ == "__main__":
    main()
