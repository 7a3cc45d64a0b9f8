"""RareHMM: the library in one object, for people who know scikit-learn and hmmlearn."""

import logging
import time
import warnings
from collections.abc import Mapping
from copy import copy
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import NotFittedError

from rarehmm.common.arrays import Array, IntArray
from rarehmm.common.checks import check_memory, check_whole
from rarehmm.common.progress import OnProgress, progress_line, silent
from rarehmm.data.pieces import pieces
from rarehmm.data.series import Series
from rarehmm.data.summaries import Summary
from rarehmm.emissions import families
from rarehmm.emissions.product import Product
from rarehmm.engine.contracts.family import Family, columns
from rarehmm.exact.passes import decode
from rarehmm.model.model import Model
from rarehmm.model.named_priors import default_priors
from rarehmm.model.parameters import Parameters, Priors
from rarehmm.model.simulation import simulate
from rarehmm.posterior.events import Events
from rarehmm.posterior.posterior import Posterior
from rarehmm.posterior.prediction import Forecast, Ready, Stream, forecast, log_score, update
from rarehmm.posterior.predictive_checks import LONG, check_predictive
from rarehmm.posterior.residuals import Fit, check_residuals, has_residuals, pseudo_residuals
from rarehmm.posterior.streaming import (
    Stretches,
    check_out,
    collected,
    last_distribution,
    stretches_of_probabilities,
    written,
)
from rarehmm.sampling.rule import infer
from rarehmm.search.labels import from_labels
from rarehmm.search.regimes import Regime, judge_states

logger = logging.getLogger(__name__)


