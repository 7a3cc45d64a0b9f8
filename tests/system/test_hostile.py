"""Whatever is fitted: an answer of finite numbers or a clear refusal; threads do not meet, memory is given back.

60 cases here, more than 10,000 with ``make nightly``, which has every family and method.
"""

import collections
import os
import pathlib
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import hostile
import numpy as np
import pytest
from hostile import Case, Hostile
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import rarehmm as rh
from rarehmm.emissions import families
from rarehmm.model.named_priors import default_priors

NIGHTLY = os.environ.get("HYPOTHESIS_PROFILE") == "nightly"
QUIETLY = {"deadline": None, "suppress_health_check": list(HealthCheck)}


def compiled_anyway():
    """Few families and methods, whose kernels other tests need as well."""
    few = st.sampled_from((1, 2, 2, 2, 3, 3, 4, 12))
    gaussian = hostile.cases(("gaussian",), few, ("map", "map", "map", "laplace", "auto"), 120)
    return hostile.mostly(gaussian, hostile.cases(("poisson", "student_t"), few, ("map",), 120), 0.4)


SETS = {"few": (compiled_anyway(), 60)}
if NIGHTLY:
    SETS = {str(e): (hostile.cases((e,), longest=3000), 420) for e in hostile.ALL}
    SETS["long"] = hostile.cases(("gaussian", "poisson"), methods=("map", "auto"), longest=50_000, long=1.0), 60


@settings(max_examples=5000 if NIGHTLY else 300, **QUIETLY)
@given(hostile.series(5000), st.sampled_from(sorted(families())), st.integers(1, 12))
def test_the_door_takes_a_series_or_says_why_not(y, name, K):
    """Without a fit: what a series is summarised to, and what priors are made of that."""
    values, lengths = y.made()

    def enter():
        series = rh.Series(values, lengths)
        kind = families()[name]
        return series, default_priors(kind(max(series.n_columns, 2)) if "multi" in name else kind(), K, series)

    found = hostile.attempted(enter)
    if isinstance(found, hostile.Refusal):
        return
    for summary in found[0].summaries:
        hostile.finite("summary", list(summary[:6]) if summary.size else summary.variance)
    for prior in found[1].emission:
        hostile.finite("prior", prior)


@pytest.mark.jit
@pytest.mark.parametrize("name", SETS)
def test_every_answer_is_finite_or_a_clear_refusal(name, tmp_path):
    cases, count = SETS[name]
    said = collections.Counter()

    @settings(max_examples=count, **QUIETLY)
    @given(cases)
    def drive(case):
        said[hostile.driven(case, tmp_path)] += 1

    drive()
    assert said["answered"] > 0.15 * count, said  # refusing everything would be no answer


FOUND = [
    Case(Hostile(67), states=1, method="laplace"),  # a state that is never left: its sojourn was 1e300, squared
    Case(Hostile(47, exponent=7, parts=5, seed=7), states=7, method="auto", more={"n_draws": 20}),  # no point counts
    Case(
        Hostile(293, distribution="heavy tails", offset=-1e15, seed=3305455529), states=3
    ),  # nothing but rounding changes
    Case(Hostile(47, exponent=-252, seed=7), states=7),  # squares underflow
    Case(Hostile(29, columns=2, distribution="small counts", empty_column=True, seed=31), "multivariate_gaussian", 2),
    Case(
        Hostile(20, distribution="many powers", exponent=-77, columns=2, seed=178043777), states=1
    ),  # overflow in checks
    Case(
        Hostile(282, distribution="bursts", gaps=0.1, seed=12594536), states=7, method="importance"
    ),  # hardly a point counts
    pytest.param(  # none does
        Case(Hostile(391, distribution="stairs", seed=11), "categorical", 11, "importance", {"n_draws": 5}),
        marks=pytest.mark.nightly,
    ),
]


@pytest.mark.jit
@pytest.mark.parametrize("case", FOUND, ids=str)
def test_cases_that_once_failed(case, tmp_path):
    hostile.driven(case, tmp_path)


# ---------------------------------------------------------------- does the test have teeth?
def test_that_other_errors_are_no_refusals():
    def numpy_says():
        np.zeros(3) + np.zeros(4)

    for call in (numpy_says, lambda: int("x"), lambda: np.linalg.inv(np.zeros((2, 2))), lambda: rh.stationary("x")):
        with pytest.raises((TypeError, ValueError, np.linalg.LinAlgError), match=r"\w"):
            hostile.attempted(call)
    assert hostile.attempted(lambda: rh.Series([])).message.startswith("y is empty")


def test_that_warnings_of_others_are_errors():
    with hostile.only_own_warnings(), pytest.raises(RuntimeWarning, match="invalid value"):
        np.log(np.array([-1.0]))


# ---------------------------------------------------------------- threads
def fitted(seed, emission, K, method):
    """All that a fit and its predictions are made of, as bytes."""
    rng = np.random.default_rng(seed)
    y = rng.poisson(3, 300) + 20.0 * (rng.random(300) < 0.02)
    hmm = rh.RareHMM(K, emission=emission, method=method, n_draws=50, random_state=seed, verbose=0).fit(y)
    found = hmm.posterior_.phi, hmm.posterior_.transition, hmm.predict_proba(y), hmm.forecast(y, 3, size=5).observations
    return [part.tobytes() for part in found], hmm.verdict_, hmm.regimes_


@pytest.mark.jit
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # some posteriors are not to be trusted, and it is said
@pytest.mark.parametrize(
    ("one", "other"),
    [
        ((1, "gaussian", 2, "auto"), (2, "gaussian", 2, "auto")),
        pytest.param((1, "gaussian", 3, "laplace"), (2, "poisson", 2, "map"), marks=pytest.mark.nightly),
        ((3, "gaussian", 2, "gibbs"), (3, "student_t", 3, "map")),
    ],
)
def test_two_fits_at_once_are_as_one_after_the_other(one, other):
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda given: fitted(*given), (one, other, one, other)))
    assert together == [fitted(*one), fitted(*other)] * 2


# ---------------------------------------------------------------- memory
FITS = """
import os, pathlib, sys
import numpy as np
import rarehmm as rh

def now():
    return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

def fit():
    hmm = rh.RareHMM(1, method="map", n_jobs=1, verbose=0).fit(y)
    return [hmm.predict_proba(y) for _ in range(4)]

y, kept = np.random.default_rng(0).normal(size=2000), []
for _ in range(50):
    fit()
before = now()
for _ in range(int(sys.argv[1])):
    found = fit()
    kept += found if sys.argv[2] == "keep" else []
print(now() - before)
"""


def growth(count, keep):
    """Bytes by which a fresh process grows over so many small fits, once it is at rest; ``keep`` makes it leak."""
    command = [sys.executable, "-c", FITS, str(count), "keep" if keep else "forget"]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


on_linux = pytest.mark.skipif(not pathlib.Path("/proc/self/statm").exists(), reason="memory is read from /proc")


@pytest.mark.jit
@on_linux
@pytest.mark.parametrize("count", [200, pytest.param(1000, marks=pytest.mark.nightly)])
def test_many_fits_take_no_more_memory_than_fifty(count):
    assert growth(count, keep=False) < 8 << 20


@pytest.mark.nightly
@pytest.mark.jit
@on_linux
def test_that_this_test_would_notice_probabilities_that_are_kept():
    assert growth(200, keep=True) > 8 << 20
