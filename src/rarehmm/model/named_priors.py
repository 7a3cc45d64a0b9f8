"""Ready-made sets of priors: scaled to the data, the paper's, or none."""

import math
from typing import Any

import numpy as np

from rarehmm.data.series import Series
from rarehmm.data.summaries import Summary
from rarehmm.engine.contracts.family import Family, Prior, domains, hook
from rarehmm.model.learnable import check_learnable
from rarehmm.model.moves import moves
from rarehmm.model.parameters import EffectPriors, Priors
from rarehmm.model.priors import Dirichlet, Flat, InverseGamma, Normal

LOG_WIDTH = 2.5  # standard deviation of an effect on the logarithm of a rate: two of them are a factor of 150


def default_priors(family: Family, n_states: int, series: Series) -> Priors:
    """Weakly informative priors on the scale of the data.

    Parameters
    ----------
    family
        Emission family, such as ``Gaussian()``.
    n_states
        Number of hidden states, K.
    series
        The data that set the scale.

    Returns
    -------
    Priors
        One prior for each parameter of the family, and a uniform prior for the rows of the transition matrix.

    Raises
    ------
    ValueError
        If the series does not suit the family, has fewer observations than states, or is constant.

    Examples
    --------
    >>> from rarehmm import Poisson, Series, default_priors
    >>> default_priors(Poisson(), 2, Series([0, 1, 0, 12, 9])).transition
    Dirichlet(concentration=1.0)
    """
    check_learnable(family, n_states, series)
    summaries = scaled_summaries(family, series)
    emission = tuple(p.default(summaries) for p in family.parameters)
    return Priors(emission, effects=effect_priors(family, emission))


def effect_priors(family: Family, emission: tuple[Prior, ...]) -> EffectPriors | None:
    """Priors of coefficients: as wide as that of the real parameter that they move; 2.5 on a log scale."""
    if not hook(family, "linear_predictor"):
        return None
    at = moves(family)
    widths = []
    for d in at.predicted:
        prior = emission[int(np.flatnonzero(at.column == d)[0])]
        widths.append(math.sqrt(prior.variance) if isinstance(prior, Normal) else LOG_WIDTH)
    return EffectPriors(tuple(widths))


def scaled_summaries(family: Family, series: Series) -> tuple[Summary, ...]:
    """Summaries of the columns of a series, with a default scale for columns that do not vary."""
    return tuple(summary.scaled(domain) for summary, domain in zip(series.summaries, domains(family), strict=True))


def paper_priors(family: Family) -> Priors:
    """Priors of the paper's section 4.1: N(0, 10^2) for means, IG(3, 10) for variances, Dirichlet(1, ..., 1) for rows.

    Other parameters keep their default prior, if it does not depend on the data.

    Parameters
    ----------
    family
        Emission family, such as ``Gaussian()``.

    Returns
    -------
    Priors
        One prior for each parameter of the family, and one for the rows of the transition matrix.

    Raises
    ------
    ValueError
        If a parameter is not covered by the paper and its default prior is scaled to the data.
    """
    by_name: dict[str, Any] = {"mean": Normal(0.0, 100.0), "variance": InverseGamma(3.0, 10.0)}
    by_name["scale2"] = by_name["variance"]
    made = []
    for p in family.parameters:
        prior = by_name.get(p.name, p.prior)
        if callable(prior):
            raise ValueError(f"the paper has no prior for {p.name!r}; use default_priors, or supply your own.")
        made.append(prior)
    return Priors(tuple(made))


def no_priors(family: Family) -> Priors:
    """Flat priors in the sampled coordinates, for which the posterior mode is the maximum of the likelihood.

    Parameters
    ----------
    family
        Emission family, such as ``Gaussian()``.

    Returns
    -------
    Priors
        A flat prior for each parameter of the family and for the rows of the transition matrix.
    """
    return Priors(tuple(Flat() for _ in family.parameters), Dirichlet(0.0))
