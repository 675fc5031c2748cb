"""Modules that a package compiles by itself when it runs, compiled ahead of time into its wheel, each kept by its key.

`make` is the flow: the driver writes the statements (`driving`), what was compiled before is found by its key
(`statements`, `contents`, `keep`), the rest is compiled by one ninja (`compile`), and each module is kept as soon as it
is there.
"""
