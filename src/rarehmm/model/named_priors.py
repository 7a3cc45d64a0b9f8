"""Ready-made sets of priors: scaled to the data, the paper's, or none."""

from typing import Any

from rarehmm.data.series import Series
from rarehmm.data.summaries import Summary
from rarehmm.engine.contracts.family import Family, domains
from rarehmm.model.learnable import check_learnable
from rarehmm.model.parameters import Priors
from rarehmm.model.priors import Dirichlet, Flat, InverseGamma, Normal


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
    return Priors(tuple(p.default(summaries) for p in family.parameters))


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
