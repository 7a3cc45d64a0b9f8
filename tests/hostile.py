"""Hostile input: series of every kind, driven through the whole face of the library.

What comes out is an answer in which every number is finite, or a refusal: an error that rarehmm raised on purpose, with
words.  Anything else (an error out of NumPy, a warning of its arithmetic, a NaN, a hang) fails.
"""

import json
import linecache
import pathlib
import sys
import tempfile
import time
import traceback
import warnings
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import dask.array
import numpy as np
import pandas as pd
import xarray as xr
from hypothesis import strategies as st
from sklearn.base import clone

import rarehmm as rh
from rarehmm.emissions import families
from rarehmm.posterior.prediction import Stream
from rarehmm.sampling.rule import METHODS
from rarehmm.specification.families import family_of

HERE = str(pathlib.Path(rh.__file__).parent)
REFUSALS = (ValueError, TypeError, MemoryError, rh.ReadError, rh.DivergedError)
SECONDS = 300  # that a case may take, the compilation of its kernels included
OBJECTS = (
    rh.StudentT(4.0), rh.StudentT(0.1), rh.NegativeBinomial(3.0), rh.Categorical(3), rh.Categorical(12), rh.Gaussian(),
    rh.GaussianMixture(3),
)  # fmt: skip
LISTS = (["gaussian", "poisson"], ["gaussian", "gaussian"], ["bernoulli", "exponential"])
ALL = (*families(), *OBJECTS, *LISTS)
NUMBERS = ("float64", "float32", "float16", "longdouble", "int8", "int16", "int32", "int64", "uint8", "uint64", "bool")
ODD = ("object", "str", "complex128", "M8[s]")
LAYOUTS = (
    "fortran", "strided", "backwards", "read-only", "list", "pandas", "nullable", "masked", "big-endian", "subclass",
    "memory map", "file", "xarray", "dask",
)  # fmt: skip
FILES = tempfile.TemporaryDirectory()  # of memory maps and the like, gone with this process


# ---------------------------------------------------------------- series
@dataclass(frozen=True)
class Hostile:
    """A series, told in so few words that a failure can be read: ``made`` makes it."""

    length: int = 50
    columns: int = 0  # 0: one, without an axis of its own
    distribution: str = "normal"
    exponent: int = 0  # of the scale, 10 to it
    offset: float = 0.0  # in units of the scale
    outlier: int | None = None  # exponent of one value, in units of the scale
    gaps: float = 0.0
    infinite: bool = False
    empty_column: bool = False
    dtype: str = "float64"
    layout: str = "plain"
    parts: int = 1
    named: bool = False  # whether lengths name the parts, rather than a list
    seed: int = 0

    def made(self) -> tuple[Any, Any]:
        """The series and its ``lengths``."""
        rng = np.random.default_rng(self.seed)
        shape = (self.length, self.columns) if self.columns else (self.length,)
        with np.errstate(all="ignore"):
            y = (drawn(self.distribution, rng, shape) + self.offset) * 10.0**self.exponent
            if self.length and self.outlier is not None:
                y[rng.integers(self.length)] = 10.0 ** min(max(self.exponent + self.outlier, -307), 307)
        y[rng.random(shape) < self.gaps] = np.nan
        if self.length and self.infinite:
            y[rng.integers(self.length)] = -np.inf
        if self.columns and self.empty_column:
            y[:, -1] = np.nan
        if self.named:
            return laid_out(y, self.dtype, self.layout), lengths(rng, self.length, self.parts)
        if self.parts > 1:
            cuts = np.cumsum(lengths(rng, self.length, self.parts))[:-1]
            return [laid_out(part, self.dtype, self.layout) for part in np.split(y, cuts)], None
        return laid_out(y, self.dtype, self.layout), None


