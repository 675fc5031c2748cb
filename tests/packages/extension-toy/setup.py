"""An extension with debug information and assertions, of files in the order in which they are found; one is made."""

from pathlib import Path

from setuptools import Extension, setup

Path("src/made.c").write_text("".join(f"int made_{number}(void) {{ return {number}; }}\n" for number in range(3)))
flags = ["-g", "-O1", "-UNDEBUG"]
setup(
    packages=[],
    ext_modules=[
        Extension(
            "extension_toy",
            [str(path) for path in Path("src").glob("*.c")],
            include_dirs=[str(Path("src").absolute())],
            extra_compile_args=flags,
        )
    ],
)
