"""Ready-made sets of priors: scaled to the data, the paper's, or none."""

from typing import Any

from rarehmm.data.series import Series
from rarehmm.data.summaries import Summary
from rarehmm.engine.contracts.family import Family, domains
from rarehmm.model.learnable import check_learnable
from rarehmm.model.parameters import Priors
from rarehmm.model.priors import Dirichlet, Flat, InverseGamma, Normal


def default_priors(family: Family, n_states: int, series: Series) -> Priors:
    """Priors that scale with the data."""
    check_learnable(family, n_states, series)
    summaries = scaled_summaries(family, series)
    return Priors(tuple(p.default(summaries) for p in family.parameters))


def scaled_summaries(family: Family, series: Series) -> tuple[Summary, ...]:
    """Summaries of the columns, with a scale for those that have none."""
    return tuple(summary.scaled(domain) for summary, domain in zip(series.summaries, domains(family), strict=True))


def paper_priors(family: Family) -> Priors:
    """The priors of the paper's section 4.1: N(0, 10^2) for means, IG(3, 10) for variances, Dirichlet(1, ..., 1).

    Parameters of other kinds keep a fixed default; one whose default is scaled from the data has none here.
    """
    named: dict[str, Any] = {"mean": Normal(0.0, 100.0), "variance": InverseGamma(3.0, 10.0)}
    named["scale2"] = named["variance"]
    made = []
    for p in family.parameters:
        prior = named.get(p.name, p.prior)
        if callable(prior):
            raise ValueError(f"the paper has no prior for {p.name!r}; use default_priors, or give your own.")
        made.append(prior)
    return Priors(tuple(made))


def no_priors(family: Family) -> Priors:
    """Uniform in the sampled coordinates: modes are maxima of the likelihood."""
    return Priors(tuple(Flat() for _ in family.parameters), Dirichlet(0.0))
