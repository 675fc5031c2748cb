"""Compile within the machine's memory, and not again what was compiled: a launcher before every compiler.

`scope` is the side of the build. What its docstring calls light runs in a Python of its own before each compiler
(`launcher`): it imports the standard library only, and little of that.
"""
