"""Build SGLang from pinned, patched sources, serve it, and prove that it decodes."""

__version__ = "0.1.0.dev0"
