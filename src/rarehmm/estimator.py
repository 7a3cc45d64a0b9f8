"""RareHMM: the whole library as one estimator, with the conventions of scikit-learn and hmmlearn."""

import logging
import pathlib
import time
import warnings
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from html import escape
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import NotFittedError

from rarehmm.choosing.remedy import with_remedy
from rarehmm.choosing.suggest import AUTO, suggest
from rarehmm.common.arrays import Array, IntArray
from rarehmm.common.checks import check_memory, check_whole, threads_of
from rarehmm.common.progress import OnProgress, progress_line, silent
from rarehmm.data.clocks import is_time
from rarehmm.data.new_rows import joined_inputs
from rarehmm.data.series import Series
from rarehmm.data.sources.checks import said
from rarehmm.engine.contracts.family import Family, columns, has
from rarehmm.exact.passes import decode, log_likelihood
from rarehmm.model.learnable import constant_columns
from rarehmm.model.model import Model
from rarehmm.model.parameters import Parameters, Priors
from rarehmm.model.simulation import simulate
from rarehmm.posterior.event_evidence import with_enough, with_evidence
from rarehmm.posterior.event_threshold import Candidates, Choice, chosen, criterion_of, expected_scores
from rarehmm.posterior.events import Events
from rarehmm.posterior.forecasting import forecast_after
from rarehmm.posterior.model_check import NOT_WANTED, ModelCheck, check_model
from rarehmm.posterior.posterior import MODE_ONLY, Posterior
from rarehmm.posterior.prediction import Forecast, Stream, StreamParameters, log_score, update
from rarehmm.posterior.regime_streams import RegimeFilter, RegimeStream
from rarehmm.posterior.saved_fit import SavedFit, plain_settings
from rarehmm.posterior.streaming import (
    Stretches,
    check_out,
    collect,
    stretches_of_probabilities,
    write_stretches,
)
from rarehmm.posterior.verdict import ONE_MODE, about_model, about_posterior
from rarehmm.sampling.rule import infer
from rarehmm.search.labels import from_labels
from rarehmm.search.regimes import Regime, closest_to_rare, judge_states
from rarehmm.specification.given import as_series, refuse_inputs, refuse_lengths, refuse_unused, split_inputs
from rarehmm.specification.models import Specification
from rarehmm.specification.restored import exog_names_of, inputs_of, settings_of

logger = logging.getLogger(__name__)