LAWS = {
    "normal": lambda rng, shape: rng.normal(size=shape),
    "bursts": lambda rng, shape: rng.normal(size=shape) + 8.0 * (rng.random(shape) < 0.05),
    "constant": lambda rng, shape: np.ones(shape),
    "nearly constant": lambda rng, shape: 1 + 1e-15 * rng.integers(0, 2, shape),
    "two values": lambda rng, shape: rng.integers(0, 2, shape).astype(float),
    "small counts": lambda rng, shape: rng.poisson(3.0, shape).astype(float),
    "large counts": lambda rng, shape: rng.integers(0, 10**9, shape).astype(float),
    "categories": lambda rng, shape: rng.integers(0, 12, shape).astype(float),
    "angles": lambda rng, shape: rng.uniform(-np.pi, np.pi, shape),
    "positive": lambda rng, shape: rng.exponential(1.0, shape),
    "some powers": lambda rng, shape: 10.0 ** rng.uniform(-5, 5, shape),
    "many powers": lambda rng, shape: 10.0 ** rng.uniform(-100, 100, shape),
    "heavy tails": lambda rng, shape: rng.standard_cauchy(shape),
    "walk": lambda rng, shape: np.cumsum(rng.normal(size=shape), axis=0),
    "stairs": lambda rng, shape: np.sort(rng.integers(0, 4, shape), axis=0).astype(float),
    "zeros": lambda rng, shape: np.zeros(shape),
    "one step": lambda rng, shape: np.arange(np.prod(shape), dtype=float).reshape(shape) // max(1, np.prod(shape) / 2),
}


def drawn(distribution, rng, shape):
    """Of a law; "this | that": the columns by turns."""
    first, *others = distribution.split(" | ")
    y = LAWS[first](rng, shape)
    for start, other in enumerate(others if len(shape) > 1 else (), 1):
        y[:, start :: len(others) + 1] = LAWS[other](rng, y[:, start :: len(others) + 1].shape)
    return y


REFUSED = {"constant", "nearly constant", "zeros", "many powers"}  # by nearly all families
USUAL = tuple(sorted(LAWS.keys() - REFUSED))
DOMAINS = {
    "bernoulli": ("two values",), "von_mises": ("angles",),
    **dict.fromkeys(("categorical", "Categorical(12)"), ("two values", "categories", "stairs")),
    "Categorical(3)": ("two values",), "['gaussian', 'poisson']": ("bursts | small counts", "angles | zeros"),
    "['bernoulli', 'exponential']": ("two values | positive", "zeros | some powers", "two values | constant"),
    **dict.fromkeys(("exponential", "gamma", "log_normal"), ("positive", "some powers")),
    **dict.fromkeys(
        ("poisson", "negative_binomial", "free_negative_binomial", "zero_inflated_poisson", "NegativeBinomial(r=3.0)"),
        ("small counts", "two values", "large counts", "stairs"),
    ),
}  # fmt: skip


def lengths(rng, T, parts):
    """Lengths of parts; now and then 0."""
    few = parts > T or rng.random() < 0.1
    cuts = np.sort(rng.integers(0, T + 1, parts - 1) if few else rng.choice(np.arange(1, T), parts - 1, replace=False))
    return np.diff(cuts, prepend=0, append=T).tolist()


