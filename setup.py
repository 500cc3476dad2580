"""Builds the compiled twins of `ottla.records._walk`, `_keys` and `_building`, where Cython and a C compiler are there.

The rest of the project's metadata stands in pyproject.toml. The modules also run as the plain Python they are written
in; the built ones have other names, so that they do not hide their sources. A build that fails is told and passed over.
"""

from __future__ import annotations

import sys

from setuptools import Extension, setup

#: Source module and built module, below `ottla.records`.
COMPILED = {"_walk": "_walk_native", "_keys": "_keys_native", "_building": "_building_native"}
#: Indexes are never negative here, and everything that is read is checked to lie within its buffer.
DIRECTIVES = {
    "language_level": 3,
    "annotation_typing": False,
    "boundscheck": True,
    "wraparound": False,
    "cdivision": True,
}


def extensions() -> list[Extension]:
    """What is to be built; nothing without Cython, or where a number of 32 bits does not fit into an index."""
    if sys.maxsize < 2**32:
        return []
    try:
        from Cython.Build import cythonize
    except ImportError:
        return []
    wanted = [
        Extension(f"ottla.records.{built}", [f"src/ottla/records/{source}.py"]) for source, built in COMPILED.items()
    ]
    made: list[Extension] = cythonize(wanted, compiler_directives=DIRECTIVES, build_dir="build/native", quiet=True)
    for extension in made:
        extension.optional = True  # which cythonize does not take over
    return made


setup(ext_modules=extensions())