class RareHMM(BaseEstimator):
    """Bayesian hidden Markov model for long series whose interesting regime is rare.

    Parameters
    ----------
    n_components : int, default 3
        Number of hidden states: by default two ordinary regimes and a rare one.  ``select_n_components`` compares
        different numbers.  "auto", here and in ``emission``, ``ar``, ``season`` and ``trend``: chosen by the held-out
        density of the series, as ``suggest`` does (``suggestion_``).
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
    ar : int or autoregression, default None
        Number of lags of autocorrelated noise around the level of each state, ``AroundLevel(p)``, or for families
        without such a level, such as counts, of a regression with an intercept for each state, ``Intercept(p)``; or one
        of these, or ``Hamilton(p)``.  None or 0: observations are independent given the states.
    season : str, number, Season or list of these, default None
        Periods of seasons: a length of time such as "1D" or "7D", for which the data need a time index, or a number of
        steps.  ``Season(period, order)`` has the number of harmonics, by default 8 for the first season and 4 for each
        other one.
    trend : "linear", int or Trend, default None
        A linear trend, or a spline with so many knots between the ends of the series.
    switching : bool, str or list, default False
        What has an effect of its own in each state: True for season, trend and all columns of ``exog``, or names of
        these: "season", "trend", a period, a column; and "ar" for lags.  By default all states share these effects:
        there is little to learn them from in a rare state.
    scale : str, term or list, default None
        On what the spread of the observations (counts have none) depends: "season", "trend", periods or names of
        columns.  Effects are on the log scale.
    transitions : str, term, list or transition, default None
        On what the transition probabilities depend, besides the columns of ``exog_transition``: "season", "trend",
        periods or names of columns; or an object such as ``Regression(inputs)``, or a transition of your own.
    durations : int or list of int, default None
        Shortest visits to each state, or to all of them, in steps: a state has so many phases, and the lengths of its
        visits have a negative binomial distribution.  With a list, states keep its order, and the data decide which
        state is which.  None: visits have geometric lengths.
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
        Share of the observations up to which a state that the data support as a regime is called rare.  It may have up
        to one and a half times as many, the more support the more.
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
    suggestion_ : Suggestion
        What was chosen and why, if a setting is "auto".
    means_ : ndarray, (K, D)
        Posterior means of the level of each column, as in hmmlearn.
    covars_ : ndarray, (K, 1) or (K, D, D)
        Posterior means of the variances or covariances, for families that have them.
    transmat_ : ndarray, (K, K)
        Posterior mean of the transition matrix; rows sum to one.
    startprob_ : ndarray, (K,)
        The distribution of the first state: ``startprob``, or the stationary distribution of ``transmat_``.
    regimes_ : list of Regime
        What each state represents: a common or rare regime, a tail, an outlier, ..., with the evidence: its ``support``
        as a regime of its own from 0 to 1, and the strongest ``rival``.
    rare_states_ : ndarray of int
        The states that the data support as rare regimes.
    n_features_in_ : int
        Number of columns of the data.
    feature_names_in_ : ndarray of str
        Names of the columns, if the data had names.
    exog_names_in_ : ndarray of str
        Names of the columns of ``exog`` and ``exog_transition``; without names, x0, x1, ... and z0, z1, ...

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

    A server metric with a daily season, autocorrelated noise and a column that explains part of it:

    >>> import pandas as pd
    >>> minutes = pd.date_range("2026-01-01", periods=1000, freq="15min")
    >>> temp = pd.DataFrame({"temp": 20 + rng.normal(size=1000)}, minutes)
    >>> day = 3 * np.sin(2 * np.pi * np.arange(1000) / 96)
    >>> y = pd.Series(day + 0.5 * temp["temp"].to_numpy() + rng.normal(size=1000), minutes)
    >>> y.iloc[400:420] += 8
    >>> from rarehmm import Season
    >>> hmm = RareHMM(2, ar=1, season=Season("1D", order=1), method="map").fit(y, exog=temp)
    >>> hmm.summary().loc[["coefficient[temp]", "coefficient[sin(1D) 1]"], "mean"].round(1).tolist()
    [0.5, 3.1]
    >>> hmm.rare_events(y, exog=temp)[["start", "duration"]]
                    start  duration
    0 2026-01-05 04:00:00        20
    """

    def __init__(
        self,
        n_components: int | str = 3,
        *,
        emission: str | Family | list[Any] = "gaussian",
        ar: Any = None,
        season: Any = None,
        trend: Any = None,
        switching: Any = False,
        scale: Any = None,
        transitions: Any = None,
        durations: Any = None,
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
        self.ar = ar
        self.season = season
        self.trend = trend
        self.switching = switching
        self.scale = scale
        self.transitions = transitions
        self.durations = durations
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
        exog: Any = None,
        exog_transition: Any = None,
        states: Any = None,
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
        exog : array-like, path or list, optional
            Input columns (T, m) of the observations, in any of the forms of ``X``: every value is needed.
        exog_transition : array-like, path or list, optional
            Input columns on which transition probabilities depend; the step into a row uses those of that row.
        states : array-like, optional
            Known states (T,): whole numbers from 0, and -1 or NaN where the state is unknown.
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
        refuse_inputs(y)
        with progress_line(bool(self.verbose)) as on_progress:
            series = as_series(
                X,
                lengths,
                exog=exog,
                exog_transition=exog_transition,
                states=states,
                regular=regular,
                memory_limit=self.memory_limit,
                executor=client or executor,
                on_progress=partial(on_progress, "reading"),
            )
            refuse_lengths(y, series)
            model = self._settled(series, on_progress).model(series)
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
        self._notes = [*([ONE_MODE] if self.init is not None else []), *constant_columns(series)]
        self._regular = regular
        self.n_features_in_ = series.n_columns
        if series.names is not None:
            self.feature_names_in_ = np.array(series.names, dtype=object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_
        self.exog_names_in_ = np.array(series.exog_names, dtype=object)
        logger.info(
            "%s in %.1f s by %s. %s", series, time.perf_counter() - started, self.posterior_.method, self.verdict_
        )
        return self

    @classmethod
    def of(cls, posterior: Posterior, regimes: list[Regime], regular: bool | str = True) -> "RareHMM":
        """Create a fitted estimator from a saved posterior and the regimes of its states.

        Parameters
        ----------
        posterior : Posterior
            The posterior, such as ``Posterior.load(path)`` returns.
        regimes : list of Regime
            One per state, such as ``regimes_`` of the original fit.
        regular : bool or "fill"
            What is done about the times of rows, as in ``fit``.

        Returns
        -------
        RareHMM
        """
        model = posterior.model
        self = cls(
            model.n_states, emission=model.family, priors=model.priors, startprob=model.start, fixed=model.fixed,
            **settings_of(model),
        )  # fmt: skip
        self.posterior_, self.regimes_, self.n_features_in_ = posterior, regimes, columns(model.family)
        self._notes, self._regular = [], regular
        self.exog_names_in_ = np.array(exog_names_of(model), dtype=object)
        self.model_check_ = ModelCheck([], not_checked="this is a saved posterior without its series; use check(X)")
        return self

    def save(self, path: str | pathlib.Path) -> None:
        """Save a fit to a netCDF file, which ArviZ can open too.

        The file has the draws, the checks, the regimes, names of columns and the settings.  Settings that are objects
        are those of the model; an instance of a sampler as ``method`` and ``init`` are not saved.

        Parameters
        ----------
        path : str or Path
            The file; it appears only once it is complete, and replaces one of the same name.

        Examples
        --------
        >>> import tempfile, pathlib
        >>> y = np.random.default_rng(0).normal(size=2000)
        >>> y[700:800] += 9
        >>> hmm = RareHMM(2, method="map").fit(y)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     hmm.save(pathlib.Path(folder) / "fit.nc")
        ...     loaded = RareHMM.load(pathlib.Path(folder) / "fit.nc")
        >>> loaded
        RareHMM(method='map', n_components=2)
        >>> bool((loaded.predict_proba(y) == hmm.predict_proba(y)).all())
        True
        """
        posterior, names = self._fitted(), getattr(self, "feature_names_in_", None)
        settings = {name: value for name, value in self.get_params(deep=False).items() if name != "init"}
        fit = SavedFit(
            self.regimes_, self.model_check_, plain_settings(settings), None if names is None else list(names),
            list(self.exog_names_in_), self._notes, self._regular,
        )  # fmt: skip
        posterior.save_with(path, fit.to_dict())

    @classmethod
    def load(cls, path: str | pathlib.Path, emission: Any = None, transitions: Any = None) -> "RareHMM":
        """Load a fit that was saved with ``save``, or that of a run (its posterior.nc); nothing in it is executed.

        Parameters
        ----------
        path : str or Path
            The file.
        emission : optional
            The emission family, if it is not one of rarehmm's.
        transitions : optional
            How states follow each other, if that is not one of rarehmm's.

        Returns
        -------
        RareHMM
            A fitted estimator.

        Raises
        ------
        FileNotFoundError
            If there is no such file.
        ValueError
            If the file is damaged, was not written by ``save``, or is from a later version of rarehmm.
        """
        posterior, saved = Posterior.load_with(path, emission, transitions)
        if saved is None:
            raise ValueError(f"{path} has a posterior alone; load it with Posterior.load, and fit again for the rest.")
        fit = SavedFit.from_dict(saved, posterior.model.n_states, path)
        self = cls.of(posterior, fit.regimes)
        try:
            self.set_params(**fit.settings)
        except ValueError as error:
            raise ValueError(f"{path} is damaged ({said(error)}); fit again.") from None
        self.model_check_, self._notes, self._regular = fit.model_check, fit.notes, fit.regular
        self.exog_names_in_ = np.array(fit.exog_names, dtype=object)
        if fit.names is not None:
            self.feature_names_in_ = np.array(fit.names, dtype=object)
        return self

    @property
    def _specification(self) -> Specification:
        return Specification(
            self.n_components, self.emission, self.ar, self.season, self.trend, self.switching, self.scale,
            self.transitions, self.durations, self.priors, self.startprob, self.fixed,
        )  # fmt: skip

    def _settled(self, series: Series, on_progress: OnProgress) -> Specification:
        """Return the specification, with what is "auto" replaced by what suits the series."""
        given, open_settings = self._specification, is_auto(self)
        if not open_settings:
            return given
        self.suggestion_ = suggest(
            series, n_components=self.n_components, emission=self.emission, ar=self.ar, season=self.season,
            trend=self.trend, n_jobs=self.n_jobs, on_progress=on_progress,
        )  # fmt: skip
        chosen = {name: self.suggestion_.settings[name] for name in open_settings}
        if "n_components" in chosen:
            chosen["n_states"] = chosen.pop("n_components")
        return replace(given, **chosen)

    def _initial(self, model: Model, series: Series) -> Parameters | None:
        if self.init is None:
            return None
        if isinstance(self.init, Parameters | RareHMM):
            start = self.init._fitted().mean if isinstance(self.init, RareHMM) else self.init
            same = start.coefficients.size == model.every_effect.size
            return model.natural(start.phi, start.transition, start.coefficients if same else None)
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
        return about_posterior(self._fitted(), self._notes), about_model(self.model_check_)

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

    def _series(
        self, X: Any, lengths: Any, exog: Any = None, exog_transition: Any = None, states: Any = None
    ) -> Series:
        posterior = self._fitted()
        if len(self.exog_names_in_) == 0:
            refuse_unused(exog, exog_transition)
        series = as_series(
            X, lengths, exog=exog, exog_transition=exog_transition, states=states, regular=self._regular
        )  # fmt: skip
        posterior.model.check(series)
        names = getattr(self, "feature_names_in_", None)
        if names is not None and series.names is not None and list(names) != list(series.names):
            raise ValueError(
                f"X has columns {list(series.names)}; the model was fitted to {list(names)}, in this order."
            )
        return series

    @property
    def _threads(self) -> int | None:
        return threads_of(self.n_jobs)

    def predict_proba(
        self,
        X: Any,
        lengths: Any = None,
        *,
        exog: Any = None,
        exog_transition: Any = None,
        states: Any = None,
        out: Any = None,
        as_frame: bool = False,
    ) -> Any:
        """Return the smoothed state probabilities: those given the whole series.

        Parameters
        ----------
        X : array-like, path or Series
            The observations, as in ``fit``.
        lengths : sequence of int, optional
            Lengths of the sequences in ``X``.
        exog, exog_transition, states : optional
            Inputs and known states of these observations, as in ``fit``.
        out : str or Path, optional
            Name of a .npy file or .zarr folder to write to, for a series longer than memory.
        as_frame : bool
            Return a table with the index of ``X`` and the columns state_0, state_1, ...

        Returns
        -------
        ndarray, (T, K), or pandas.DataFrame
            If ``X`` is a list of sequences, a list of these.  With ``out``, a read-only memory map or Zarr array of all
            rows in single precision, computed one stretch at a time.
        """
        series = self._series(X, lengths, exog, exog_transition, states)
        return self._probabilities(series, out, as_frame, causal=False)

    def filter_proba(
        self,
        X: Any,
        lengths: Any = None,
        *,
        exog: Any = None,
        exog_transition: Any = None,
        states: Any = None,
        out: Any = None,
        as_frame: bool = False,
    ) -> Any:
        """Return the filtered state probabilities: those given past and present, which later data cannot change.

        Parameters
        ----------
        X : array-like, path or Series
            The observations, as in ``fit``.
        lengths : sequence of int, optional
            Lengths of the sequences in ``X``.
        exog, exog_transition, states : optional
            Inputs and known states of these observations, as in ``fit``.
        out : str or Path, optional
            Name of a .npy file or .zarr folder to write to, as in ``predict_proba``.
        as_frame : bool
            Return a table with the index of ``X`` and the columns state_0, state_1, ...

        Returns
        -------
        ndarray, (T, K), or pandas.DataFrame
            In the form of ``predict_proba``.
        """
        series = self._series(X, lengths, exog, exog_transition, states)
        return self._probabilities(series, out, as_frame, causal=True)

    def stream_proba(
        self,
        X: Any,
        lengths: Any = None,
        *,
        exog: Any = None,
        exog_transition: Any = None,
        states: Any = None,
        causal: bool = False,
        on_progress: OnProgress = silent,
    ) -> Stretches:
        """Iterate over the state probabilities of a series of any length, one stretch at a time.

        Parameters
        ----------
        X : array-like, path or Series
            The observations, as in ``fit``.
        lengths : sequence of int, optional
            Lengths of the sequences in ``X``.
        exog, exog_transition, states : optional
            Inputs and known states of these observations, as in ``fit``.
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
        model, series = self._fitted().model, self._series(X, lengths, exog, exog_transition, states)
        return stretches_of_probabilities(
            model, self._points(), series, causal=causal, threads=self._threads, on_progress=on_progress
        )

    def _probabilities(self, series: Series, out: Any, as_frame: bool, causal: bool) -> Any:
        if out is not None and as_frame:
            raise ValueError(f"out is {str(out)!r} and as_frame is True; a file holds an array. Pass only one of them.")
        shape = len(series), self._fitted().model.n_states
        path = None if out is None else check_out(out)
        if path is None:
            way_out = (
                "write them to a file with out='probabilities.npy', or iterate over stretches with stream_proba(X)."
            )
            check_memory(f"probabilities {shape}", 8 * shape[0] * shape[1], way_out)
        with progress_line(bool(self.verbose)) as on_progress:
            stretches = self.stream_proba(series, causal=causal, on_progress=on_progress)
            if path is not None:
                return write_stretches(stretches, shape, path)
            names = [f"state_{k}" for k in range(shape[1])] if as_frame else None
            return series.by_part(collect(stretches, shape), names)

    def decode(
        self, X: Any, lengths: Any = None, *, exog: Any = None, exog_transition: Any = None, states: Any = None
    ) -> tuple[float, Any]:
        """Find the most probable state path at the posterior mean, by the Viterbi algorithm.

        Parameters
        ----------
        X : array-like, path or Series
            The observations, as in ``fit``.
        lengths : sequence of int, optional
            Lengths of the sequences in ``X``.
        exog, exog_transition, states : optional
            Inputs and known states of these observations, as in ``fit``.

        Returns
        -------
        log_probability : float
            Joint log density of the path and the observations.
        path : ndarray of int, (T,)
            The states; if ``X`` is a list of sequences, a list of these.  In this order, as in hmmlearn.
        """
        posterior, series = self._fitted(), self._series(X, lengths, exog, exog_transition, states)
        K = posterior.model.n_states
        way_out = "predict_proba(X, out='probabilities.npy') works for any length; take argmax(1) of its rows."
        check_memory(f"the path of {len(series)} states", len(series) * (K + 8), way_out)
        path, value = decode(posterior.model, posterior.mean, series)
        return value, series.by_part(path)

    def predict(
        self, X: Any, lengths: Any = None, *, exog: Any = None, exog_transition: Any = None, states: Any = None
    ) -> Any:
        """Return the most probable state path at the posterior mean, by the Viterbi algorithm.

        Parameters
        ----------
        X : array-like, path or Series
            The observations, as in ``fit``.
        lengths : sequence of int, optional
            Lengths of the sequences in ``X``.
        exog, exog_transition, states : optional
            Inputs and known states of these observations, as in ``fit``.

        Returns
        -------
        ndarray of int, (T,)
            If ``X`` is a list of sequences, a list of these.
        """
        return self.decode(X, lengths, exog=exog, exog_transition=exog_transition, states=states)[1]

    def fit_predict(self, X: Any, y: Any = None, lengths: Any = None, **more: Any) -> Any:
        """Fit, and return the most probable state path of the same series.

        Parameters
        ----------
        X : array-like, path or Series
            The observations, as in ``fit``.
        y : ignored
            Present for compatibility with scikit-learn.
        lengths : sequence of int, optional
            Lengths of the sequences in ``X``.
        **more
            Further arguments of ``fit``.

        Returns
        -------
        ndarray of int, (T,)
            As ``predict`` returns it.
        """
        self.fit(X, y, lengths, **more)
        given = {name: more.get(name) for name in ("exog", "exog_transition", "states")}
        return self.predict(X, lengths, **given)

    def score(
        self,
        X: Any,
        y: Any = None,
        lengths: Any = None,
        *,
        exog: Any = None,
        exog_transition: Any = None,
        states: Any = None,
    ) -> float:
        """Return the log predictive density of a series, averaged over the posterior.

        Parameters
        ----------
        X : array-like, path or Series
            The observations, as in ``fit``.
        y : ignored
            Present for compatibility with scikit-learn.
        lengths : sequence of int, optional
            Lengths of the sequences in ``X``.
        exog, exog_transition, states : optional
            Inputs and known states of these observations, as in ``fit``.

        Returns
        -------
        float
        """
        refuse_inputs(y)
        series = self._series(X, lengths, exog, exog_transition, states)
        refuse_lengths(y, series)
        return log_score(self._fitted().model, self._points(), series, threads=self._threads)

    def score_samples(
        self, X: Any, lengths: Any = None, *, exog: Any = None, exog_transition: Any = None, states: Any = None
    ) -> tuple[float, Any]:
        """Return the log predictive density of a series and its smoothed state probabilities, as in hmmlearn.

        Parameters
        ----------
        X : array-like, path or Series
            The observations, as in ``fit``.
        lengths : sequence of int, optional
            Lengths of the sequences in ``X``.
        exog, exog_transition, states : optional
            Inputs and known states of these observations, as in ``fit``.

        Returns
        -------
        log_density : float
            As ``score`` returns it.
        probabilities : ndarray, (T, K)
            As ``predict_proba`` returns them.
        """
        series = self._series(X, lengths, exog, exog_transition, states)
        return self.score(series), self.predict_proba(series)

    def aic(
        self, X: Any, lengths: Any = None, *, exog: Any = None, exog_transition: Any = None, states: Any = None
    ) -> float:
        """Return the Akaike information criterion of a series at the posterior mean; smaller is better.

        Held-out densities, which ``select_n_components`` and ``suggest`` compare, need fewer assumptions.

        Parameters
        ----------
        X : array-like, path or Series
            The observations, as in ``fit``.
        lengths : sequence of int, optional
            Lengths of the sequences in ``X``.
        exog, exog_transition, states : optional
            Inputs and known states of these observations, as in ``fit``.

        Returns
        -------
        float
            Minus twice the log likelihood plus 2 for each free parameter.
        """
        return self._criterion(self._series(X, lengths, exog, exog_transition, states), 2.0)

    def bic(
        self, X: Any, lengths: Any = None, *, exog: Any = None, exog_transition: Any = None, states: Any = None
    ) -> float:
        """Return the Bayesian information criterion of a series at the posterior mean; smaller is better.

        Parameters
        ----------
        X : array-like, path or Series
            The observations, as in ``fit``.
        lengths : sequence of int, optional
            Lengths of the sequences in ``X``.
        exog, exog_transition, states : optional
            Inputs and known states of these observations, as in ``fit``.

        Returns
        -------
        float
            Minus twice the log likelihood plus the log of the number of observed rows for each free parameter.
        """
        series = self._series(X, lengths, exog, exog_transition, states)
        return self._criterion(series, float(np.log(len(series) - series.n_missing)))

    def _criterion(self, series: Series, price: float) -> float:
        """Return minus twice the log likelihood, plus a price of each free parameter."""
        posterior = self._fitted()
        value = log_likelihood(posterior.model, posterior.mean, series, threads=self._threads)
        return float(-2 * value + posterior.model.size * price)

    def sample(
        self,
        n_samples: int = 1,
        random_state: Any = None,
        *,
        index: Any = None,
        exog: Any = None,
        exog_transition: Any = None,
    ) -> tuple[Array, IntArray]:
        """Simulate a series from one random draw of the posterior, or from its mean if ``n_average`` is 0.

        Parameters
        ----------
        n_samples : int
            Length of the series.
        random_state : int or Generator, optional
            Seed; by default that of the estimator.
        index : pandas.DatetimeIndex, optional
            Times of the observations, which seasons and trends follow if the data had times.
        exog, exog_transition : optional
            Inputs of the observations, as in ``fit``.

        Returns
        -------
        X : ndarray, (n_samples, D)
            The observations.
        states : ndarray of int, (n_samples,)
        """
        posterior, points = self._fitted(), self._points()
        check_whole("n_samples", n_samples)
        rng = generator(self.random_state if random_state is None else random_state)
        size = self._rows_to_simulate(n_samples, index, exog, exog_transition)
        y, states = simulate(rng, posterior.model, points[rng.integers(len(points))], size)
        return y.reshape(n_samples, -1), states

    def _rows_to_simulate(self, n: int, index: Any, exog: Any, exog_transition: Any) -> int | Series:
        """Return n, or a series without observations that has times and inputs."""
        if len(self.exog_names_in_) == 0:
            refuse_unused(exog, exog_transition)
        parts = inputs_of(self._fitted().model)
        if not parts:
            return n
        if index is None and any(part.has_times and (part.seasons or part.trends) for part in parts):
            raise ValueError(
                "index is missing, and the model has a season or a trend that follows time; pass index=, a "
                f"pandas.DatetimeIndex of {n} times."
            )
        y: Any = np.zeros((n, self.n_features_in_))
        if index is not None:
            import pandas as pd

            y = pd.DataFrame(y, index)
        return Series(y, exog=exog, exog_transition=exog_transition).without_observations()

    def rare_events(
        self,
        X: Any,
        lengths: Any = None,
        *,
        exog: Any = None,
        exog_transition: Any = None,
        states: Any = None,
        rare_states: npt.ArrayLike | None = None,
        threshold: float | str = 0.5,
        gap: int = 2,
        shortest: int = 1,
        least_evidence: float | None = None,
        causal: bool = False,
    ) -> Any:
        """List the stretches in which a rare state is probable.

        Parameters
        ----------
        X : array-like, path or Series
            The observations, as in ``fit``.
        lengths : sequence of int, optional
            Lengths of the sequences in ``X``.
        exog, exog_transition, states : optional
            Inputs and known states of these observations, as in ``fit``.
        rare_states : array-like of int, optional
            The states that count as rare; by default ``rare_states_``.
        threshold : float or str
            Total probability of the rare states at which an event starts; 0.5 minimises the expected number of
            misclassified observations.  "f1": the one with the highest expected F1 by event; "precision=0.9": the one
            that finds most, of those with this expected share of real events; "cost=10": the one with the lowest
            expected cost, if a missed event costs ten times as much as a false one.  The expectations follow from the
            posterior, and from known states where there are any; ``attrs`` of the table has them.
        gap : int
            Events fewer than this many observations apart are merged.
        shortest : int
            Shortest event that is kept, in observations.
        least_evidence : float, optional
            Smallest ``evidence`` of an event that is kept.  In a series of T observations without any event, fewer than
            T exp(-least_evidence) are expected by chance, if the model without the rare states is right: log T leaves
            one at most.  By default, all events are kept.
        causal : bool
            Use filtered probabilities: only what was known at the time.

        Returns
        -------
        pandas.DataFrame
            A row per event.  ``start``, ``end`` and ``peak_at`` are labels of the index of the data, or row numbers;
            ``duration`` counts observations; ``peak`` is the most extreme observation of the first column; ``state``
            is the most probable rare state; ``probability`` the mean probability of the rare states; ``sequence`` the
            number of the sequence.  ``real`` is the probability that a rare state was visited during the event at all;
            ``evidence`` what the rare states add to the log density of its observations, and ``evidence[column]`` to
            that of each column alone; ``rank`` is 1 for the strongest; ``onset_low`` and ``onset_high`` are a 90 %
            interval of where it began.  ``attrs["expected_false_alarms"]`` is the expected number of events that are
            not real, and ``attrs["reason"]`` says why there is none.

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
        self._refuse_rare(states)
        series = self._series(X, lengths, exog, exog_transition, states)
        rare = self._rare(rare_states)
        if len(rare) == 0:
            warnings.warn(
                "no state is classified as rare (see regimes_), so there are no events. Closest: "
                f"{closest_to_rare(self.regimes_, self.rare_share)}.",
                UserWarning,
                stacklevel=2,
            )
        centre = self.ordinary_level(rare)
        level, choice = threshold, None
        if isinstance(threshold, str):
            choice = self._choice(threshold, series, rare, gap, shortest, causal)
            level = choice.threshold
        events = Events(series, rare, threshold=float(level), gap=gap, shortest=shortest, centre=centre)
        with progress_line(bool(self.verbose)) as on_progress:
            for first, _, probabilities in self.stream_proba(series, causal=causal, on_progress=on_progress):
                events.add(first, probabilities)
        found = self.with_evidence(events)
        if choice is not None:
            found.attrs.update({f"expected_{name}": getattr(choice, name) for name in ("precision", "recall", "f1")})
        return found if least_evidence is None else with_enough(found, least_evidence)

    def with_evidence(self, events: Events) -> Any:
        """Return the table of events with what speaks for each of them.

        Parameters
        ----------
        events : Events
            The events, collected from the probabilities of the states.

        Returns
        -------
        pandas.DataFrame
            As from ``rare_events``.
        """
        posterior = self._fitted()
        found = with_evidence(
            events.table(), np.random.default_rng(0), posterior.model.on(events.series), self._points(), posterior.mean,
            events.series, events.rare, events.rows,
        )  # fmt: skip
        if len(events.rare) > 0 and not events.rows:
            found.attrs["reason"] = events.reason()
        return found

    def _choice(self, threshold: str, series: Series, rare: IntArray, gap: int, shortest: int, causal: bool) -> Choice:
        """Return the threshold that has what is wanted of events, and what the posterior expects of them."""
        criterion, candidates = criterion_of(threshold), Candidates(rare)
        for first, _, probabilities in self.stream_proba(series.without_states(), causal=causal):
            candidates.add(first, probabilities)
        rng, model = np.random.default_rng(0), self._fitted().model.on(series)
        scores = expected_scores(rng, model, self._points(), series, candidates, gap=gap, shortest=shortest)
        if (found := chosen(criterion, scores)) is None:
            return Choice(0.5, 0.0, 0.0, 0, 0.0, 0.0)
        if criterion.name == "precision" and found.precision < criterion.value:
            warnings.warn(
                f"no threshold has an expected precision of {criterion.value:g}; the highest is "
                f"{found.precision:.2f}, at threshold={found.threshold:g}.",
                UserWarning,
                stacklevel=3,
            )
        return found

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

    def _refuse_rare(self, states: Any) -> None:
        """Raise ValueError if known states look like a choice of states that count as rare, as in version 0.1."""
        if states is not None and np.ndim(states) <= 1 and np.size(states) <= self._fitted().model.n_states:
            raise ValueError(
                f"states is {states!r}; it has the known states, one for each observation. Choose the states that "
                f"count as rare by rare_states={states!r}."
            )

    def _rare(self, rare_states: npt.ArrayLike | None) -> IntArray:
        rare = self.rare_states_ if rare_states is None else np.atleast_1d(np.asarray(rare_states))
        K = self._fitted().model.n_states
        if rare.dtype.kind not in "iu" or ((rare < 0) | (rare >= K)).any():
            raise ValueError(f"rare_states is {rare_states!r}; it must hold state numbers from 0 to {K - 1}.")
        return np.unique(rare).astype(np.int64)

    def forecast(
        self,
        X: Any,
        horizon: int = 10,
        lengths: Any = None,
        *,
        exog: Any = None,
        exog_transition: Any = None,
        states: Any = None,
        rare_states: npt.ArrayLike | None = None,
        size: int = 1000,
    ) -> Forecast:
        """Forecast the observations and the states that follow the last observation of ``X``.

        Parameters
        ----------
        X : array-like, path or Series
            The observations so far, as in ``fit``; the last of them may be missing.
        horizon : int
            Number of steps ahead.
        lengths : sequence of int, optional
            Lengths of the sequences in ``X``; the last one is continued.
        exog, exog_transition : optional
            Inputs of the rows of ``X``, as in ``fit``, and of the ``horizon`` rows to come.  If ``X`` is a Series with
            inputs: those of the rows to come.  Seasons and trends follow the index of ``X``.
        states : optional
            Known states of the rows of ``X``, as in ``fit``.
        rare_states : array-like of int, optional
            The states that count as rare; by default ``rare_states_``.
        size : int
            Number of simulated continuations; 0 if only states and events are of interest, which need inputs of
            transitions alone.

        Returns
        -------
        Forecast
            State probabilities, the probability of a rare state within 1, ..., ``horizon`` steps with a 90 % interval,
            and simulated observations, with their ``mean`` and ``interval()``; ``to_frame()`` is a table with dates.

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
        >>> ahead.to_frame().shape
        (100, 8)
        """
        self._refuse_rare(states)
        check_whole("horizon", horizon)
        past, future = split_inputs("exog", exog, X, horizon)
        past_transition, future_transition = split_inputs("exog_transition", exog_transition, X, horizon)
        series = self._series(X, lengths, past, past_transition, states)
        given = [one.index for one in (future, future_transition) if is_time(getattr(one, "index", None))]
        return forecast_after(
            generator(self.random_state), self._fitted().model, self._points(), series, horizon,
            self._rare(rare_states), exog=joined_inputs(future, future_transition, horizon),
            times=given[0] if given else None, size=size, threads=self._threads,
        )  # fmt: skip

    def update(
        self,
        stream: Stream | RegimeStream | None,
        y_new: npt.ArrayLike,
        *,
        exog: Any = None,
        exog_transition: Any = None,
        states: Any = None,
        times: Any = None,
    ) -> Stream | RegimeStream:
        """Update the filtered state probabilities of a stream with one more observation.

        Parameters
        ----------
        stream : Stream, RegimeStream or None
            What the previous call returned; None starts a new stream.  Where seasons and trends follow row numbers, it
            goes on after the rows that were fitted; ``RegimeStream()`` begins with row 0.
        y_new : float or array-like of shape (D,)
            The observation; NaN where missing.  Streams of models with lags, inputs or durations take several rows,
            (n,) or (n, D), too.
        exog, exog_transition : optional
            Its inputs: numbers in the order of the columns of ``fit``, or a table with their names.
        states : int, optional
            Its state, if it is known.
        times : Timestamp, optional
            Its time, if season or trend follow time and ``y_new`` has no index.  Times that go back, repeat or skip
            rows are refused; after ``fit(regular="fill")``, missing rows are put back.

        Returns
        -------
        Stream or RegimeStream
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
        if len(self.exog_names_in_) == 0:
            refuse_unused(exog, exog_transition)
        follows = isinstance(stream, RegimeStream) or (stream is None and states is not None)
        prepared = self._stream_parameters(follows or self._fitted().model.effects is not None)
        if isinstance(prepared, StreamParameters) and not isinstance(stream, RegimeStream):
            if states is not None:
                raise ValueError("states is given for the first time in this stream; pass states= from the start on.")
            return update(prepared, stream or Stream(), y_new)
        if isinstance(prepared, StreamParameters) or isinstance(stream, Stream):
            raise ValueError("this stream belongs to a model without lags, inputs or durations; start a new one.")
        inputs = joined_inputs(exog, exog_transition, prepared.format.count(y_new))
        return prepared.update(
            stream or RegimeStream(origin=prepared.format.end), y_new, exog=inputs, times=times, states=states,
            regular=self._regular,
        ).stream  # fmt: skip

    def _stream_parameters(self, rows_differ: bool) -> StreamParameters | RegimeFilter:
        """Return what streams need, prepared once and not for each observation."""
        posterior, cached = self._fitted(), getattr(self, "_prepared", None)
        if cached is None or cached[:3] != (posterior, self.n_average, rows_differ):
            make = RegimeFilter if rows_differ else StreamParameters.of
            self._prepared = cached = posterior, self.n_average, rows_differ, make(posterior.model, self._points())
        prepared: StreamParameters | RegimeFilter = cached[3]
        return prepared

    def check(
        self, X: Any, lengths: Any = None, *, exog: Any = None, exog_transition: Any = None, states: Any = None
    ) -> ModelCheck:
        """Check whether the model fits a series; ``fit`` does this for its own series (``model_check_``).

        Combines checks of the pseudo-residuals at the posterior mean with posterior predictive checks on 50 series
        simulated from the posterior.  Of a series of more than 200,000 values, evenly spaced pieces with 200,000 values
        in total are checked.  The same series always gets the same answer.  Where residuals are autocorrelated, the
        answer names the number of lags that would help, with its gain in held-out log density.

        Parameters
        ----------
        X : array-like, path or Series
            The observations, as in ``fit``.
        lengths : sequence of int, optional
            Lengths of the sequences in ``X``.
        exog, exog_transition, states : optional
            Inputs and known states of these observations, as in ``fit``.

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
        series = self._series(X, lengths, exog, exog_transition, states)
        found = check_model(self._fitted(), series, threads=self._threads)
        return with_remedy(found, self._fitted().model, series, self._threads)

    # ------------------------------------------------------------ scikit-learn
    def _repr_html_(self) -> str:
        """Show a fit in a notebook: its verdicts, states and events; without a fit, the settings."""
        return fit_page(self) if hasattr(self, "posterior_") else str(super()._repr_html_())

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        """Show a fit in a notebook, and as text elsewhere."""
        return {"text/plain": repr(self), "text/html": self._repr_html_()}

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags


def fit_page(hmm: RareHMM) -> str:
    """Return the verdicts, the states and the expected events of a fit as HTML."""
    posterior, names = hmm.posterior_, [p.name for p in hmm.posterior_.model.family.parameters]
    lines = []
    for r in hmm.regimes_:
        values = [posterior.interval(name, r.state) for name in names]
        texts = [f"{m:.4g}" if posterior.is_mode else f"{m:.4g} ({low:.4g} to {high:.4g})" for m, low, high in values]
        lines.append([str(r.state), r.kind, f"{r.share:.2%}", "" if r.visits is None else f"{r.visits:,.0f}", *texts])
    head = ["state", "kind", "share", "visits", *names]
    table = "".join(
        f"<tr>{''.join(f'<{tag}>{escape(text)}</{tag}>' for text in line)}</tr>"
        for tag, line in [("th", head), *(("td", line) for line in lines)]
    )
    visits = [r.visits or 0.0 for r in hmm.regimes_ if r.kind == "rare"]
    events = f"About {sum(visits):,.0f} rare events; rare_events(X) lists them." if visits else "No state is rare."
    caption = MODE_ONLY if posterior.is_mode else "posterior mean and 90 % interval"
    about = "".join(f"<p>{escape(text)}</p>" for text in hmm.verdicts_)
    return (
        f"<div><p><b>{escape(repr(hmm))}</b></p>{about}<table><caption>States: {caption}</caption>{table}</table>"
        f"<p>{events}</p></div>"
    )


def is_auto(hmm: RareHMM) -> list[str]:
    """Return the names of the settings that are to be chosen."""
    given = {name: getattr(hmm, name) for name in ("n_components", "emission", "ar", "season", "trend")}
    return [name for name, value in given.items() if isinstance(value, str) and value == AUTO]


def generator(random_state: Any) -> np.random.Generator:
    """Return a NumPy Generator from a seed, a Generator, a RandomState or None."""
    if isinstance(random_state, np.random.RandomState):
        return np.random.default_rng(random_state.randint(2**31))
    return np.random.default_rng(random_state)