def laid_out(y, dtype, layout):
    """The same numbers, as someone else would store them."""
    with np.errstate(all="ignore"):
        if dtype not in ("float64", "object", "str") and np.dtype(dtype).kind in "iubM":
            y = np.clip(np.nan_to_num(y, nan=0.0), -1e18, 1e18)
            y = np.clip(y, 0, 255) if dtype == "uint8" else np.abs(y) if dtype.startswith("u") else y
            y = y.astype("int64") if dtype == "M8[s]" else y
        y = y.astype(dtype)
    match layout:
        case "fortran":
            return np.asfortranarray(y)
        case "strided":
            return np.repeat(y, 2, axis=0)[::2]
        case "backwards":
            return y[::-1].copy()[::-1]
        case "read-only":
            y.flags.writeable = False
        case "list":
            return y.tolist()
        case "pandas" if y.dtype != np.float16 and y.dtype != np.longdouble:
            return pd.Series(y) if y.ndim == 1 else pd.DataFrame(y)
        case "nullable" if y.dtype == np.float64 and y.ndim == 1:
            return pd.Series(pd.array(y, dtype="Float64")).mask(np.isnan(y))
        case "masked" if y.dtype.kind == "f":
            return np.ma.masked_invalid(y)
        case "big-endian":
            return y.astype(y.dtype.newbyteorder(">"))
        case "memory map" | "file" if y.size and y.dtype.kind in "fiubc":
            path = pathlib.Path(tempfile.mkdtemp(dir=FILES.name)) / "y.npy"
            np.save(path, y)
            return path if layout == "file" else np.load(path, mmap_mode="r")
        case "xarray":
            return xr.DataArray(y, dims=("time", "column")[: y.ndim])
        case "dask" if y.size:
            return dask.array.from_array(y, chunks=(max(1, len(y) // 3), *y.shape[1:]))
        case "subclass" if y.ndim == 2:
            return pd.DataFrame(y.astype(object) if y.dtype.kind in "cO" else y, index=np.arange(len(y)) % 3)
    return y


def series(longest=400, emission="gaussian", long=0.05):
    """Series of all kinds, most of the kind that the family takes; a share ``long`` of them of any length up to
    ``longest``."""
    distributions = mostly(st.sampled_from(DOMAINS.get(str(emission), USUAL)), st.sampled_from(sorted(LAWS)), 0.1)
    powers, rarely = st.integers(-300, 300), mostly(st.just(False), st.just(True), 0.03)
    short = mostly(st.integers(12, min(longest, 400)), st.integers(0, 11), 0.2)
    several = isinstance(emission, list) or emission == "multivariate_gaussian"
    return st.builds(
        Hostile,
        length=mostly(short, st.integers(3, longest), long),
        columns=st.sampled_from((2, 2, 2, 2, 2, 2, 2, 2, 3, 0) if several else (0, 0, 0, 0, 0, 0, 0, 1, 1, 2)),
        distribution=distributions,
        exponent=mostly(st.just(0), mostly(powers, st.integers(-50, 50), 0.6), 0.2),
        offset=mostly(st.just(0.0), st.sampled_from((1.0, -5.0, 1e8, -1e15)), 0.1),
        outlier=mostly(st.none(), mostly(powers, st.integers(0, 12), 0.6), 0.15),
        gaps=mostly(st.just(0.0), st.sampled_from((0.1, 0.5, 0.97))),
        infinite=rarely,
        empty_column=mostly(st.just(False), st.just(True), 0.1) if several else rarely,
        dtype=mostly(st.just("float64"), mostly(st.sampled_from(NUMBERS), st.sampled_from(ODD), 0.15), 0.2),
        layout=mostly(st.just("plain"), st.sampled_from(LAYOUTS)),
        parts=mostly(st.just(1), st.sampled_from((2, 5)), 0.2),
        named=st.sampled_from((False, False, False, True)),
        seed=st.integers(0, 2**32 - 1),
    )


def mostly(common, other, share=0.3):
    """Of a strategy, and in a share of the cases of another one."""
    return st.sampled_from([common] * round(100 * (1 - share)) + [other] * round(100 * share)).flatmap(same)


def now_and_then(*message):
    """None, and in a tenth of the cases a word."""
    return mostly(st.none(), st.sampled_from(message), 0.1)


def same(strategy):
    return strategy


STATES = mostly(st.integers(1, 4), st.integers(5, 12), 0.4)


# ---------------------------------------------------------------- the whole face
@dataclass(frozen=True)
class Case:
    """A series and how it is fitted."""

    y: Hostile
    emission: Any = "gaussian"
    states: int = 2
    method: str = "map"
    more: dict[str, Any] = field(default_factory=dict)


def cases(emissions, states=STATES, methods=METHODS, longest=400, long=0.05):
    """Fits of hostile series."""

    def of(emission):
        return st.builds(
            Case,
            series(longest, emission, long),
            st.just(emission),
            states,
            st.sampled_from(methods),
            st.fixed_dictionaries(
                {"n_draws": st.sampled_from((1, 5, 20)), "n_average": st.sampled_from((0, 1, 3))},
                optional={
                    "random_state": st.one_of(st.integers(0, 2**32), st.none()),
                    "rare_share": mostly(
                        st.sampled_from((1e-9, 0.05, 1.0)), st.sampled_from((0.0, float("nan"))), 0.04
                    ),
                    "memory_limit": st.sampled_from(("1GB", "100kB", 1)),
                    "startprob": mostly(st.just("uniform"), st.sampled_from(("first", "wrong")), 0.15),
                    "fixed": now_and_then("level", "levels", "row", "forbidden", "wrong"),
                    "init": now_and_then("labels", "one label", "fit", "wrong"),
                    "priors": now_and_then("none", "paper", "weak", "strong"),
                },
            ),
        )

    return st.sampled_from(emissions).flatmap(of)


def driven(case, folder):
    """Drive a case through everything: "answered" or "refused", or an error of this test."""
    began = time.perf_counter()
    found = attempted(lambda: everything(case, folder))
    elapsed = time.perf_counter() - began
    assert elapsed < SECONDS, f"it took {elapsed:.0f} s"
    return "refused" if isinstance(found, Refusal) else "answered"


class Refusal(NamedTuple):
    """What rarehmm said when it refused something."""

    message: str


def attempted(call):
    """What a call returns, or its refusal; anything else that it raises, or warns of, goes on."""
    with only_own_warnings():
        try:
            return call()
        except Exception as error:
            if not refused(error):
                raise
            return Refusal(str(error))


def refused(error):
    """Whether an error was raised on purpose by rarehmm: of a kind it may have, by a line of its own that says raise,
    with words."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    own = last.filename.startswith(HERE) and linecache.getline(last.filename, last.lineno).lstrip().startswith("raise")
    return isinstance(error, REFUSALS) and own and len(str(error)) > 20 and "\n" not in str(error)


@contextmanager
def only_own_warnings():
    """Warnings that rarehmm gives with words of its own pass; any other is an error."""
    say = warnings.warn

    def warn(message, *args, **more):
        if not sys._getframe(1).f_code.co_filename.startswith(HERE):
            say(message, *args, **more)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.warn = warn
        try:
            yield
        finally:
            warnings.warn = say


def everything(case, folder):
    """Fit, and ask for all that can be asked for; all numbers must be numbers."""
    X, lengths = case.y.made()
    hmm = rh.RareHMM(case.states, emission=case.emission, method=case.method, verbose=0, n_jobs=1)
    hmm.set_params(**settings(case, X, lengths))
    hmm.fit(X, lengths=lengths)
    T, K = len(rh.Series(X, lengths)), case.states
    check_posterior(hmm, K)
    for probabilities in (hmm.predict_proba(X, lengths), hmm.filter_proba(X, lengths)):
        assert joined(probabilities).shape == (T, K)
        check_laws("probabilities", joined(probabilities))
    value, path = hmm.decode(X, lengths)
    path = joined(path)
    finite("decode", value)
    assert path.shape == (T,)
    assert ((path >= 0) & (path < K)).all()
    np.testing.assert_array_equal(joined(hmm.predict(X, lengths)), path)
    finite("score", hmm.score(X, lengths=lengths))
    drawn, states = hmm.sample(7)
    finite("sample", drawn)
    assert ((states >= 0) & (states < K)).all()
    for chosen in (None, [0]):  # (the peak of an event within a gap is missing, as its observations are)
        events = hmm.rare_events(X, lengths, rare_states=chosen)
        finite("events", events[["duration", "probability"]].to_numpy(dtype=float))
    ahead = hmm.forecast(X, 3, lengths, rare_states=[K - 1], size=4)
    for name, part in ahead._asdict().items():
        if name not in ("index", "names"):  # there may be none
            finite(name, part)
    check_laws("forecast", ahead.states)
    assert (ahead.low <= ahead.high).all()
    assert (ahead.low >= -1e-9).all()
    assert (ahead.high <= 1 + 1e-9).all()
    check_stream(hmm, rh.Series(X, lengths), X, lengths)
    given = hmm.check(X, lengths)
    finite("checks of the fit", [c.value for c in given.checks])
    assert str(given)
    assert "nan" not in f"{given} {hmm.verdict_}".split()
    assert given.not_checked.startswith("a check needs") or given.checks, given.not_checked
    check_file(hmm, folder)
    assert clone(hmm).n_components == case.states


def joined(parts):
    """All rows of the answer to a list of sequences, or to one."""
    return np.concatenate(parts) if isinstance(parts, list) else parts


def settings(case, X, lengths):
    """What the words of a case stand for."""
    given, K = {"startprob", "fixed", "init", "priors"}, case.states
    more = {name: word for name, word in case.more.items() if word is not None or name not in given}
    if not given & more.keys():
        return more
    y, plain = rh.Series(X, lengths), rh.RareHMM(K, emission=case.emission, method="map", verbose=0)
    family, (low, mean, high) = (
        family_of(case.emission, y),
        (y.summaries[0].low, y.summaries[0].mean, y.summaries[0].high),
    )
    first, unknown = family.parameters[0].name, [[None] * K for _ in range(K - 1)]
    labels = np.random.default_rng(0).integers(0, K, len(y))
    message = {
        "startprob": {
            "uniform": lambda: np.full(K, 1 / K), "first": lambda: np.eye(K)[0], "wrong": lambda: [0.3, 0.3],
        },
        "fixed": {
            "level": lambda: {first: [mean] + [None] * (K - 1)},
            "levels": lambda: {first: np.linspace(low, high, K)},
            "row": lambda: {"transition": [[1 / K] * K, *unknown]},
            "forbidden": lambda: {"transition": [[None] * (K - 1) + [0], *unknown]},
            "wrong": lambda: {"men": [1.0]},
        },
        "init": {
            "labels": lambda: labels, "one label": lambda: np.zeros(len(y), int), "wrong": lambda: labels + 1,
            "fit": lambda: plain.fit(X, lengths=lengths),
        },
        "priors": {
            "none": lambda: rh.no_priors(family),
            "paper": lambda: rh.paper_priors(family),
            "weak": lambda: rh.default_priors(family, K, y)._replace(transition=rh.Dirichlet(1e-6)),
            "strong": lambda: rh.default_priors(family, K, y)._replace(transition=rh.Dirichlet(1e6)),
        },
    }  # fmt: skip
    return {name: message[name][word]() if name in message else word for name, word in more.items()}


def check_posterior(hmm, K):
    posterior = hmm.posterior_
    for name, values in posterior.quantities.items():
        finite(name, values)
    check_laws("transition", posterior.transition)
    check_laws("occupancy", posterior.occupancy)
    check_laws("transmat_", hmm.transmat_)
    check_laws("startprob_", hmm.startprob_)
    assert len(hmm.means_) == K
    finite("means_", hmm.means_)
    if any(p.name == "variance" for p in posterior.model.family.parameters):
        finite("covars_", hmm.covars_)
    table = hmm.summary(0.5)
    low, high = table.columns[2:4]
    finite("summary", table[["mean"] if posterior.is_mode else ["mean", "sd", low, high]].to_numpy())
    assert posterior.is_mode or (table[low] <= table[high]).all()
    finite("checks", [c.value for c in posterior.checks if c.passed])
    assert hmm.verdict_
    assert [r.state for r in hmm.regimes_] == list(range(K))


def check_stream(hmm, series, X, lengths):
    stream, first = None, min(3, int(series.bounds[1]))
    for row in series.read(0, first):
        stream = hmm.update(stream and Stream.from_dict(json.loads(json.dumps(stream.to_dict()))), row)
    np.testing.assert_allclose(stream.probability, joined(hmm.filter_proba(X, lengths))[first - 1], atol=1e-6)


def check_file(hmm, folder):
    path = pathlib.Path(folder) / "fit.nc"
    hmm.posterior_.save(path)
    again = rh.Posterior.load(path)
    np.testing.assert_array_equal(again.phi, hmm.posterior_.phi)
    np.testing.assert_array_equal(again.transition, hmm.posterior_.transition)
    assert again.verdict == hmm.posterior_.verdict


def finite(name, values):
    values = np.asarray(values, dtype=float)
    assert np.isfinite(values).all(), f"{name} is not finite: {values[~np.isfinite(values)][:3]}"


def check_laws(name, probabilities):
    finite(name, probabilities)
    assert ((probabilities >= 0) & (probabilities <= 1 + 1e-9)).all(), name
    np.testing.assert_allclose(probabilities.sum(-1), 1, atol=1e-8, err_msg=name)
