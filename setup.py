"""Builds the compiled part of ottla, where that is possible; without it everything works, slower.

All else about the package stands in pyproject.toml. The compiler is the one that Python's own configuration or `CC`
names or, where there is none, that of the package `ziglang` if it is installed. Python's headers are needed, too.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import sysconfig
from importlib.util import find_spec

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

#: Module to the source it is compiled from, which also runs as it is. The C types stand beside it: `<module>.pxd`.
MODULES = {"ottla.records._walk_native": "src/ottla/records/_walk.py"}
DIRECTIVES = {
    "language_level": "3",
    # Python's annotations are for the type checker; `int` there is no C type.
    "annotation_typing": False,
    "boundscheck": True,
    "wraparound": False,
}


class BuildExt(build_ext):
    """Takes a compiler that comes as a package where the system has none."""

    def run(self) -> None:
        """Build, after choosing the compiler."""
        compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")
        if os.name == "posix" and not shutil.which(compiler[0]) and find_spec("ziglang"):
            zig = f"{shlex.quote(sys.executable)} -m ziglang cc"
            os.environ["CC"] = zig
            os.environ["LDSHARED"] = f"{zig} -shared" + (
                " -undefined dynamic_lookup" if sys.platform == "darwin" else ""
            )
            # What Python was built with is meant for another compiler.
            os.environ["CFLAGS"] = "-O2 -fPIC"
        super().run()


def extensions() -> list[Extension]:
    """The modules to compile; none where Cython is missing or where numbers of 32 bits do not fit into an index."""
    if sys.maxsize < 2**32:
        return []
    try:
        from Cython.Build import cythonize
    except ImportError:
        print("ottla: Cython is not installed; going without the compiled modules", file=sys.stderr)
        return []
    wanted = [Extension(module, [source], optional=True) for module, source in MODULES.items()]
    built: list[Extension] = cythonize(wanted, build_dir="build/native", compiler_directives=DIRECTIVES)
    return built


setup(ext_modules=extensions(), cmdclass={"build_ext": BuildExt})
