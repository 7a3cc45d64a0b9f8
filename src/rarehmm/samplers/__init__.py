"""DOOR: integrators, one per file; ``rarehmm.engine.contracts.sampler`` says what a sampler must bring."""

import importlib
import inspect
import pkgutil
from typing import Any

from rarehmm.engine.contracts.sampler import step

NAMES = tuple(file.name for file in pkgutil.iter_modules(__path__) if file.name[0] != "_")


def sampler_class(name: str) -> Any:
    """The sampler in the file of this name: ``sampler_class("baoab")`` is ``Baoab``."""
    module = importlib.import_module(f"{__name__}.{name}")
    classes = [c for c in vars(module).values() if inspect.isclass(c) and c.__module__ == module.__name__]
    return next(c for c in classes if c in step.registry)
