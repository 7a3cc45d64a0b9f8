"""Published regime-switching models: data, parameters and values, read from the tests that statsmodels ships.

Most values are from Stata and EViews.  Nothing of theirs is copied here; what is kept is which test to read, and to how
many decimals its log-likelihood is met at the parameters as printed.
"""

import functools
import importlib
from dataclasses import dataclass

import numpy as np
import pytest
from oracle_regimes import Regimes

REGRESSION, AUTOREGRESSION = "test_markov_regression", "test_markov_autoregression"

# Module, class and decimals.  All are met to the printed digits, but for the recession indicator, which has six: the
# log-likelihood at its parameters, themselves rounded, is 1.7e-6 away.
TESTS = {
    "federal funds": (REGRESSION, "TestFedFundsConst", 5),
    "federal funds, lag": (REGRESSION, "TestFedFundsConstL1", 5),
    "federal funds, lag, output gap, inflation": (REGRESSION, "TestFedFundsConstL1Exog", 5),
    "federal funds, 3 regimes": (REGRESSION, "TestFedFundsConstL1Exog3", 5),
    "absolute returns, lag, variance": (REGRESSION, "TestAreturnsConstL1Variance", 4),
    "mumps, lag, variance": (REGRESSION, "TestMumpspcNoconstL1Variance", 4),
    "GNP, AR(4)": (AUTOREGRESSION, "TestHamiltonAR4", 5),
    "GNP, AR(2), switching": (AUTOREGRESSION, "TestHamiltonAR2Switch", 5),
    "GNP, AR(1), switching": (AUTOREGRESSION, "TestHamiltonAR1Switch", 4),
    "GNP, AR(1), recession indicator": (AUTOREGRESSION, "TestHamiltonAR1SwitchTVTP", 5),
    "Filardo, AR(4)": (AUTOREGRESSION, "TestFilardo", 4),
}
NAMES = list(TESTS)

# Published probabilities of one state from row p on: the state, and where its smoothed and filtered ones are.
PROBABILITIES = {
    "federal funds": (0, lambda module, test: (test.true["smoothed0"], None)),
    "GNP, AR(4)": (1, lambda module, test: (module.hamilton_ar4_smoothed, module.hamilton_ar4_filtered)),
    "GNP, AR(2), switching": (0, lambda module, test: (test.true["smoothed0"], None)),
    "GNP, AR(1), switching": (
        0, lambda module, test: (module.hamilton_ar1_switch_smoothed, module.hamilton_ar1_switch_filtered),
    ),
    "GNP, AR(1), recession indicator": (
        0, lambda module, test: (module.hamilton_ar1_switch_tvtp_smoothed, module.hamilton_ar1_switch_tvtp_filtered),
    ),
    "Filardo, AR(4)": (
        0, lambda module, test: (test.mar_filardo["smoothed_0"].iloc[5:], test.mar_filardo["filtered_0"].iloc[5:]),
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Published:
    """A published model: its data and parameters, and what was found at them."""

    regimes: Regimes
    log_likelihood: float
    decimals: int  # to which the log-likelihood is met
    state: int | None = None  # whose probabilities are published
    smoothed: np.ndarray | None = None  # (T - p,)
    filtered: np.ndarray | None = None  # (T - p,)


@functools.cache
def published(name):
    """Read one of ``NAMES``; skip the test that asks where statsmodels is not installed."""
    module_name, class_name, decimals = TESTS[name]
    pytest.importorskip("statsmodels", reason="published numbers are read from the tests of statsmodels")
    module = importlib.import_module(f"statsmodels.tsa.regime_switching.tests.{module_name}")
    test = type(class_name, (getattr(module, class_name),), {})
    test.setup_class()
    regimes = regression(test) if module_name == REGRESSION else autoregression(test)
    state, smoothed, filtered = None, None, None
    if name in PROBABILITIES:
        state, find = PROBABILITIES[name]
        smoothed, filtered = (None if one is None else np.asarray(one, float) for one in find(module, test))
    return Published(regimes, test.true["llf"], decimals, state, smoothed, filtered)


def of_each_state(test, name):
    """Parameters (K, ...) that a model of statsmodels calls ``name``."""
    return np.array([test.true["params"][test.model.parameters[k, name]] for k in range(test.model.k_regimes)])


def chain(test):
    """Transition matrix, and inputs and slopes of transitions where it has them, as arguments of ``Regimes``."""
    model, K = test.model, test.model.k_regimes
    given = of_each_state(test, "regime_transition")  # of each state it comes from: to all states but the last
    if not model.tvtp:
        return {"transition": np.column_stack([given, 1 - given.sum(1)])}
    assert K == 2
    assert (model.exog_tvtp[:, 0] == 1).all()
    stay = 1 / (1 + np.exp(-given[:, 0]))  # constants are logits
    slopes = np.zeros((given.shape[1] - 1, K, K))
    slopes[:, :, 0] = given[:, 1:].T
    return {"transition": np.column_stack([stay, 1 - stay]), "z": model.exog_tvtp[:, 1:], "slopes": slopes}


def regression(test):
    """Case of a Markov regression, in the intercept form where its first regressor is the lag of the series."""
    model, coefficients = test.model, of_each_state(test, "exog")  # (K, columns)
    K, x = model.k_regimes, model.exog
    mu = np.zeros(K)
    if model.k_trend:
        mu, coefficients, x = coefficients[:, 0], coefficients[:, 1:], x[:, 1:]
    sigma = np.sqrt(of_each_state(test, "variance").reshape(K))
    if x.shape[1] == 0:
        return Regimes(y=model.endog, mu=mu, sigma=sigma, **chain(test))
    np.testing.assert_array_equal(x[1:, 0], model.endog[:-1])
    return Regimes(
        y=np.append(x[0, 0], model.endog), mu=mu, sigma=sigma, kind="intercept", p=1, phi=coefficients[:, :1].T,
        switching_x=np.vstack([np.zeros(x.shape[1] - 1), x[:, 1:]]),  # the first row does not count
        b=coefficients[:, 1:].T, **chain(test),
    )  # fmt: skip


def autoregression(test):
    """Case of a Markov autoregression: Hamilton's model."""
    model = test.model
    K, p = model.k_regimes, model.order
    phi = of_each_state(test, "autoregressive").T  # (p, K)
    return Regimes(
        y=model.orig_endog, mu=of_each_state(test, "exog").reshape(K),
        sigma=np.sqrt(of_each_state(test, "variance").reshape(K)), kind="hamilton", p=p,
        phi=phi if all(model.switching_ar) else phi[:, 0], **chain(test),
    )  # fmt: skip
