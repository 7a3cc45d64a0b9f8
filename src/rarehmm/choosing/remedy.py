"""The remedy for autocorrelated residuals: more lags, with the gain in held-out log density that they bring."""

import logging
from typing import Any

from rarehmm.choosing.suggest import AUTO, CLEAR, LEAST, Search
from rarehmm.common.progress import silent
from rarehmm.data.series import Series
from rarehmm.model.autoregression import AroundLevel, Intercept
from rarehmm.model.model import Model
from rarehmm.posterior.model_check import ModelCheck
from rarehmm.specification.models import Specification
from rarehmm.specification.restored import settings_of
from rarehmm.transitions.homogeneous import Homogeneous

logger = logging.getLogger(__name__)
ROWS = 8_000
FAILED = "residual autocorrelation"


def with_remedy(check: ModelCheck, model: Model, series: Series, threads: int | None) -> ModelCheck:
    """Return a check whose message on autocorrelated residuals names the lags that would help, if any would."""
    if not any(c.name.startswith(FAILED) and not c.passed for c in check.checks):
        return check
    try:
        remedy = lags_wanted(model, series, threads)
    except Exception:  # any: a check must not fail because it has no advice
        logger.info("no remedy for autocorrelated residuals was found", exc_info=True)
        return check
    if not remedy:
        return check
    checks = [c._replace(message=f"at lag 1; {remedy}") if c.name.startswith(FAILED) else c for c in check.checks]
    return check._replace(checks=checks)


def lags_wanted(model: Model, series: Series, threads: int | None) -> str:
    """Say which lags raise the held-out density of a model, and by how much; empty if none clearly do."""
    now = settings_of(model)
    if not isinstance(model.transitions, Homogeneous) or model.switching or model.scale or model.fixed:
        return ""
    given = Specification(model.n_states, model.family, AUTO, now["season"], now["trend"])
    search = Search(series.without_states(), given, threads, silent, ROWS)
    search.prepare()
    order = search.largest_order(CLEAR)
    if order <= model.n_lags or not search.takes_inputs:
        return ""
    form: Any = AroundLevel if search.has_level(model.family) else Intercept
    without = search.evaluate(search.specification(ar=model.autoregression))
    gain = search.gain(search.evaluate(search.specification(ar=form(order))), without)
    if not gain.exceeds(CLEAR, LEAST):
        return ""
    return f"ar={order} raises the held-out log density by {gain.value:.2g} per observation"
