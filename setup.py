"""Builds the compiled modules of `ottla.records`: `_walk`, `_keys` and `_building`, which also run as plain Python.

The environment variable OTTLA_BUILD says whether that is done:

- `auto` (the default): compiled where Cython and a C compiler are there; else a message, and plain Python;
- `compiled`: a build that fails where it cannot be done;
- `pure`: plain Python.

A wheel has a platform's tag only if it holds compiled modules. They have other names than their sources, which they do
not hide. The rest of the project's metadata stands in pyproject.toml.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext
from setuptools.errors import BaseError, CCompilerError

SWITCH = "OTTLA_BUILD"
COMPILED_ONLY, PURE, AUTO = "compiled", "pure", "auto"
#: Source module and built module, below `ottla.records`.
COMPILED = {"_walk": "_walk_native", "_keys": "_keys_native", "_building": "_building_native", "_json": "_json_native"}
#: Indexes are never negative here, and everything that is read is checked to lie within its buffer.
DIRECTIVES = {
    "language_level": 3,
    "annotation_typing": False,
    "boundscheck": True,
    "wraparound": False,
    "cdivision": True,
}

#: With Python's own flags, often -O3 -g, compiling takes twice as long, and the result is no quicker.
QUICK_TO_COMPILE = ["-O2", "-g0"]


def chosen_build() -> str:
    """The value of OTTLA_BUILD; what is not one of the three ends the build."""
    chosen = os.environ.get(SWITCH) or AUTO
    if chosen not in (COMPILED_ONLY, PURE, AUTO):
        raise SystemExit(f"{SWITCH}={chosen}: expected {COMPILED_ONLY}, {PURE} or {AUTO}")
    return chosen


class BuildCompiled(build_ext):
    """Translates the sources to C and compiles them; what cannot be done ends the build only if it was asked for.

    One module is translated while others are compiled.
    """

    def initialize_options(self) -> None:
        """As many modules at a time as there are processors."""
        super().initialize_options()
        self.parallel = os.cpu_count()
        self._translating = threading.Lock()  # Cython is not safe to use by several threads
        self._failed = False

    def run(self) -> None:
        """Build all compiled modules or none."""
        if not self.extensions:
            return
        try:
            self.announce(f"compiling {len(self.extensions)} modules, which takes about half a minute", logging.INFO)
            super().run()
        except (BaseError, CCompilerError, OSError) as error:
            if chosen_build() == COMPILED_ONLY:
                raise SystemExit(f"{SWITCH}={COMPILED_ONLY}: {error}") from error
            self.warn(f"ottla's work on single records is not compiled, and runs slower: {error}")
            self._leave_pure()

    def _translate(self, ext: Extension) -> None:
        """Have Cython write the C source. Raises BaseError."""
        if sys.implementation.name != "cpython" or sys.maxsize < 2**32:
            raise BaseError("that needs CPython of 64 bits")
        try:
            from Cython.Build import cythonize
            from Cython.Compiler.Errors import CompileError
        except ImportError:
            raise BaseError("that needs Cython: pip install 'cython>=3.1'") from None
        try:
            # Always anew: Cython does not see that a module's types are newer, whose file is not named as its source.
            [made] = cythonize([ext], force=True, compiler_directives=DIRECTIVES, build_dir="build/native", quiet=True)
        except CompileError as error:
            raise BaseError(f"Cython failed: {error}") from error
        ext.sources = made.sources

    def build_extension(self, ext: Extension) -> None:
        """Translate and compile one module. Raises BaseError, which names what is usually missing."""
        with self._translating:
            if self._failed:  # the build ends with that module's error
                return
            self._translate(ext)
        if self.compiler.compiler_type == "unix" and "CFLAGS" not in os.environ:
            ext.extra_compile_args = QUICK_TO_COMPILE
        try:
            super().build_extension(ext)
        except (BaseError, CCompilerError, OSError) as error:
            self._failed = True
            cure = "is there a C compiler, and Python.h? (Debian: apt-get install gcc python3-dev)"
            raise BaseError(f"{ext.name} could not be compiled; {cure}") from error

    def _leave_pure(self) -> None:
        """Go on without compiled modules, with those removed that were built before the failure."""
        for output in self.get_outputs():
            Path(output).unlink(missing_ok=True)
        self.extensions = self.distribution.ext_modules = []


class TaggedWheel(bdist_wheel):
    """Knows what the wheel holds before the wheel gets its tag."""

    def run(self) -> None:
        """Compile first: that may leave a wheel of plain Python."""
        self.run_command("build_ext")
        self.root_is_pure = not self.distribution.has_ext_modules()
        super().run()


wanted = [Extension(f"ottla.records.{built}", [f"src/ottla/records/{source}.py"]) for source, built in COMPILED.items()]
setup(
    ext_modules=[] if chosen_build() == PURE else wanted,
    cmdclass={"build_ext": BuildCompiled, "bdist_wheel": TaggedWheel},
)
