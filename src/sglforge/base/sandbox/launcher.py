"""Run a step: ``python -I -S launcher.py REPORT-DESCRIPTOR WITHOUT,... USER FOLDER... +NAME=FOLDER... -- COMMAND...``.

The step may write below the folders and to nothing else, has no network, and leaves no process behind, as far as
the kernel allows; what it does not allow is in the report. ``WITHOUT`` names parts to leave out, for tests; ``USER``
is the number of the user that the step becomes, or empty. It sees the folders with a name at the fixed place too, and
is not started where that cannot be had.
"""

import os
import sys

# last, so that nothing beside sglforge can pass for a module of the standard library
sys.path.append(os.path.abspath(os.path.join(os.path.dirname(__file__), *[os.pardir] * 3)))

from sglforge.base.sandbox import supervise

supervise.end_like(supervise.main(sys.argv[1:]))
