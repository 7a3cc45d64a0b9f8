"""DOOR: emission families, one file each, and all that is needed to write another one.

To add a family, write a file here, or a class anywhere in your own code: ``rarehmm.engine.contracts.family`` has the
contract, and ``check_emission`` checks a family against it.  Everything that an author needs can be imported from this
package: ``Parameter``, the functions to attach with ``@compiled`` (or ``density_of``, which derives them), domains, and
default priors.

Families do not import each other; what several share is in ``rarehmm.model.conjugate``, or here in files whose names
begin with an underscore.
"""

import importlib
import inspect
import pkgutil
from typing import Any

from rarehmm.common.arrays import Array
from rarehmm.data.domains import ANGLES, COUNTS, POSITIVE, REALS, Domain, below
from rarehmm.data.summaries import Summary
from rarehmm.engine.automatic import density_of
from rarehmm.engine.contracts.family import (
    HOOKS,
    Family,
    Parameter,
    Prior,
    add_statistics,
    complete_score,
    hook,
    log_density,
    prepare,
    score,
    statistics,
    summed_score,
    with_log_scale,
    with_predictor,
)
from rarehmm.engine.dispatch import compiled, inner
from rarehmm.engine.lanes import lanewise
from rarehmm.model.scaled_priors import (
    concentration,
    distance,
    evenness,
    evenness_of_counts,
    level,
    location,
    log_location,
    log_odds,
    log_squared_scale,
    rate,
    slope_of_noise,
    squared_residual,
    squared_scale,
)

__all__ = [
    "ANGLES", "COUNTS", "HOOKS", "POSITIVE", "REALS", "Domain", "Family", "Parameter", "Prior", "Summary",
    "add_statistics", "below", "compiled", "complete_score", "concentration", "density_of", "distance", "evenness",
    "evenness_of_counts", "families", "inner", "lanewise", "level", "location", "log_density", "log_location",
    "log_odds", "log_squared_scale", "prepare", "rate", "rivals", "score", "slope_of_noise", "squared_residual",
    "squared_scale", "statistics", "summed_score", "with_log_scale", "with_predictor",
]  # fmt: skip


def families() -> dict[str, Any]:
    """Families of the library by name.

    Returns
    -------
    dict
        Classes by the names of their files, ``{"gaussian": Gaussian, ...}``.  Each can be called without arguments;
        ``Product``, which is made of other families, is therefore not among them.
    """
    found = {}
    for file in (f for f in pkgutil.iter_modules(__path__) if f.name != "product" and f.name[0] != "_"):
        module = importlib.import_module(f"{__name__}.{file.name}")
        classes = [c for c in vars(module).values() if inspect.isclass(c) and c.__module__ == module.__name__]
        found[file.name] = next(c for c in classes if hasattr(c, "parameters"))
    return found


def rivals(family: Any, phi: Array) -> list[tuple[Any, Array]]:
    """Families with heavier tails than a given one.

    Parameters
    ----------
    family
        A family; its ``heavier`` names the rivals.
    phi
        Its parameters, (K, P).

    Returns
    -------
    list
        Pairs of a family and parameters of it that resemble ``phi``; empty if the family names no rivals.
    """
    found = []
    for rival, start in hook(family, "heavier")(phi):
        if type(rival) is tuple:  # a name and settings: all families are subclasses
            name, settings = rival
            rival = families()[name](**settings)
        found.append((rival, start))
    return found
