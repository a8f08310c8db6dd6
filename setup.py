"""Only what pyproject.toml can't say: what is compiled, and that a machine without a C compiler does without.

A module that begins with `# cython:` is compiled; it runs as it stands, too.
"""

from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

compiled = [path for path in sorted(Path("src").rglob("*.py")) if path.read_text("utf-8").startswith("# cython:")]
extensions = cythonize(
    [Extension(".".join(path.with_suffix("").parts[1:]), [str(path)], extra_compile_args=["-O3"]) for path in compiled],
    language_level=3,
    build_dir="build/cython",
)
for extension in extensions:
    extension.optional = True  # cythonize() drops the flag when it is given to Extension

setup(ext_modules=extensions)
