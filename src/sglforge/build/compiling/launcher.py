"""Run one compiler: ``python -I -S launcher.py SETTINGS outer|inner COMPILER ARGUMENTS...``.

``outer`` is what a build calls; it hands over to ccache where there is one. ``inner`` is what ccache calls when it
has nothing: it waits for memory, runs the compiler and measures it. Without ccache, outer does both.
"""

import os
import sys

# last, so that nothing beside sglforge can pass for a module of the standard library
sys.path.append(os.path.abspath(os.path.join(os.path.dirname(__file__), *[os.pardir] * 3)))

from sglforge.build.compiling import launching

try:
    launching.end_like(launching.main(sys.argv[1:]))
except KeyboardInterrupt:
    launching.end_like(launching.INTERRUPTED)
