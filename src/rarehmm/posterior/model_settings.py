"""Settings of a model as plain data for JSON, and back; nothing that is read is executed.

Plain models have format 1, which rarehmm 0.1 reads too; those with inputs, lags, phases or tied parameters format 2.
"""

import math
from typing import Any

import numpy as np

from rarehmm.data.inputs import Inputs
from rarehmm.emissions import families
from rarehmm.emissions._sized import Sized
from rarehmm.emissions.product import Product
from rarehmm.engine.contracts.family import has
from rarehmm.model import autoregression as all_autoregressions
from rarehmm.model import priors as all_priors
from rarehmm.model.coordinates import AdditiveLogRatio, ExpandedMean
from rarehmm.model.model import Model
from rarehmm.model.parameters import EffectPriors, Priors
from rarehmm.transitions.homogeneous import Homogeneous
from rarehmm.transitions.phases import Phases
from rarehmm.transitions.regression import Regression

FORMAT = 2  # latest
INPUTS = "inputs", "switching", "scale"


class UnknownTransitionsError(ValueError):
    """Saved transitions are not rarehmm's."""


def check_format(version: int, what: str) -> None:
    """Raise if this is the format of a later version of rarehmm."""
    if version > FORMAT:
        raise ValueError(
            f"{what} has format {version}; this version of rarehmm reads formats up to {FORMAT}. Update rarehmm."
        )


def model_settings(model: Model) -> dict[str, Any]:
    """Settings of a model as plain data, which ``json.dumps`` takes.

    Parameters
    ----------
    model : Model

    Returns
    -------
    dict
        With the ``format`` that is needed to read it.

    Examples
    --------
    >>> import json
    >>> from rarehmm import Gaussian, Model, no_priors
    >>> model = Model(Gaussian(), 2, no_priors(Gaussian()), tied=("variance",))
    >>> model_from_settings(json.loads(json.dumps(model_settings(model)))).tied
    ('variance',)
    """
    fixed = model.fixed or {}
    out = {
        "format": 1,
        "n_states": model.n_states,
        "family": describe(model.family),
        "priors": [describe(p) for p in model.priors.emission],
        "concentration": model.priors.transition.concentration,
        "start": None if model.start is None else list(model.start),
        "fixed": {name: to_list(np.asarray(values, dtype=float)) for name, values in fixed.items()},
    }
    if model.is_plain:
        return out
    effects, ar, reference = model.priors.effects, model.autoregression, getattr(model.coordinates, "reference", None)
    given = {name: getattr(model, name) for name in INPUTS}
    return out | {
        "format": FORMAT,
        **{name: None if one is None else one.to_dict() for name, one in given.items()},
        "autoregression": None if ar is None else describe(ar._replace(order=int(ar.order))),
        "transitions": describe_transitions(model.transitions),
        "tied": list(model.tied),
        "coordinates": [type(model.coordinates).__name__, reference],
        "logs": model.logs,
        "effect_priors": None if effects is None else [list(effects.location), *map(float, effects[1:])],
    }


def model_from_settings(
    given: dict[str, Any], family: Any = None, transitions: Any = None, *, most: float = math.inf
) -> Model:
    """Model from what ``model_settings`` returned.

    Parameters
    ----------
    given : dict
        The settings.
    family, transitions : optional
        The emission family, and how states follow each other, if these are not rarehmm's.
    most : float
        Families with more parameters than this are refused.

    Returns
    -------
    Model

    Raises
    ------
    ValueError
        If the settings are from a later version of rarehmm, or something in them is unknown.
    """
    check_format(int(given["format"]), "this model")
    if family is None:
        family = restore(given["family"], {**families(), "product": Product}, most=most)
    effects, more = None, dict[str, Any]()
    if given["format"] > 1:
        more = {name: None if given[name] is None else Inputs.from_dict(given[name]) for name in INPUTS}
        if given["autoregression"] is not None:
            more["autoregression"] = restore(given["autoregression"], vars(all_autoregressions))
        more["transitions"] = restore_transitions(given["transitions"]) if transitions is None else transitions
        more["tied"], more["logs"] = tuple(given["tied"]), given["logs"] is True
        name, reference = given["coordinates"]
        more["coordinates"] = AdditiveLogRatio(None if reference is None else tuple(reference))
        if name == "ExpandedMean":
            more["coordinates"] = ExpandedMean()
        if given["effect_priors"] is not None:
            location, *others = given["effect_priors"]
            effects = EffectPriors(tuple(map(float, location)), *map(float, others))
    emission = tuple(restore(p, vars(all_priors)) for p in given["priors"])
    priors = Priors(emission, all_priors.Dirichlet(given["concentration"]), effects)
    start = None if given["start"] is None else np.array(given["start"])
    return Model(family, given["n_states"], priors, start, fixed=given.get("fixed") or None, **more)


def describe_transitions(transitions: Any) -> list[Any]:
    """Describe transitions for JSON: the name of their class, and numbers of phases or inputs."""
    name = type(transitions).__name__
    if isinstance(transitions, Phases):
        return [name, [int(r) for r in transitions.lengths]]
    return [name, transitions.inputs.to_dict()] if isinstance(transitions, Regression) else [name]


def restore_transitions(description: list[Any]) -> Any:
    """Create transitions from their description, if they are rarehmm's."""
    name, *settings = description
    if name == "Homogeneous":
        return Homogeneous()
    if name == "Phases":
        return Phases(tuple(settings[0]))
    if name == "Regression":
        return Regression(Inputs.from_dict(settings[0]))
    raise UnknownTransitionsError(f"{name} is not among Homogeneous, Phases, Regression; pass transitions=")


def to_list(values: Any) -> Any:
    """Convert an array to nested lists for JSON, or a number, with None for NaN."""
    if np.ndim(values) == 0:
        return None if np.isnan(values) else float(values)
    return [to_list(v) for v in values]


def describe(value: Any) -> list[Any]:
    """Describe a family or a prior for JSON: the name of its class and its settings; a part as [label, part]."""
    if has(value, "settings"):
        name, settings = value.settings
        return [name, *([s[0], describe(s[1])] if isinstance(s, tuple) else s for s in settings)]
    return [type(value).__name__, *(float(v) if isinstance(v, float | np.floating) else v for v in value)]


def restore(description: list[Any], known: dict[str, Any], most: float = math.inf) -> Any:
    """Create a family or prior from its description, using ``known`` classes only.

    Families with a size have at least as many parameters; those with more than ``most`` are refused.
    """
    name, *settings = description
    settings = [(s[0], restore(s[1], known, most)) if isinstance(s, list) else s for s in settings]
    classes = {c.__name__: c for c in known.values() if isinstance(c, type) and issubclass(c, tuple)}
    if name not in classes:
        raise ValueError(f"{name} is not among {', '.join(sorted(classes))}; pass emission=")
    if issubclass(classes[name], Sized) and any(isinstance(s, int) and s > most + 1 for s in settings):
        raise ValueError(f"{name} of {settings} has more parameters than the file")
    return classes[name](*settings)
