"""Only what pyproject.toml can't say: what is compiled, and that a machine without a C compiler does without.

A module that begins with `# cython:` is compiled; it runs as it stands, too. One with a file of declarations beside it
(`.pxd`) is ordinary Python, whose classes get C's layout by that.
"""

import os
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext


class AllOrNone(build_ext):
    """What is compiled relies on the C layout of other modules: beside one that failed it could not be imported."""

    has_failed = False

    def build_extensions(self) -> None:
        super().build_extensions()
        if self.has_failed:
            for one in self.extensions:
                Path(self.get_ext_fullpath(one.name)).unlink(missing_ok=True)

    def build_extension(self, ext: Extension) -> None:
        try:
            super().build_extension(ext)
        except Exception:
            self.has_failed = True
            raise


def extension(path: Path) -> Extension:
    optimization = "-O2" if path.with_suffix(".pxd").exists() else "-O3"
    return Extension(
        ".".join(path.with_suffix("").parts[1:]),
        [str(path)],
        define_macros=[("CYTHON_USE_TYPE_SPECS", "1")],  # classes that can be patched, as any other class
        extra_compile_args=[optimization, "-g0", "-w"],
    )


def main() -> None:
    compiled = [path for path in sorted(Path("src").rglob("*.py")) if path.read_text("utf-8").startswith("# cython:")]
    cores = os.cpu_count() or 1
    extensions = cythonize(
        [extension(path) for path in compiled], language_level=3, build_dir="build/cython", nthreads=cores
    )
    for one in extensions:
        one.optional = True  # cythonize() drops the flag when it is given to Extension
    setup(ext_modules=extensions, cmdclass={"build_ext": AllOrNone}, options={"build_ext": {"parallel": cores}})


if __name__ == "__main__":  # a worker of cythonize() may import this file, where processes are not forked
    main()
