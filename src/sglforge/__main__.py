"""The process ``sglforge``: ready for Ctrl-C before anything else is loaded."""

from __future__ import annotations

import gc
import sys

# Nearly nothing that a verb makes has to be found by the collector, which by default looks after every 700 objects.
_OBJECTS_BEFORE_COLLECTION = 50_000


def main() -> None:
    """Run the command line and exit."""
    gc.set_threshold(_OBJECTS_BEFORE_COLLECTION)
    try:
        from sglforge import cli

        code = cli.run(sys.argv[1:])
    except KeyboardInterrupt:
        code = _interrupted()
    _ignore_signals()  # all is said and done: a signal would only change the exit code
    sys.exit(code)


def _ignore_signals() -> None:
    """Take no signal any more, not even while the interpreter ends, when it puts the default handlers back."""
    import signal  # not at the top: before it was loaded, Ctrl-C would not be caught

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


def _interrupted() -> int:
    """Say that the run was interrupted where `cli.run` could not; a second Ctrl-C is not wanted here."""
    _ignore_signals()
    from sglforge import cli

    return cli.interrupted(sys.argv[1:])


if __name__ == "__main__":
    main()
