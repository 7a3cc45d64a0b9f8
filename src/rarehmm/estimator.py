"""RareHMM: the whole library as one estimator, with the conventions of scikit-learn and hmmlearn."""

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
from rarehmm.data.series import Series
from rarehmm.data.summaries import Summary
from rarehmm.emissions import families
from rarehmm.emissions.product import Product
from rarehmm.engine.contracts.family import Family, columns, has
from rarehmm.exact.passes import decode
from rarehmm.model.model import Model
from rarehmm.model.named_priors import default_priors
from rarehmm.model.parameters import Parameters, Priors
from rarehmm.model.simulation import simulate
from rarehmm.posterior.events import Events
from rarehmm.posterior.model_check import NOT_WANTED, ModelCheck, check_model
from rarehmm.posterior.posterior import Posterior
from rarehmm.posterior.prediction import Forecast, Stream, StreamParameters, forecast, log_score, update
from rarehmm.posterior.streaming import (
    Stretches,
    check_out,
    collect,
    last_distribution,
    stretches_of_probabilities,
    write_stretches,
)
from rarehmm.posterior.verdict import about_model, about_posterior
from rarehmm.sampling.rule import infer
from rarehmm.search.labels import from_labels
from rarehmm.search.regimes import Regime, judge_states

logger = logging.getLogger(__name__)