class RareHMM(BaseEstimator):
    """A Bayesian hidden Markov model of a long series whose interesting regime is rare.

    Parameters
    ----------
    n_components : int, default 3
        Number of hidden states: two regimes of ordinary life and a rare one.  ``select_n_components`` compares numbers.
    emission : str, family or list of these, default "gaussian"
        Density of an observation given its state: the name of a family or an instance, such as ``StudentT(4)`` or
        ``NegativeBinomial(3)`` (what is in brackets is not learnt).  Real numbers: "gaussian", "student_t",
        "free_student_t" (its tails are learnt), "gaussian_mixture"; positive ones: "exponential", "gamma",
        "log_normal"; counts: "poisson", "negative_binomial", "free_negative_binomial" (its dispersion is learnt),
        "zero_inflated_poisson"; 0 and 1: "bernoulli"; categories 0 to n - 1: "categorical", with n by the largest,
        or ``Categorical(n)``; angles: "von_mises"; several columns: "multivariate_gaussian", which "gaussian" is as
        well there, with full covariance.  A list has one for each column, independent given the state:
        ``["gaussian", "categorical"]``, the same as ``Product(Gaussian(), Categorical(n))``.
    method : str, default "auto"
        How the posterior is sampled.  "auto" looks at the posterior and takes the quickest method that is right for it;
        "chain", "importance", "gibbs", "hmc" and "langevin" force one; "laplace" and "vi" draw from a Gaussian, that at
        the mode or the closest; "map" is the mode alone, without uncertainty; "tass" and "sgld" are the paper's
        sampler, with targeted windows and with windows by chance, to compare with (without ``fixed``).  Gibbs sampling
        is for Gaussian, log-normal, Poisson and exponential families.
    n_draws : int, default 1000
        Effective draws of every parameter: errors of means are then 3 % of a standard deviation.
    priors : Priors, default None
        None: scaled from the data, worth a handful of observations.
    startprob : array (K,), default None
        Law of the first state of each sequence; None: the stationary law, right for a series that goes on as before.
    fixed : dict, default None
        What is known, by the names of parameters and "transition", None where it is not: ``{"mean": [0, None, None],
        "transition": [[None, None, 0], [None, None, None], [None, None, None]]}``.  A transition of 0 never happens; a
        row with other known values must be known as a whole.  States keep the places that this gives them.
    init : Parameters, labels (T,) or RareHMM, default None
        Where to start: None finds states in the data.
    rare_share : float, default 0.05
        Share of the observations below which a state may be called rare: what takes more of the time is no event.
    n_average : int, default 20
        Draws of the posterior over which predictions are averaged; 0: predictions use its mean, which takes one pass.
    n_jobs : int, default None
        Threads; None or -1: one for each core.
    memory_limit : int or str, default "1GB"
        Memory that a fit may use, roughly, beside the data: of a series that would need more, drawn blocks stand for
        the rest, with an error that is measured.  A ``Series`` has a limit of its own.
    random_state : int or Generator, default 0
        Seed: the same data give the same answer.  None: another one each time.
    verbose : int, default 1
        1: a line shows the progress of ``fit`` on a terminal (nothing in files, pipes and tests); 0: nothing.

    Attributes
    ----------
    posterior_ : Posterior
        All draws, with ``summary()``, ``to_arviz()``, ``save()`` and the verdict.
    means_, covars_, transmat_, startprob_
        Posterior means: of the first parameter (D of them in several columns), of variances or covariances (where the
        family has them), of the transition matrix (rows sum to one), of the stationary law or the start that was given.
    regimes_ : list of Regime
        What each state is: common, rare, tail, outlier, ...
    rare_states_ : array
        States that the data hold up as rare regimes.
    n_features_in_ : int

    Examples
    --------
    >>> import numpy as np
    >>> from rarehmm import RareHMM
    >>> rng = np.random.default_rng(0)
    >>> y = rng.normal(size=20_000)
    >>> y[5_000:5_020] += 8
    >>> y[15_000:15_030] += 8
    >>> hmm = RareHMM(n_components=2).fit(y)
    >>> hmm.rare_states_
    array([1])
    >>> hmm.rare_events(y)[["start", "end", "duration"]]
       start    end  duration
    0   5000   5019        20
    1  15000  15029        30
    """

    def __init__(
        self,
        n_components: int = 3,
        *,
        emission: str | Family | list[Any] = "gaussian",
        method: str = "auto",
        n_draws: int = 1000,
        priors: Priors | None = None,
        startprob: npt.ArrayLike | None = None,
        fixed: Mapping[str, npt.ArrayLike] | None = None,
        init: Any = None,
        rare_share: float = 0.05,
        n_average: int = 20,
        n_jobs: int | None = None,
        memory_limit: int | str = "1GB",
        random_state: Any = 0,
        verbose: int = 1,
    ) -> None:
        self.n_components = n_components
        self.emission = emission
        self.method = method
        self.n_draws = n_draws
        self.priors = priors
        self.startprob = startprob
        self.fixed = fixed
        self.init = init
        self.rare_share = rare_share
        self.n_average = n_average
        self.n_jobs = n_jobs
        self.memory_limit = memory_limit
        self.random_state = random_state
        self.verbose = verbose

    def __sklearn_clone__(self) -> "RareHMM":
        """An unfitted copy; another fit to start from stays fitted."""
        settings = self.get_params(deep=False)
        init = settings.pop("init")
        copy = type(self)(**{name: clone(value, safe=False) for name, value in settings.items()})
        copy.init = init
        return copy

    # ------------------------------------------------------------ fitting
    def fit(self, X: Any, y: Any = None, lengths: Any = None, *, client: Any = None, executor: Any = None) -> "RareHMM":
        """Find the states and sample the posterior; ``y`` is ignored.

        ``X``: whatever ``Series`` takes: (T,), (T, D), pandas, xarray, a list of sequences; and, never read as a whole,
        a memory map, an array of Dask or Zarr, paths of files; ``lengths`` of the sequences in one array.  With the
        ``client`` of a Dask cluster, or an ``executor``, its workers go over the data and run the chains.
        """
        began = time.perf_counter()
        if not 0 < self.rare_share <= 1:
            raise ValueError(f"rare_share is {self.rare_share!r}; it must lie between 0 and 1.")
        check_whole("n_draws", self.n_draws)
        check_whole("n_average", self.n_average, 0)
        if client is not None and executor is not None:
            raise ValueError("both client and executor are given; one of them does the work.")
        with progress_line(bool(self.verbose)) as on_progress:
            series = as_series(
                X,
                lengths,
                memory_limit=self.memory_limit,
                executor=client or executor,
                on_progress=partial(on_progress, "reading"),
            )
            refuse_lengths(y, series)
            family = self._family(series)
            priors = default_priors(family, self.n_components, series) if self.priors is None else self.priors
            start = None if self.startprob is None else np.asarray(self.startprob, dtype=float)
            model = Model(family, self.n_components, priors, start, fixed=self.fixed)
            found = infer(
                generator(self.random_state), model, series, start=self._first(model, series), wanted=self.n_draws,
                method=self.method, threads=self._threads, on_progress=on_progress,
            )  # fmt: skip
            self.posterior_ = Posterior.of(found)
            point = found.mode.model.unpack(found.mode.theta)
            with series.reporting(partial(on_progress, "what the states are")):
                self.regimes_ = judge_states(
                    found.mode.model, point, series, rare_share=self.rare_share, threads=self._threads
                )
        self.n_features_in_ = series.n_columns
        if series.names is not None:
            self.feature_names_in_ = np.array(series.names, dtype=object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_
        logger.info(
            "%s in %.1f s by %s. %s", series, time.perf_counter() - began, self.posterior_.method, self.verdict_
        )
        return self

    @classmethod
    def of(cls, posterior: Posterior, regimes: list[Regime]) -> "RareHMM":
        """A fitted estimator out of a posterior that was kept, and of what its states were."""
        model = posterior.model
        self = cls(model.n_states, emission=model.family, priors=model.priors, startprob=model.start, fixed=model.fixed)
        self.posterior_, self.regimes_, self.n_features_in_ = posterior, regimes, columns(model.family)
        return self

    def _family(self, series: Series) -> Any:
        given = self.emission
        if isinstance(given, list):
            return side_by_side(given, series)
        if given in ("gaussian", "multivariate_gaussian") and series.n_columns > 1:
            return families()["multivariate_gaussian"](series.n_columns)
        if isinstance(given, str):
            return by_name("gaussian" if given == "multivariate_gaussian" else given, series.summaries[0])
        check_labels(given, series)
        return given

    def _first(self, model: Model, series: Series) -> Parameters | None:
        if self.init is None:
            return None
        if isinstance(self.init, Parameters | RareHMM):
            given = self.init._fitted().mean if isinstance(self.init, RareHMM) else self.init
            return model.natural(given.phi, given.transition)
        return from_labels(model, series, np.asarray(self.init))

    def _fitted(self) -> Posterior:
        if not hasattr(self, "posterior_"):
            raise NotFittedError("This RareHMM is not fitted yet; call fit first.")
        found: Posterior = self.posterior_
        return found

    # ------------------------------------------------------------ what was found
    @property
    def verdict_(self) -> str:
        """The word on the posterior: whether it is to be trusted."""
        return self._fitted().verdict

    @property
    def rare_states_(self) -> IntArray:
        self._fitted()
        return np.array([r.state for r in self.regimes_ if r.kind == "rare"], dtype=np.int64)

    @property
    def transmat_(self) -> Array:
        return self._fitted().mean.transition

    @property
    def startprob_(self) -> Array:
        return self._fitted().mean.start

    @property
    def means_(self) -> Array:
        """(K, D), as in hmmlearn: the first parameter of each column."""
        posterior = self._fitted()
        return posterior.mean.phi[:, getattr(posterior.model.family, "levels", slice(self.n_features_in_))]

    @property
    def covars_(self) -> Array:
        """(K, 1) variances in one column, (K, D, D) covariances in several."""
        posterior = self._fitted()
        family: Any = posterior.model.family
        if hasattr(family, "moments"):
            return np.asarray(family.moments(posterior.phi)[1].mean((0, 1)))
        names = [p.name for p in family.parameters]
        if "variance" not in names:
            raise AttributeError(f"{posterior.model.name} has no variances; it has {', '.join(names)}.")
        return posterior.mean.phi[:, [names.index("variance")]]

    def summary(self, probability: float = 0.9) -> Any:
        """The table of ``posterior_.summary``."""
        return self._fitted().summary(probability)

    # ------------------------------------------------------------ prediction
    def _points(self) -> list[Parameters]:
        posterior = self._fitted()
        return posterior.points(self.n_average) if self.n_average else [posterior.mean]

    def _series(self, X: Any, lengths: Any) -> Series:
        posterior, series = self._fitted(), as_series(X, lengths)
        posterior.model.check(series)
        names = getattr(self, "feature_names_in_", None)
        if names is not None and series.names is not None and list(names) != list(series.names):
            raise ValueError(f"the columns are {list(series.names)}; the fit was to {list(names)}, in this order.")
        return series

    @property
    def _threads(self) -> int | None:
        return None if self.n_jobs == -1 else self.n_jobs

    def predict_proba(self, X: Any, lengths: Any = None, *, out: Any = None) -> Any:
        """Probabilities (T, K) of the states given the whole series.

        ``out``: the name of a file .npy or a folder .zarr for those of a series longer than memory.  They are computed
        a stretch at a time, written in single precision, and returned as a memory map or an array of Zarr, read-only.
        """
        return self._probabilities(self._series(X, lengths), out, causal=False)

    def filter_proba(self, X: Any, lengths: Any = None, *, out: Any = None) -> Any:
        """Probabilities (T, K) of the states given the past and the present: the future cannot change them.

        ``out`` as in ``predict_proba``.
        """
        return self._probabilities(self._series(X, lengths), out, causal=True)

    def stream_proba(
        self, X: Any, lengths: Any = None, *, causal: bool = False, on_progress: OnProgress = silent
    ) -> Stretches:
        """The same probabilities of a series of any length, a stretch at a time: (first, last, probabilities of the
        rows [first, last)).  ``watch`` is told how far it is."""
        model, series = self._fitted().model, self._series(X, lengths)
        return stretches_of_probabilities(
            model, self._points(), series, causal=causal, threads=self._threads, on_progress=on_progress
        )

    def _probabilities(self, series: Series, out: Any, causal: bool) -> Any:
        shape = len(series), self._fitted().model.n_states
        path = None if out is None else check_out(out)
        if path is None:
            message = (
                "write them to a file, out='probabilities.npy', or take them a stretch at a time, stream_proba(X)."
            )
            check_memory(f"probabilities {shape}", 8 * shape[0] * shape[1], message)
        with progress_line(bool(self.verbose)) as on_progress:
            stretches = self.stream_proba(series, causal=causal, on_progress=on_progress)
            return collected(stretches, shape) if path is None else written(stretches, shape, path)

    def decode(self, X: Any, lengths: Any = None) -> tuple[float, IntArray]:
        """The log probability of the most probable path of states and the path (T,), at the posterior mean; in this
        order, as in hmmlearn."""
        posterior, series = self._fitted(), self._series(X, lengths)
        K = posterior.model.n_states
        message = (
            "predict_proba(X, out='probabilities.npy') takes any length, and argmax(1) of its rows names the states."
        )
        check_memory(f"the path of {len(series)} states", len(series) * (K + 8), message)
        path, value = decode(posterior.model, posterior.mean, series)
        return value, path

    def predict(self, X: Any, lengths: Any = None) -> IntArray:
        """The most probable path of states (T,)."""
        return self.decode(X, lengths)[1]

    def score(self, X: Any, y: Any = None, lengths: Any = None) -> float:
        """Log density of the series, averaged over the posterior; ``y`` is ignored."""
        series = self._series(X, lengths)
        refuse_lengths(y, series)
        return log_score(self._fitted().model, self._points(), series, threads=self._threads)

    def sample(self, n_samples: int = 1, random_state: Any = None) -> tuple[Array, IntArray]:
        """Observations (n, D) and their states (n,), from a draw of the posterior; its mean if ``n_average`` is 0."""
        posterior, points = self._fitted(), self._points()
        rng = generator(self.random_state if random_state is None else random_state)
        y, states = simulate(rng, posterior.model, points[rng.integers(len(points))], n_samples)
        return y.reshape(n_samples, -1), states

    def rare_events(
        self,
        X: Any,
        lengths: Any = None,
        *,
        states: npt.ArrayLike | None = None,
        threshold: float = 0.5,
        gap: int = 2,
        shortest: int = 1,
        causal: bool = False,
    ) -> Any:
        """A pandas DataFrame of the stretches in which a rare state is probable, in the index of the data.

        ``states``: those that count as rare, by default ``rare_states_``.  ``threshold``: of their probability
        together; .5 makes as few errors as can be, observation by observation.  Events closer than ``gap`` observations
        are one; those shorter than ``shortest`` are left out.  ``causal``: with what was known at the time.

        >>> import numpy as np
        >>> import pandas as pd
        >>> y = pd.Series(np.random.default_rng(0).normal(size=2000))
        >>> y.index = pd.date_range("2026-01-01", periods=2000, freq="min")
        >>> y[700:705] += 9
        >>> y[706:710] += 9
        >>> RareHMM(2, method="map").fit(y).rare_events(y)[["start", "duration", "state"]]
                        start  duration  state
        0 2026-01-01 11:40:00        10      1
        """
        series = self._series(X, lengths)
        rare = self._rare(states)
        if len(rare) == 0:
            warnings.warn(
                "no state is called rare (see regimes_), so that there are no events; name states: states=[...], or "
                "fit with a larger rare_share.",
                UserWarning,
                stacklevel=2,
            )
        centre = self.ordinary_level(rare)
        found = Events(series, rare, threshold=threshold, gap=gap, shortest=shortest, centre=centre)
        with progress_line(bool(self.verbose)) as on_progress:
            for first, _, probabilities in self.stream_proba(series, causal=causal, on_progress=on_progress):
                found.add(first, probabilities)
        return found.table()

    def ordinary_level(self, rare: IntArray) -> float:
        """Mean of the first parameter, the level in most families, over the states that are not rare."""
        posterior = self._fitted()
        weight = posterior.occupancy.mean((0, 1)) * ~np.isin(np.arange(posterior.model.n_states), rare)
        weight = weight if weight.sum() > 0 else np.ones(len(weight))
        return float(np.average(posterior.mean.phi[:, 0], weights=weight))

    def _rare(self, states: npt.ArrayLike | None) -> IntArray:
        rare = self.rare_states_ if states is None else np.atleast_1d(np.asarray(states))
        K = self._fitted().model.n_states
        if rare.dtype.kind not in "iu" or ((rare < 0) | (rare >= K)).any():
            raise ValueError(f"states is {states!r}; numbers of states, 0 to {K - 1}, are needed.")
        return np.unique(rare).astype(np.int64)

    def forecast(
        self, X: Any, horizon: int = 10, lengths: Any = None, *, states: npt.ArrayLike | None = None, size: int = 1000
    ) -> Forecast:
        """What comes after the last observation of ``X``: states, the probability of a rare one within 1, ..., horizon
        steps with an interval, and ``size`` simulated continuations.

        >>> import numpy as np
        >>> y = np.random.default_rng(0).normal(size=2000)
        >>> y[::100] += 9
        >>> ahead = RareHMM(2, n_draws=200).fit(y).forecast(y, horizon=100)
        >>> bool(ahead.low[-1] < ahead.event[-1] < ahead.high[-1])
        True
        >>> round(float(ahead.event[0]), 2)
        0.01
        """
        series, points = self._series(X, lengths), self._points()
        model = self._fitted().model
        last = [last_distribution(model, point, series, threads=self._threads) for point in points]
        rng = generator(self.random_state)
        return forecast(rng, model, points, np.array(last), horizon, self._rare(states), size=size)

    def update(self, stream: Stream | None, y_new: npt.ArrayLike) -> Stream:
        """Where a stream stands after one more observation; None: it begins here.  ``stream.probability`` is that of
        ``filter_proba``, ``stream.to_dict()`` plain data to keep.

        >>> import numpy as np
        >>> y = np.random.default_rng(0).normal(size=2000)
        >>> y[700:710] += 9
        >>> hmm, stream = RareHMM(2, method="map").fit(y), None
        >>> for value in (0.3, -1.1, 9.2):
        ...     stream = hmm.update(stream, value)
        >>> stream.seen, stream.probability.round(2)
        (3, array([0., 1.]))
        """
        posterior, kept = self._fitted(), getattr(self, "_ready", None)
        if kept is None or kept[:2] != (posterior, self.n_average):  # once, not for each observation
            self._ready = kept = posterior, self.n_average, Ready.of(posterior.model, self._points())
        return update(kept[2], stream or Stream(), y_new)

    def check(self, X: Any, lengths: Any = None) -> Fit:
        """Is the model wrong for this series?  Print it for the answer in words; ``checks`` has the numbers.

        Pseudo-residuals at the posterior mean, of one column, and posterior predictive checks, of 50 series simulated
        from draws of the posterior (``rarehmm.posterior``: ``residuals``, ``predictive_checks``).  Of more than a
        million observations, as many are looked at, in evenly spaced pieces.

        >>> import numpy as np
        >>> y = np.random.default_rng(0).normal(size=2000)
        >>> print(RareHMM(1, method="map").fit(y).check(y))
        The model fits the series.
        >>> print(RareHMM(1, method="map").fit(np.cumsum(y)).check(np.cumsum(y)))  # doctest: +ELLIPSIS
        The model does not fit the series: correlated residuals 0.9...
        """
        posterior, whole = self._fitted(), self._series(X, lengths)
        series = pieces(whole, LONG)
        rng = generator(self.random_state)
        checks = []
        if has_residuals(posterior.model.family):
            found = pseudo_residuals(rng, posterior.model, posterior.mean, series, threads=self._threads)
            for i, column in enumerate(np.atleast_2d(found.T)):
                where = f" of column {i}" if found.ndim > 1 else ""
                checks += [c._replace(name=c.name + where) for c in check_residuals(column, series.bounds)]
        checks += check_predictive(rng, posterior.model, posterior.points(50), series)
        seen = f"{len(series):,} of {len(whole):,} observations, in evenly spaced pieces, were looked at."
        return Fit(checks, "" if len(series) == len(whole) else seen)

    # ------------------------------------------------------------ scikit-learn
    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags


def as_series(X: Any, lengths: Any = None, *, executor: Any = None, **more: Any) -> Series:
    """Data at the door."""
    if not isinstance(X, Series):
        return Series(X, lengths, executor=executor, **more)
    if lengths is not None:
        raise ValueError("X is a Series, which knows its sequences already; leave lengths out.")
    series: Series = X if executor is None else copy(X)
    series.executor = executor or series.executor
    return series


def by_name(name: str, column: Summary) -> Any:
    """A family by its name, suited to the column."""
    known = families()
    if name not in known:
        raise ValueError(f"emission is {name!r}; it must be one of {', '.join(known)}, or a family.")
    kind = known[name]
    return kind.suited((column,)) if hasattr(kind, "suited") else kind()


def side_by_side(given: list[Any], series: Series) -> Product:
    """A family for each column, by its name or as it is; parameters have the names of the columns."""
    if len(given) != series.n_columns:
        raise ValueError(
            f"emission has {len(given)} families and X {series.n_columns} columns; name one for each, or use Product "
            "for families of several columns: Product(MultivariateGaussian(2), Poisson())."
        )
    made = [by_name(one, s) if isinstance(one, str) else one for one, s in zip(given, series.summaries, strict=True)]
    for one, family in zip(given, made, strict=True):
        if columns(family) != 1:
            raise ValueError(
                f"emission has {one!r}, which reads {columns(family)} columns; in a list each reads one. Use Product: "
                "Product(MultivariateGaussian(2), Poisson())."
            )
    return Product(*zip(series.names or [None] * len(made), made, strict=True))


def check_labels(family: Any, series: Series) -> None:
    """Refuse a Product with the name of one column at the place of another."""
    if not isinstance(family, Product) or series.names is None:
        return
    for label, place in zip(family.given, family.places, strict=True):
        at = place.columns[0]
        if label in series.names and at < len(series.names) and series.names[at] != label:
            raise ValueError(
                f"{label!r} of emission stands for column {at}, and that is {series.names[at]!r} in X; bring the "
                "columns into the order of the families."
            )


def generator(random_state: Any) -> np.random.Generator:
    """NumPy's new generator from a seed, a generator of either kind, or nothing."""
    if isinstance(random_state, np.random.RandomState):
        return np.random.default_rng(random_state.randint(2**31))
    return np.random.default_rng(random_state)


def refuse_lengths(y: Any, series: Series) -> None:
    """The second place is scikit-learn's y, which is ignored; in hmmlearn it is that of lengths."""
    if y is not None and np.ndim(y) == 1 and len(y) < len(series) and np.sum(y) == len(series):
        raise ValueError("the second argument looks like lengths of sequences; pass them by name: lengths=...")
