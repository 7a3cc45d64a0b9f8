"""DOOR: emission families, one a file; ``rarehmm.engine.contracts.family`` says what a family must bring.

A file whose name begins with an underscore holds what several families share.
"""

import importlib
import inspect
import pkgutil
from typing import Any


def families() -> dict[str, Any]:
    """The families of this folder by the name of their file: ``{"gaussian": Gaussian, ...}``; each can be made without
    arguments, so that ``Product``, which is made of families, is none of them."""
    found = {}
    for file in (f for f in pkgutil.iter_modules(__path__) if f.name != "product" and f.name[0] != "_"):
        module = importlib.import_module(f"{__name__}.{file.name}")
        classes = [c for c in vars(module).values() if inspect.isclass(c) and c.__module__ == module.__name__]
        found[file.name] = next(c for c in classes if hasattr(c, "parameters"))
    return found
