"""Modules as they stand, also where a compiled form hides them."""

from __future__ import annotations

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import headrace


def plain_form(path: str) -> Any:
    """By its path below the package, as in `storage/offset_map.py`."""
    source = Path(headrace.__file__).parent / path
    spec = spec_from_file_location(f"plain_{source.stem}", source)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    assert not module.COMPILED
    return module
