"""From a model back to the settings of ``RareHMM`` that describe it."""

from typing import Any

import numpy as np

from rarehmm.data.inputs import Columns, Inputs, Season, Term, Trend
from rarehmm.data.trends import Curve
from rarehmm.model.model import Model
from rarehmm.specification.terms import LAGS, is_number
from rarehmm.transitions.homogeneous import Homogeneous
from rarehmm.transitions.phases import Phases


def settings_of(model: Model) -> dict[str, Any]:
    """Return the settings of ``RareHMM`` that describe what observations and transitions of a model depend on.

    A fit with these to the series of the model has the same terms; transitions with inputs keep those they were
    settled to.
    """
    parts = [part for part in (model.inputs, model.switching) if part is not None]
    terms = [term for part in parts for term in terms_of(part)]
    switching = model.switching.labels if model.switching else []
    if model.autoregression is not None and model.autoregression.switching:
        switching = [*switching, LAGS]
    return {
        "ar": model.autoregression,
        "season": [term for term in terms if isinstance(term, Season)] or None,
        "trend": [term for term in terms if isinstance(term, Trend)] or None,
        "switching": switching or False,
        "scale": terms_of(model.scale) if model.scale else None,
        "transitions": None if isinstance(model.transitions, Homogeneous | Phases) else model.transitions,
        "durations": list(model.transitions.lengths) if isinstance(model.transitions, Phases) else None,
    }


def exog_names_of(model: Model) -> tuple[str, ...]:
    """Return the names of the input columns of the series that a model was made for, if it reads any."""
    return next((part.exog_names for part in inputs_of(model) if part.chosen), ())


def inputs_of(model: Model) -> list[Inputs]:
    """Return the inputs that a model reads."""
    parts = (model.inputs, model.switching, model.scale, model.transitions.inputs)
    return [part for part in parts if part is not None]


def terms_of(inputs: Inputs) -> list[Term]:
    """Return the terms that inputs were settled from, with the number of harmonics of seasons."""
    out: list[Term] = []
    if inputs.seasons:
        step = inputs.seasons.grid.step
        for wave in inputs.seasons.waves:
            steps = wave.period / step
            number = is_number(wave.label)
            period = int(steps) if number and steps == int(steps) else steps
            out.append(Season(period if number else wave.label, max(wave.cosines)))
    out += [Trend(_knots(curve, inputs.has_times)) for curve in inputs.trends]
    return [*out, Columns(inputs.chosen.names)] if inputs.chosen else out


def _knots(curve: Curve, has_times: bool) -> Any:
    """Return the number of knots between the ends of a trend, or their places if these are not evenly spaced."""
    inner = curve.knots[1:-1]
    if not inner:
        return None
    if np.allclose(np.diff(curve.knots, 2), 0.0, atol=1e-6 * (curve.knots[-1] - curve.knots[0])):
        return len(inner)
    if not has_times:
        return inner
    import pandas as pd

    return tuple(pd.Timestamp(curve.origin + curve.unit * x, unit="s") for x in inner)
