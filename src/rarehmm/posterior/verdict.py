"""The verdict on a fit: is this the posterior of the model, and is this a model of the series?  A sentence on each."""

from collections.abc import Sequence

from rarehmm.posterior.model_check import ModelCheck
from rarehmm.posterior.posterior import Posterior

UNCERTAINTY = {
    "map": "this is the mode alone, without uncertainty",
    "laplace": "the uncertainty is assumed, not sampled: it is that of a Gaussian at the mode",
    "vi": "the uncertainty is assumed, not sampled: it is that of the closest Gaussian",
}
SHOWN = 3  # failed checks of the model
ONE_MODE = "the search started from init, and no other mode was sought"


def about_posterior(posterior: Posterior, more: Sequence[str] = ()) -> str:
    """Say whether the draws are those of the model's posterior, with notes on what they cannot show, and ``more``."""
    notes = [UNCERTAINTY[posterior.method]] if posterior.method in UNCERTAINTY and posterior.model.size > 0 else []
    notes += more
    verdict = posterior.verdict[0].lower() + posterior.verdict[1:]
    return " ".join([f"Posterior: {verdict}", *(f"Note: {note}." for note in notes)])


def about_model(check: ModelCheck) -> str:
    """Say whether the model fits the series; a good posterior of a model that does not is no reason for trust."""
    if check.not_checked:
        return f"Model: not checked: {check.not_checked}."
    if check.passed:
        return f"Model: fits the series. {check.note}".rstrip()
    more = len(check.failures) - SHOWN
    failures = check.failures[:SHOWN] + ([f"and {more} more"] if more > 0 else [])
    misfit = f"does not fit the series, so do not rely on its probabilities and intervals: {'; '.join(failures)}."
    return f"Model: {misfit} {check.note}".rstrip()
