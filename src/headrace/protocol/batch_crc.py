"""CRC32C, natively, on anything that has a buffer.

The package `crc32c` brings a command line and its own metadata into every import, which takes longer than all of our
protocol. What a batch needs is one function of its extension module.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.machinery import PathFinder
from importlib.util import module_from_spec

__all__ = ["crc32c"]


def _native() -> Callable[[bytes | bytearray | memoryview], int]:
    package = PathFinder.find_spec("crc32c")
    if package is not None and package.submodule_search_locations is not None:
        extension = PathFinder.find_spec("_crc32c", list(package.submodule_search_locations))
        if extension is not None and extension.loader is not None:
            module = module_from_spec(extension)
            extension.loader.exec_module(module)
            native: Callable[[bytes | bytearray | memoryview], int] = module.crc32c
            return native
    from crc32c import crc32c as packaged

    return packaged


crc32c = _native()
