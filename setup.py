"""Only what pyproject.toml can't say: the compiled kernel, which a machine without a C compiler does without."""

from Cython.Build import cythonize
from setuptools import Extension, setup

extensions = cythonize(
    [
        Extension(f"headrace.protocol.{name}", [f"src/headrace/protocol/{name}.py"], extra_compile_args=["-O3"])
        for name in ("kernel", "kernel_writer")
    ],
    language_level=3,
    build_dir="build/cython",
)
for extension in extensions:
    extension.optional = True  # cythonize() drops the flag when it is given to Extension

setup(ext_modules=extensions)
