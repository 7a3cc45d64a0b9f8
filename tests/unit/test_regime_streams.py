"""Streams of models with inputs, lags and phases: rows in any stretches say what a pass over the whole series says."""

import json
import zlib

import numpy as np
import pandas as pd
import pytest
from regime_cases import as_model, covering, label, make_case

from rarehmm import (
    AroundLevel,
    Columns,
    Gaussian,
    Hamilton,
    Inputs,
    Intercept,
    Model,
    MultivariateGaussian,
    Poisson,
    Regression,
    Season,
    Series,
    Trend,
    filter_states,
    log_likelihood,
    no_priors,
    predictive_log_density,
)
from rarehmm.posterior.regime_streams import RegimeFilter, RegimeStream


def chunks_of(series, first, last):
    """Arguments of ``update`` for the rows [first, last) of a series without times."""
    rows = series.read_rows(first, last)
    exog = pd.DataFrame(rows.exog, columns=series.exog_names) if series.exog_names else None
    return {"y": rows.y, "exog": exog, "states": rows.states if len(rows.states) else None}


def through(filter, series, size, stream=None, stored=False):
    """Probabilities (T, K), log densities (Z, T) and the stream after all rows of a series, ``size`` rows at a time."""
    stream, found, values = stream or RegimeStream(), [], []
    for first, last in zip(series.bounds[:-1].tolist(), series.bounds[1:].tolist(), strict=True):
        stream = stream.at_new_sequence()
        for low in range(first, last, size):
            if stored:
                stream = RegimeStream.from_dict(json.loads(json.dumps(stream.to_dict(), allow_nan=False)))
            stream, probabilities, log_densities = filter.update(
                stream, **chunks_of(series, low, min(low + size, last))
            )
            found.append(probabilities)
            values.append(log_densities)
    return np.concatenate(found), np.concatenate(values, axis=1), stream


def check(model, parameters, series, sizes):
    """Streams in stretches of these sizes agree with passes over the whole series."""
    expected = filter_states(model, parameters, series, sequential=True)
    densities = predictive_log_density(model, parameters, series, sequential=True)
    value = log_likelihood(model, parameters, series, sequential=True)
    for size in sizes:
        found, values, stream = through(RegimeFilter(model, [parameters]), series, size)
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(values[0], densities, rtol=1e-12, atol=1e-12)
        assert stream.log_likelihood[0] == pytest.approx(value, rel=1e-12, abs=1e-12)
        np.testing.assert_allclose(stream.probability, expected[-1], rtol=1e-12, atol=1e-12)
        assert stream.seen == len(series)


@pytest.mark.parametrize("choice", covering(), ids=label)
def test_rows_in_any_stretches_say_what_the_whole_series_says(choice):
    case = make_case(choice, zlib.crc32(label(choice).encode()))
    check(*as_model(case), sizes=[1, 2, 7])
