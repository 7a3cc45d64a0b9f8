"""Is this a model of the series?  Residuals and posterior predictive checks of a fit, as one answer.

The other question, whether the draws are those of the model's posterior, is answered by ``sampling.diagnostics``: a
posterior can be right and its model wrong.
"""

import logging
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from rarehmm.common.arrays import Array
from rarehmm.common.progress import OnProgress, silent
from rarehmm.data.pieces import pieces
from rarehmm.data.series import Series
from rarehmm.data.sources.checks import said
from rarehmm.exact.passes import smooth
from rarehmm.model.model import Model
from rarehmm.model.parameters import Parameters
from rarehmm.posterior.posterior import Posterior
from rarehmm.posterior.predictive_checks import REPLICATES, check_predictive
from rarehmm.posterior.residuals import check_residuals, has_residuals, pseudo_residuals
from rarehmm.sampling.diagnostics import Check, rows

logger = logging.getLogger(__name__)

LONG = 200_000  # values; of a series with more, evenly spaced pieces are checked
FEWEST_ROWS = 10_000  # however many columns there are
SHORTEST = 20  # observations; with fewer, chance explains any autocorrelation


class ModelCheck(NamedTuple):
    """How well a model fits a series; print it for a summary.

    Attributes
    ----------
    checks : list of Check
        Each with a name, a value, whether it ``passed``, and a ``message``.
    note : str
        What was not checked, if not everything was: parts of a long series, residuals of some families.
    not_checked : str
        Why there are no checks; empty if there are.
    residuals : ndarray or None, (n,) or (n, D)
        The pseudo-residuals that were checked, for ``plots.plot_residuals``; None in a saved fit.
    """

    checks: list[Check]
    note: str = ""
    not_checked: str = ""
    residuals: Array | None = None

    @property
    def passed(self) -> bool:
        """Whether the model was checked and all checks passed."""
        return not self.not_checked and all(c.passed for c in self.checks)

    @property
    def failures(self) -> list[str]:
        """The checks that failed, with their values and messages."""
        return [f"{c.name} {c.value:.3g} ({c.message})" for c in self.checks if not c.passed]

    def __str__(self) -> str:
        if self.not_checked:
            return f"The model was not checked: {self.not_checked}."
        failures = "; ".join(self.failures)
        message = f"The model does not fit the series: {failures}." if failures else "The model fits the series."
        return f"{message} {self.note}".rstrip()

    def describe(self) -> str:
        """Return all checks as a text table, followed by a summary in a sentence.

        Returns
        -------
        str
        """
        return "\n".join([*rows(self.checks), str(self)])


NOT_WANTED = ModelCheck([], not_checked="check_model is False")


def check_model(
    posterior: Posterior, series: Series, *, threads: int | None = None, on_progress: OnProgress = silent
) -> ModelCheck:
    """Check whether the model of a posterior fits a series; never raises an error, but says why there is no answer.

    Random numbers are the same in every call, so that the same series gets the same answer.
    """
    try:
        return checked(np.random.default_rng(0), posterior, series, threads, on_progress)
    except Exception as error:  # any: a question about the model must not cost the posterior
        logger.info("the model was not checked", exc_info=True)
        return ModelCheck([], not_checked=said(error))


def checked(
    rng: np.random.Generator, posterior: Posterior, full: Series, threads: int | None, on_progress: OnProgress
) -> ModelCheck:
    """Check residuals at a central draw, and a sample of the series against series simulated from the posterior."""
    on_progress("checking the model", 0, 0)
    observed = len(full) - full.n_missing
    if observed < SHORTEST:
        return ModelCheck([], not_checked=f"a check needs {SHORTEST} observations, and there are {observed}")
    model, series, points = posterior.model, sample_of(full), posterior.points(REPLICATES)
    centre = most_central(points)
    if len(series) < len(full) and model.start is not None:  # which is where the series starts, not its pieces
        start = average_start(model, centre, series, threads)
        model, (centre, *points) = with_start(model, start, [centre, *points])
    checks, notes, residuals = [], [], None
    if has_residuals(model.family):
        residuals = pseudo_residuals(rng, model, centre, series, threads=threads)
        for i, column in enumerate(np.atleast_2d(residuals.T)):
            where = f" of column {i}" if residuals.ndim > 1 else ""
            checks += [c._replace(name=c.name + where) for c in check_residuals(column, series.bounds)]
    else:
        notes.append(f"Residuals were not checked: {model.name} has no distribution function ('cdf').")
    checks += check_predictive(rng, model, points, series, on_progress=on_progress)
    if len(series) < len(full):
        notes.append(f"{len(series):,} of {len(full):,} observations, in evenly spaced pieces, were checked.")
    return ModelCheck(checks, " ".join(notes), residuals=residuals)


def most_central(points: list[Parameters]) -> Parameters:
    """Return the point with the smallest total distance to the others: their mean may lie between modes, near none."""
    phi = np.array([point.phi.ravel() for point in points])
    z = phi / np.where(phi.std(0) > 0, phi.std(0), 1.0)
    return points[int(np.argmin(np.linalg.norm(z[:, None] - z[None], axis=-1).sum(1)))]


def sample_of(series: Series) -> Series:
    """Return the series in memory, or evenly spaced pieces of it that have few enough values."""
    size = max(LONG // series.n_columns, FEWEST_ROWS)
    return series.part(0, len(series)) if len(series) <= size else pieces(series, size)


def average_start(model: Model, parameters: Parameters, series: Series, threads: int | None) -> Array:
    """Return the distribution (K,) of the states in which pieces of a series start, averaged over the pieces."""
    K = model.n_states
    anywhere, (point,) = with_start(model, np.full(K, 1 / K), [parameters])
    smoothed = smooth(anywhere, point, series, threads=threads)
    return np.asarray(smoothed[series.bounds[:-1]].mean(0))


def with_start(model: Model, start: Array, points: list[Parameters]) -> tuple[Model, list[Parameters]]:
    """Return a model and parameters with another distribution of the first state."""
    return replace(model, start=start), [point._replace(start=start) for point in points]