class RareHMM(BaseEstimator):
    """Bayesian hidden Markov model for long series whose interesting regime is rare.

    Parameters
    ----------
    n_components : int, default 3
        Number of hidden states: by default two ordinary regimes and a rare one.  ``select_n_components`` compares
        different numbers.
    emission : str, family or list of these, default "gaussian"
        Distribution of an observation given its state: the name of a family, or an instance such as ``StudentT(4)`` or
        ``NegativeBinomial(3)``, whose arguments are held fixed.  For real numbers: "gaussian", "student_t",
        "free_student_t" (with estimated degrees of freedom), "gaussian_mixture"; for positive numbers: "exponential",
        "gamma", "log_normal"; for counts: "poisson", "negative_binomial", "free_negative_binomial" (with estimated
        dispersion), "zero_inflated_poisson"; for 0 and 1: "bernoulli"; for categories 0 to n - 1: "categorical", with n
        taken from the data, or ``Categorical(n)``; for angles: "von_mises"; for several columns:
        "multivariate_gaussian" with full covariances, which is also what "gaussian" means there.  A list has one family
        per column, independent given the state: ``["gaussian", "categorical"]`` is
        ``Product(Gaussian(), Categorical(n))``.
    method : str, sampler or PaperSampler, default "auto"
        How to sample the posterior.  "auto" picks the fastest method that is accurate for the posterior at hand;
        "chain", "importance", "gibbs", "hmc" and "langevin" select one; "laplace" and "vi" draw from a Gaussian
        approximation, at the mode or variational; "map" computes the posterior mode only, without uncertainty.
        "baoab", "leimkuhler_matthews", "preconditioned", "sghmc" and "underdamped" are "chain" with this integrator, as
        is an instance of any sampler, such as ``Sgld(0.2)``.  "tass" and "sgld" are the paper's sampler with targeted
        and with uniform windows, for comparison (without ``fixed``); ``PaperSampler`` has its settings.
        Gibbs sampling is available for the Gaussian, multivariate Gaussian, log-normal, Poisson and exponential
        families, and for products of these.
    n_draws : int, default 1000
        Effective sample size to reach for every parameter; with 1000, the Monte Carlo error of a posterior mean is 3 %
        of its posterior standard deviation.
    priors : Priors, default None
        None: weakly informative priors, scaled to the data and worth a handful of observations.
    startprob : array-like of shape (K,), default None
        Distribution of the first state of each sequence; None: the stationary distribution, which suits a series that
        was under way before it was observed.
    fixed : dict, default None
        Known values, by parameter name and "transition", with None for unknown entries: ``{"mean": [0, None, None],
        "transition": [[None, None, 0], [None, None, None], [None, None, None]]}``.  A transition probability of 0 is
        forbidden; a row with other known values must be given in full.  States keep the order of these values.
    init : Parameters, labels of shape (T,) or RareHMM, default None
        Initial values of the search for the mode; None: they are found from the data.
    rare_share : float, default 0.05
        Largest share of the observations that a state may have to be called rare.
    n_average : int, default 20
        Number of posterior draws over which predictions are averaged; 0: predict from the posterior mean, in one pass.
    check_model : bool, default True
        Whether ``fit`` ends by asking if the model fits the series (``model_check_``), which takes a second or two at
        most.  The draws are the same either way.
    n_jobs : int, default None
        Number of threads; None or -1: one per core.
    memory_limit : int or str, default "1GB"
        Approximate memory that a fit may use in addition to the data.  A series that would need more is represented by
        a random sample of blocks, and the resulting error is measured.  A ``Series`` has its own limit.
    random_state : int or Generator, default 0
        Seed: the same data give the same result.  None: a different result each time.
    verbose : int, default 1
        1: show a progress bar on a terminal or in a notebook; 0: show nothing.

    Attributes
    ----------
    posterior_ : Posterior
        The draws, with ``summary()``, ``to_arviz()``, ``save()`` and the verdict of the checks.
    verdict_ : str
        Two answers.  Is this the posterior of the model?  "Posterior: all checks passed.", or "Posterior: do not trust
        these results: ..." with the reasons.  Is this a model of the series?  "Model: fits the series.", "Model: does
        not fit the series, ..." with the reasons, or "Model: not checked: ...".
    verdicts_ : tuple of str
        The two answers separately.
    model_check_ : ModelCheck
        The checks behind the second answer, as ``check`` returns them; those behind the first are
        ``posterior_.checks``.
    means_ : ndarray, (K, D)
        Posterior means of the level of each column, as in hmmlearn.
    covars_ : ndarray, (K, 1) or (K, D, D)
        Posterior means of the variances or covariances, for families that have them.
    transmat_ : ndarray, (K, K)
        Posterior mean of the transition matrix; rows sum to one.
    startprob_ : ndarray, (K,)
        The distribution of the first state: ``startprob``, or the stationary distribution of ``transmat_``.
    regimes_ : list of Regime
        What each state represents: a common or rare regime, a tail, an outlier, ...
    rare_states_ : ndarray of int
        The states that the data support as rare regimes.
    n_features_in_ : int
        Number of columns of the data.
    feature_names_in_ : ndarray of str
        Names of the columns, if the data had names.

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
        method: Any = "auto",
        n_draws: int = 1000,
        priors: Priors | None = None,
        startprob: npt.ArrayLike | None = None,
        fixed: Mapping[str, npt.ArrayLike] | None = None,
        init: Any = None,
        rare_share: float = 0.05,
        n_average: int = 20,
        check_model: bool = True,
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
        self.check_model = check_model
        self.n_jobs = n_jobs
        self.memory_limit = memory_limit
        self.random_state = random_state
        self.verbose = verbose

    def __sklearn_clone__(self) -> "RareHMM":
        """Return an unfitted copy, whose ``init`` stays fitted if it is another RareHMM."""
        settings = self.get_params(deep=False)
        init = settings.pop("init")
        unfitted = type(self)(**{name: clone(value, safe=False) for name, value in settings.items()})
        unfitted.init = init
        return unfitted

    # ------------------------------------------------------------ fitting
    def fit(
        self,
        X: Any,
        y: Any = None,
        lengths: Any = None,
        *,
        regular: bool | str = True,
        client: Any = None,
        executor: Any = None,
    ) -> "RareHMM":
        """Find the states, sample the posterior, and check whether the model fits the series.

        Parameters
        ----------
        X : array-like, path or Series
            Anything that ``Series`` accepts: an array (T,) or (T, D), pandas, xarray, a list of sequences; and, never
            loaded as a whole, a memory map, a Dask or Zarr array, paths of files.
        y : ignored
            Present for compatibility with scikit-learn.
        lengths : sequence of int, optional
            Lengths of the sequences that are concatenated in ``X``.
        regular : bool or "fill"
            What is done about the times of rows, as in ``Series``: True refuses times that are not evenly spaced,
            "fill" puts missing rows back as gaps, False counts rows as they are.  Other methods then do likewise.
        client : dask.distributed.Client, optional
            Dask cluster whose workers read the data and run the chains.
        executor : optional
            Any executor with ``submit``, instead of ``client``.

        Returns
        -------
        RareHMM
            The fitted estimator itself.
        """
        started = time.perf_counter()
        if not 0 < self.rare_share <= 1:
            raise ValueError(f"rare_share is {self.rare_share!r}; it must lie between 0 and 1.")
        check_whole("n_draws", self.n_draws)
        check_whole("n_average", self.n_average, 0)
        if client is not None and executor is not None:
            raise ValueError("both client and executor are given; pass only one of them.")
        with progress_line(bool(self.verbose)) as on_progress:
            series = as_series(
                X,
                lengths,
                regular=regular,
                memory_limit=self.memory_limit,
                executor=client or executor,
                on_progress=partial(on_progress, "reading"),
            )
            refuse_lengths(y, series)
            family = self._family(series)
            priors = default_priors(family, self.n_components, series) if self.priors is None else self.priors
            start = None if self.startprob is None else np.asarray(self.startprob, dtype=float)
            model = Model(family, self.n_components, priors, start, fixed=self.fixed)
            result = infer(
                generator(self.random_state), model, series, start=self._initial(model, series), wanted=self.n_draws,
                method=self.method, threads=self._threads, on_progress=on_progress,
            )  # fmt: skip
            self.posterior_ = Posterior.of(result)
            mode = result.mode.model.unpack(result.mode.theta)
            with series.reporting(partial(on_progress, "classifying states")):
                self.regimes_ = judge_states(
                    result.mode.model, mode, series, rare_share=self.rare_share, threads=self._threads
                )
            self.model_check_ = (
                check_model(self.posterior_, series, threads=self._threads, on_progress=on_progress)
                if self.check_model
                else NOT_WANTED
            )
        self._given_init, self._regular = self.init is not None, regular
        self.n_features_in_ = series.n_columns
        if series.names is not None:
            self.feature_names_in_ = np.array(series.names, dtype=object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_
        logger.info(
            "%s in %.1f s by %s. %s", series, time.perf_counter() - started, self.posterior_.method, self.verdict_
        )
        return self

    @classmethod
    def of(cls, posterior: Posterior, regimes: list[Regime]) -> "RareHMM":
        """Create a fitted estimator from a saved posterior and the regimes of its states.

        Parameters
        ----------
        posterior : Posterior
            The posterior, such as ``Posterior.load(path)`` returns.
        regimes : list of Regime
            One per state, such as ``regimes_`` of the original fit.

        Returns
        -------
        RareHMM
        """
        model = posterior.model
        self = cls(model.n_states, emission=model.family, priors=model.priors, startprob=model.start, fixed=model.fixed)
        self.posterior_, self.regimes_, self.n_features_in_ = posterior, regimes, columns(model.family)
        self.model_check_ = ModelCheck([], not_checked="this is a saved posterior without its series; use check(X)")
        self._given_init = False
        return self

    def _family(self, series: Series) -> Any:
        emission = self.emission
        if isinstance(emission, list):
            return family_per_column(emission, series)
        if emission in ("gaussian", "multivariate_gaussian") and series.n_columns > 1:
            return families()["multivariate_gaussian"](series.n_columns)
        if isinstance(emission, str):
            return family_by_name("gaussian" if emission == "multivariate_gaussian" else emission, series.summaries[0])
        check_labels(emission, series)
        return emission

    def _initial(self, model: Model, series: Series) -> Parameters | None:
        if self.init is None:
            return None
        if isinstance(self.init, Parameters | RareHMM):
            start = self.init._fitted().mean if isinstance(self.init, RareHMM) else self.init
            return model.natural(start.phi, start.transition, start.coefficients)
        return from_labels(model, series, np.asarray(self.init))

    def _fitted(self) -> Posterior:
        if not hasattr(self, "posterior_"):
            raise NotFittedError("This RareHMM is not fitted yet; call fit first.")
        posterior: Posterior = self.posterior_
        return posterior

    # ------------------------------------------------------------ fitted attributes
    @property
    def verdict_(self) -> str:
        """Whether this is the posterior of the model, and whether this is a model of the series: a sentence on each."""
        return " ".join(self.verdicts_)

    @property
    def verdicts_(self) -> tuple[str, str]:
        """The two sentences of ``verdict_``: on the posterior, and on the model."""
        return about_posterior(self._fitted(), self._given_init), about_model(self.model_check_)

    @property
    def rare_states_(self) -> IntArray:
        """The states that the data support as rare regimes."""
        self._fitted()
        return np.array([r.state for r in self.regimes_ if r.kind == "rare"], dtype=np.int64)

    @property
    def transmat_(self) -> Array:
        """Posterior mean of the transition matrix, (K, K); rows sum to one."""
        return self._fitted().mean.transition

    @property
    def startprob_(self) -> Array:
        """Distribution of the first state, (K,): ``startprob``, or the stationary distribution of ``transmat_``."""
        return self._fitted().mean.start

    @property
    def means_(self) -> Array:
        """Posterior means of the level of each column (its first parameter), (K, D), as in hmmlearn."""
        posterior = self._fitted()
        family: Any = posterior.model.family
        return posterior.mean.phi[:, family.levels if has(family, "levels") else slice(self.n_features_in_)]

    @property
    def covars_(self) -> Array:
        """Posterior means of the variances, (K, 1), or for several columns of the covariances, (K, D, D)."""
        posterior = self._fitted()
        family: Any = posterior.model.family
        if has(family, "moments"):
            return np.asarray(family.moments(posterior.phi)[1].mean((0, 1)))
        names = [p.name for p in family.parameters]
        if "variance" not in names:
            raise AttributeError(f"{posterior.model.name} has no variances; it has {', '.join(names)}.")
        return posterior.mean.phi[:, [names.index("variance")]]

    def summary(self, probability: float = 0.9) -> Any:
        """Summarise the posterior in a table.

        Parameters
        ----------
        probability : float
            Probability of the central intervals.

        Returns
        -------
        pandas.DataFrame
            A row per quantity: mean, standard deviation, interval, effective sample size and R-hat.
        """
        return self._fitted().summary(probability)

    # ------------------------------------------------------------ prediction
    def _points(self) -> list[Parameters]:
        posterior = self._fitted()
        return posterior.points(self.n_average) if self.n_average else [posterior.mean]

    def _series(self, X: Any, lengths: Any) -> Series:
        posterior, series = self._fitted(), as_series(X, lengths, regular=getattr(self, "_regular", True))
        posterior.model.check(series)
        names = getattr(self, "feature_names_in_", None)
        if names is not None and series.names is not None and list(names) != list(series.names):
            raise ValueError(
                f"X has columns {list(series.names)}; the model was fitted to {list(names)}, in this order."
            )
        return series

    @property
    def _threads(self) -> int | None:
        return None if self.n_jobs == -1 else self.n_jobs

    def predict_proba(self, X: Any, lengths: Any = None, *, out: Any = None) -> Any:
        """Return the smoothed state probabilities: those given the whole series.

        Parameters
        ----------
        X : array-like, path or Series
            The observations, as in ``fit``.
        lengths : sequence of int, optional
            Lengths of the sequences in ``X``.
        out : str or Path, optional
            Name of a .npy file or .zarr folder to write to, for a series longer than memory.

        Returns
        -------
        ndarray, (T, K)
            With ``out``, a read-only memory map or Zarr array in single precision, computed one stretch at a time.
        """
        return self._probabilities(self._series(X, lengths), out, causal=False)

    def filter_proba(self, X: Any, lengths: Any = None, *, out: Any = None) -> Any:
        """Return the filtered state probabilities: those given past and present, which later data cannot change.

        Parameters
        ----------
        X : array-like, path or Series
            The observations, as in ``fit``.
        lengths : sequence of int, optional
            Lengths of the sequences in ``X``.
        out : str or Path, optional
            Name of a .npy file or .zarr folder to write to, as in ``predict_proba``.

        Returns
        -------
        ndarray, (T, K)
            With ``out``, a read-only memory map or Zarr array in single precision.
        """
        return self._probabilities(self._series(X, lengths), out, causal=True)

    def stream_proba(
        self, X: Any, lengths: Any = None, *, causal: bool = False, on_progress: OnProgress = silent
    ) -> Stretches:
        """Iterate over the state probabilities of a series of any length, one stretch at a time.

        Parameters
        ----------
        X : array-like, path or Series
            The observations, as in ``fit``.
        lengths : sequence of int, optional
            Lengths of the sequences in ``X``.
        causal : bool
            False: smoothed, as in ``predict_proba``; True: filtered, as in ``filter_proba``.
        on_progress : callable
            Called as ``on_progress(stage, done, total)``.

        Yields
        ------
        first, last : int
            A stretch of rows [first, last).
        probabilities : ndarray, (last - first, K)
        """
        model, series = self._fitted().model, self._series(X, lengths)
        return stretches_of_probabilities(
            model, self._points(), series, causal=causal, threads=self._threads, on_progress=on_progress
        )

    def _probabilities(self, series: Series, out: Any, causal: bool) -> Any:
        shape = len(series), self._fitted().model.n_states
        path = None if out is None else check_out(out)
        if path is None:
            way_out = (
                "write them to a file with out='probabilities.npy', or iterate over stretches with stream_proba(X)."
            )
            check_memory(f"probabilities {shape}", 8 * shape[0] * shape[1], way_out)
        with progress_line(bool(self.verbose)) as on_progress:
            stretches = self.stream_proba(series, causal=causal, on_progress=on_progress)
            return collect(stretches, shape) if path is None else write_stretches(stretches, shape, path)

    def decode(self, X: Any, lengths: Any = None) -> tuple[float, IntArray]:
        """Find the most probable state path at the posterior mean, by the Viterbi algorithm.

        Parameters
        ----------
        X : array-like, path or Series
            The observations, as in ``fit``.
        lengths : sequence of int, optional
            Lengths of the sequences in ``X``.

        Returns
        -------
        log_probability : float
            Joint log density of the path and the observations.
        path : ndarray of int, (T,)
            The states.  In this order, as in hmmlearn.
        """
        posterior, series = self._fitted(), self._series(X, lengths)
        K = posterior.model.n_states
        way_out = "predict_proba(X, out='probabilities.npy') works for any length; take argmax(1) of its rows."
        check_memory(f"the path of {len(series)} states", len(series) * (K + 8), way_out)
        path, value = decode(posterior.model, posterior.mean, series)
        return value, path

    def predict(self, X: Any, lengths: Any = None) -> IntArray:
        """Return the most probable state path at the posterior mean, by the Viterbi algorithm.

        Parameters
        ----------
        X : array-like, path or Series
            The observations, as in ``fit``.
        lengths : sequence of int, optional
            Lengths of the sequences in ``X``.

        Returns
        -------
        ndarray of int, (T,)
        """
        return self.decode(X, lengths)[1]

    def score(self, X: Any, y: Any = None, lengths: Any = None) -> float:
        """Return the log predictive density of a series, averaged over the posterior.

        Parameters
        ----------
        X : array-like, path or Series
            The observations, as in ``fit``.
        y : ignored
            Present for compatibility with scikit-learn.
        lengths : sequence of int, optional
            Lengths of the sequences in ``X``.

        Returns
        -------
        float
        """
        series = self._series(X, lengths)
        refuse_lengths(y, series)
        return log_score(self._fitted().model, self._points(), series, threads=self._threads)

    def sample(self, n_samples: int = 1, random_state: Any = None) -> tuple[Array, IntArray]:
        """Simulate a series from one random draw of the posterior, or from its mean if ``n_average`` is 0.

        Parameters
        ----------
        n_samples : int
            Length of the series.
        random_state : int or Generator, optional
            Seed; by default that of the estimator.

        Returns
        -------
        X : ndarray, (n_samples, D)
            The observations.
        states : ndarray of int, (n_samples,)
        """
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
        """List the stretches in which a rare state is probable.

        Parameters
        ----------
        X : array-like, path or Series
            The observations, as in ``fit``.
        lengths : sequence of int, optional
            Lengths of the sequences in ``X``.
        states : array-like of int, optional
            The states that count as rare; by default ``rare_states_``.
        threshold : float
            Total probability of the rare states at which an event starts; 0.5 minimises the expected number of
            misclassified observations.
        gap : int
            Events fewer than this many observations apart are merged.
        shortest : int
            Shortest event that is kept, in observations.
        causal : bool
            Use filtered probabilities: only what was known at the time.

        Returns
        -------
        pandas.DataFrame
            A row per event.  ``start``, ``end`` and ``peak_at`` are labels of the index of the data, or row numbers;
            ``duration`` counts observations; ``peak`` is the most extreme observation of the first column; ``state``
            is the most probable rare state; ``probability`` the mean probability of the rare states; ``sequence`` the
            number of the sequence.

        Examples
        --------
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
                "no state is classified as rare (see regimes_), so there are no events; choose states with "
                "states=[...], or fit with a larger rare_share.",
                UserWarning,
                stacklevel=2,
            )
        centre = self.ordinary_level(rare)
        events = Events(series, rare, threshold=threshold, gap=gap, shortest=shortest, centre=centre)
        with progress_line(bool(self.verbose)) as on_progress:
            for first, _, probabilities in self.stream_proba(series, causal=causal, on_progress=on_progress):
                events.add(first, probabilities)
        return events.table()

    def ordinary_level(self, rare: IntArray) -> float:
        """Return the mean level (first parameter) of the states that are not rare, weighted by occupancy.

        Parameters
        ----------
        rare : ndarray of int
            The states to leave out.

        Returns
        -------
        float
        """
        posterior = self._fitted()
        weight = posterior.occupancy.mean((0, 1)) * ~np.isin(np.arange(posterior.model.n_states), rare)
        weight = weight if weight.sum() > 0 else np.ones(len(weight))
        return float(np.average(posterior.mean.phi[:, 0], weights=weight))

    def _rare(self, states: npt.ArrayLike | None) -> IntArray:
        rare = self.rare_states_ if states is None else np.atleast_1d(np.asarray(states))
        K = self._fitted().model.n_states
        if rare.dtype.kind not in "iu" or ((rare < 0) | (rare >= K)).any():
            raise ValueError(f"states is {states!r}; it must hold state numbers from 0 to {K - 1}.")
        return np.unique(rare).astype(np.int64)

    def forecast(
        self, X: Any, horizon: int = 10, lengths: Any = None, *, states: npt.ArrayLike | None = None, size: int = 1000
    ) -> Forecast:
        """Forecast the states and the observations that follow the last observation of ``X``.

        Parameters
        ----------
        X : array-like, path or Series
            The observations so far, as in ``fit``.
        horizon : int
            Number of steps ahead.
        lengths : sequence of int, optional
            Lengths of the sequences in ``X``; the last one is continued.
        states : array-like of int, optional
            The states that count as rare; by default ``rare_states_``.
        size : int
            Number of simulated continuations.

        Returns
        -------
        Forecast
            State probabilities, the probability of a rare state within 1, ..., ``horizon`` steps with a 90 % interval,
            and simulated observations.

        Examples
        --------
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
        """Update the filtered state probabilities of a stream with one more observation.

        Parameters
        ----------
        stream : Stream or None
            What the previous call returned; None starts a new stream.
        y_new : float or array-like of shape (D,)
            The observation; NaN where missing.

        Returns
        -------
        Stream
            Its ``probability`` equals the last row of ``filter_proba``; ``to_dict()`` returns plain data to store.

        Examples
        --------
        >>> import numpy as np
        >>> y = np.random.default_rng(0).normal(size=2000)
        >>> y[700:710] += 9
        >>> hmm, stream = RareHMM(2, method="map").fit(y), None
        >>> for value in (0.3, -1.1, 9.2):
        ...     stream = hmm.update(stream, value)
        >>> stream.seen, stream.probability.round(2)
        (3, array([0., 1.]))
        """
        posterior, cached = self._fitted(), getattr(self, "_prepared", None)
        if cached is None or cached[:2] != (posterior, self.n_average):  # once, not for each observation
            self._prepared = cached = posterior, self.n_average, StreamParameters.of(posterior.model, self._points())
        return update(cached[2], stream or Stream(), y_new)

    def check(self, X: Any, lengths: Any = None) -> ModelCheck:
        """Check whether the model fits a series; ``fit`` does this for its own series (``model_check_``).

        Combines checks of the pseudo-residuals at the posterior mean with posterior predictive checks on 50 series
        simulated from the posterior.  Of a series of more than 200,000 values, evenly spaced pieces with 200,000 values
        in total are checked.  The same series always gets the same answer.

        Parameters
        ----------
        X : array-like, path or Series
            The observations, as in ``fit``.
        lengths : sequence of int, optional
            Lengths of the sequences in ``X``.

        Returns
        -------
        ModelCheck
            Print it for a summary; ``passed`` and ``checks`` have the details.

        Examples
        --------
        >>> import numpy as np
        >>> y = np.random.default_rng(0).normal(size=2000)
        >>> print(RareHMM(1, method="map").fit(y).check(y))
        The model fits the series.
        >>> print(RareHMM(1, method="map").fit(np.cumsum(y)).check(np.cumsum(y)))  # doctest: +ELLIPSIS
        The model does not fit the series: residual autocorrelation 0.9...
        """
        return check_model(self._fitted(), self._series(X, lengths), threads=self._threads)

    # ------------------------------------------------------------ scikit-learn
    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags


def as_series(X: Any, lengths: Any = None, *, executor: Any = None, **more: Any) -> Series:
    """Coerce the input to a Series."""
    if not isinstance(X, Series):
        return Series(X, lengths, executor=executor, **more)
    if lengths is not None:
        raise ValueError("X is a Series, which already has its own sequences; omit lengths.")
    series: Series = X if executor is None else copy(X)
    series.executor = executor or series.executor
    return series


def family_by_name(name: str, column: Summary) -> Any:
    """Return the family of a name, with settings suited to the column."""
    known = families()
    if name not in known:
        raise ValueError(f"emission is {name!r}; it must be one of {', '.join(known)}, or a family.")
    kind = known[name]
    return kind.suited((column,)) if has(kind, "suited") else kind()


def family_per_column(emission: list[Any], series: Series) -> Product:
    """Return the product of one family per column, whose parameters carry the column names."""
    if len(emission) != series.n_columns:
        raise ValueError(
            f"emission has {len(emission)} families and X has {series.n_columns} columns; give one per column, or use "
            "Product for families of several columns: Product(MultivariateGaussian(2), Poisson())."
        )
    parts = [
        family_by_name(part, column) if isinstance(part, str) else part
        for part, column in zip(emission, series.summaries, strict=True)
    ]
    for part, family in zip(emission, parts, strict=True):
        if columns(family) != 1:
            raise ValueError(
                f"emission has {part!r}, which takes {columns(family)} columns; families in a list take one each. Use "
                "Product: Product(MultivariateGaussian(2), Poisson())."
            )
    return Product(*zip(series.names or [None] * len(parts), parts, strict=True))


def check_labels(family: Any, series: Series) -> None:
    """Raise ValueError if a Product names its columns in a different order from the data."""
    if not isinstance(family, Product) or series.names is None:
        return
    for label, place in zip(family.given, family.places, strict=True):
        at = place.columns[0]
        if label in series.names and at < len(series.names) and series.names[at] != label:
            raise ValueError(
                f"emission has {label!r} for column {at}, which is {series.names[at]!r} in X; put the columns in the "
                "order of the families."
            )


def generator(random_state: Any) -> np.random.Generator:
    """Return a NumPy Generator from a seed, a Generator, a RandomState or None."""
    if isinstance(random_state, np.random.RandomState):
        return np.random.default_rng(random_state.randint(2**31))
    return np.random.default_rng(random_state)


def refuse_lengths(y: Any, series: Series) -> None:
    """Raise ValueError if ``y`` looks like lengths: the second argument is ``y`` here, but ``lengths`` in hmmlearn."""
    if y is not None and np.ndim(y) == 1 and len(y) < len(series) and np.sum(y) == len(series):
        raise ValueError("the second argument looks like the lengths of sequences; pass them by name: lengths=...")
