"""Suggested settings of a model: season, trend, lags, emission and number of states, by a bounded greedy search.

Every term is judged by the gain in the held-out one-step log density (``held_out``), on the same rows for all
candidates.  Seasons and trends are sought by robust regressions on lags, in which rare events hardly count.  Lags,
families and numbers of states are compared with several states, since what looks like autocorrelation under a single
state may be the persistence of regimes.  A term is chosen only if its gain is clear.
"""

import logging
from dataclasses import replace
from typing import Any

import numpy as np

from rarehmm.choosing.candidates import Candidate, Candidates
from rarehmm.choosing.held_out import BLOCKS, Gain, Sample
from rarehmm.choosing.kinds import kind_of
from rarehmm.choosing.periods import (
    LONGEST,
    calendar_periods,
    is_multiple,
    orders_of,
    periodogram_periods,
    steps_and_span,
)
from rarehmm.choosing.regression import Regression
from rarehmm.choosing.suggestion import Suggestion, TermGain, lag_words, season_words
from rarehmm.common.arrays import Array
from rarehmm.common.checks import threads_of
from rarehmm.common.progress import OnProgress, silent
from rarehmm.data.inputs import ORDERS, Columns, Inputs, Season, Term, Trend, duration
from rarehmm.data.series import Series
from rarehmm.model.autoregression import AroundLevel, Intercept
from rarehmm.model.moves import moves
from rarehmm.specification.families import family_of
from rarehmm.specification.given import as_series
from rarehmm.specification.models import Specification
from rarehmm.specification.terms import seasons_of, trends_of

logger = logging.getLogger(__name__)

AUTO = "auto"
REGRESSION_ROWS, MODEL_ROWS = 100_000, 20_000  # rows of the samples for regressions and for models with states
FEWEST_ROWS = 6_000  # of the latter, however many columns there are
SEASON_ERRORS, CLEAR = 4.0, 2.0  # standard errors that the gain of a season or trend, and of anything else, must exceed
LEAST = 0.002  # gain of lags and families, in nats per observation, below which they are not worth a term
DECISIVE = 10.0  # difference in BIC
HEAVY = 5.0  # degrees of freedom
STATES = 3  # with which lags and families are compared
MOST_STATES = 5
MOST_SEASONS = 3
FEWEST = 200  # observations, below which nothing can be chosen
FEW, FEW_SHARE = 6, 0.8  # of a gain, this share comes from so many blocks where it is due to a few events


def suggest(
    y: Any,
    lengths: Any = None,
    *,
    exog: Any = None,
    n_components: Any = AUTO,
    emission: Any = AUTO,
    ar: Any = AUTO,
    season: Any = AUTO,
    trend: Any = AUTO,
    regular: bool | str = True,
    n_jobs: int | None = None,
    on_progress: OnProgress = silent,
) -> Suggestion:
    """Suggest settings of ``RareHMM`` for a series: season, trend, lags, emission and number of states.

    Parameters
    ----------
    y : array-like, path or Series
        The observations, in any form that ``RareHMM.fit`` accepts.  Of a long series, evenly spaced pieces are used:
        100,000 rows to find seasons, 20,000 rows (fewer of several columns) for everything else.
    lengths : sequence of int, optional
        Lengths of the sequences that are concatenated in ``y``.
    exog : optional
        Input columns, which all candidates have.
    n_components, emission, ar, season, trend
        "auto", or a setting that is given, as for ``RareHMM``.
    regular : bool or "fill"
        What is done about the times of rows, as in ``Series``.
    n_jobs : int, optional
        Number of threads; None or -1: one per core.
    on_progress : callable, optional
        Called as ``on_progress(stage, done, total)``.

    Returns
    -------
    Suggestion
        ``settings`` are keyword arguments of ``RareHMM``; ``table`` has the gain of each term; print it for a sentence.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> y = 3 * np.sin(2 * np.pi * np.arange(3000) / 48) + rng.normal(size=3000)
    >>> y[1000:1050] += 8
    >>> y[2000:2050] += 8
    >>> suggest(y).settings["season"]
    [Season(period=48, order=1)]
    """
    series = as_series(y, lengths, exog=exog, regular=regular)
    given = Specification(n_components, emission, ar, season, trend)
    return Search(series.without_states(), given, threads_of(n_jobs), on_progress).run()


class Search:
    """A greedy search for the settings of a series that ``given`` leaves open."""

    def __init__(
        self, series: Series, given: Specification, threads: int | None, on_progress: OnProgress, rows: int = MODEL_ROWS
    ) -> None:
        self.series, self.given, self.threads, self.on_progress = series, given, threads, on_progress
        observed = len(series) - series.n_missing
        if observed < FEWEST:
            raise ValueError(
                f"y has {observed} observations; a choice of settings needs {FEWEST}. Pass ar, season, n_components "
                "and emission instead of 'auto'."
            )
        self.gains: list[TermGain] = []
        self.regression: Regression
        self.candidates: Candidates
        self.wide, self.sample = (
            Sample(series, REGRESSION_ROWS),
            Sample(series, max(rows // series.n_columns, FEWEST_ROWS)),
        )
        self.kind = kind_of(series, self.wide.y)
        self.seasons = [] if self.is_open("season") else seasons_of(given.season)
        self.trends = [] if self.is_open("trend") else trends_of(given.trend)
        self.ar: Any = None if self.is_open("ar") else given.ar
        self.emission = self.kind.base if self.is_open("emission") else given.emission
        self.n_states = STATES if self.is_open("n_states") else given.n_states

    def is_open(self, name: str) -> bool:
        """Whether a setting is to be chosen."""
        return isinstance(value := getattr(self.given, name), str) and value == AUTO

    def run(self) -> Suggestion:
        """Choose everything that is open."""
        self.prepare()
        self.on_progress("choosing lags", 0, 0)
        best = self._choose_lags() if self.is_open("ar") and self.takes_inputs else self.evaluate(self.specification())
        if self.is_open("emission"):
            self.on_progress("choosing the emission", 0, 0)
            best = self._choose_family(best)
        if self.is_open("n_states"):
            self.on_progress("choosing the number of states", 0, 0)
            best = self._choose_states(best)
        return Suggestion(self._settings(best.specification), self.gains, len(self.sample.y))

    def prepare(self) -> None:
        """Choose season and trend, if they are open, and what else regressions can say."""
        self.on_progress("choosing seasons", 0, 0)
        self.regression = self._regression()
        if self.takes_inputs:
            self._choose_seasons()
        self.candidates = Candidates(self.series, self.sample, self._level(), self.threads)

    @property
    def takes_inputs(self) -> bool:
        """Whether the emission has parameters with a linear predictor."""
        return len(moves(family_of(self.emission, self.series)).predicted) > 0

    def _settings(self, chosen: Specification) -> dict[str, Any]:
        return {
            "n_components": chosen.n_states, "emission": chosen.emission, "ar": self._short(chosen),
            "season": list(chosen.season) or None, "trend": "linear" if self.trends else None,
        }  # fmt: skip

    def _short(self, chosen: Specification) -> Any:
        """Return lags as a number if they are of the form that a number means."""
        usual = AroundLevel if self.has_level(chosen.emission) else Intercept
        return chosen.ar.order if isinstance(chosen.ar, usual) and chosen.ar == usual(chosen.ar.order) else chosen.ar

    def has_level(self, emission: Any) -> bool:
        """Whether observations of a family return to a level, so that lags can be around it."""
        at = moves(family_of(emission, self.series))
        return not bool((at.level[at.predicted] < 0).any())

    def _record(self, step: str, term: str, against: str, gain: Gain, chosen: bool) -> bool:
        self.gains.append(TermGain(step, term, against, gain.value, gain.error, chosen))
        return chosen

    # ------------------------------------------------------------ seasons and trend
    def _regression(self) -> Regression:
        """Return regressions of the observations, or of their logarithms where these are clearly better."""
        self.rows = self.wide.series.read_rows(0, len(self.wide.y))
        y = self.wide.y
        if not self.kind.is_real:
            return Regression(self.wide, np.log1p(y))
        plain = Regression(self.wide, y)
        if not self.is_open("emission"):
            return plain
        if self.kind.base == "gaussian" and y.shape[1] == 1 and plain.freedom[0] <= HEAVY:
            self.emission = "free_student_t"  # a few extreme values do not decide on lags
        if self.kind.values != "positive":
            return plain
        logs = Regression(self.wide, np.log(y), -np.log(y[self.wide.scored]).sum(1))
        design, lags = self._design([]), self.wide.lags
        gain = self.wide.gain(logs.densities(design, lags), plain.densities(design, lags))
        if self._record("scale", "logarithm", "observations as they are", gain, gain.exceeds(SEASON_ERRORS, LEAST)):
            self.emission = "log_normal"
            return logs
        return plain

    def _terms(self, more: list[Term]) -> list[Term]:
        names = self.series.observation_names
        return [*self.seasons, *more, *self.trends, *([Columns(tuple(names))] if names else [])]

    def _design(self, more: list[Term]) -> Array:
        """Return the inputs (T, q) of the rows of the wider sample."""
        terms = self._terms(more)
        out: Array = Inputs.of(self.series, terms).design(self.rows) if terms else np.empty((len(self.wide.y), 0))
        return out

    def _score(self, more: list[Term]) -> Array:
        """Held-out log densities (n,) of a single state with further terms."""
        return np.asarray(self.regression.densities(self._design(more), self.wide.lags))

    def _choose_seasons(self) -> None:
        """Add seasons and a trend, the one with the largest gain first, for as long as gains are clear."""
        base = self._score([])
        if self.is_open("season"):
            for _ in range(MOST_SEASONS):
                found = self._best_season(base)
                if found is None:
                    break
                self.seasons.append(found)
                base = self._score([])
        if self.is_open("trend"):
            densities = self._score([Trend()])
            gain = self.regression.gain(densities, base)
            if self._record("trend", "linear trend", "none", gain, gain.exceeds(SEASON_ERRORS)):
                self.trends.append(Trend())

    def _best_season(self, base: Array) -> Season | None:
        """Return the season with the largest clear gain over the log densities ``base``; None if there is none."""
        tried = []
        for period in self._periods():
            for order in (1, ORDERS[min(len(self.seasons), 1)]):
                season = self._season(period, order)
                if (densities := self._score_season(season)) is not None:
                    tried.append((self.regression.gain(densities, base), season))
        best = max(tried, key=lambda one: (one[0].exceeds(SEASON_ERRORS), one[0].value), default=None)
        if best is None:
            return None
        gain, season = best
        clear = gain.exceeds(SEASON_ERRORS)
        if not self._record("season", season_words([season]), season_words(self.seasons), gain, clear):
            return None
        return self._with_best_order(season)

    def _score_season(self, season: Season) -> Array | None:
        """Held-out log densities (n,) with a season; None if the chosen ones have its harmonics."""
        try:
            return self._score([season])
        except ValueError:
            return None

    def _season(self, period: Any, order: int) -> Season:
        step, _ = steps_and_span(self.series)
        steps = duration(period) / step if isinstance(period, str) else period
        return Season(period, max(1, min(order, int(steps / 2))))

    def _with_best_order(self, season: Season) -> Season:
        """Return a season with the smallest number of harmonics within a standard error of the best."""
        step, _ = steps_and_span(self.series)
        steps = duration(season.period) / step if isinstance(season.period, str) else season.period
        orders = orders_of(steps, ORDERS[min(len(self.seasons), 1)])
        scores = [(order, self._score_season(Season(season.period, order))) for order in orders]
        found = [(order, densities) for order, densities in scores if densities is not None]
        best = max((densities for _, densities in found), key=lambda one: float(one.mean()))
        for order, densities in found:
            if not self.regression.gain(best, densities).exceeds(CLEAR):
                return Season(season.period, order)
        return season

    def _periods(self) -> list[Any]:
        """Candidate periods: those of the calendar, then those of the periodogram that are not parts of chosen ones."""
        step, _ = steps_and_span(self.series)
        chosen = [s.period for s in self.seasons]
        have = [duration(p) / step if isinstance(p, str) else float(p) for p in chosen]
        calendar = [p for p in calendar_periods(self.series) if p not in chosen]
        known = [*have, *(duration(p) / step for p in calendar)]
        peaks = [p for p in periodogram_periods(self._white()) if not known or not is_multiple(p, known)]
        return [*calendar, *(int(p) if p == round(p) else p for p in peaks)]

    def _white(self) -> Array:
        """Return the residuals (T,) of the first column of a contiguous stretch, given what has been chosen."""
        i = int(np.argmax(np.diff(self.series.bounds)))
        first, last = int(self.series.bounds[i]), int(self.series.bounds[i + 1])
        if last - first == len(self.wide.y):
            return np.asarray(self.regression.residuals(self._design([]), self.wide.lags).mean(1))
        stretch = Sample(self.series.part(first, min(last, first + LONGEST)), LONGEST)
        values = stretch.y if self.kind.is_real and self.emission != "log_normal" else np.log1p(stretch.y)
        rows, terms = stretch.series.read_rows(0, len(stretch.y)), self._terms([])
        design = Inputs.of(self.series, terms).design(rows) if terms else np.empty((len(values), 0))
        return np.asarray(Regression(stretch, values).residuals(design, stretch.lags).mean(1))

    def _level(self) -> Array:
        """Return the observations (T, D) of the sample without season, trend and inputs, from which states begin."""
        y, terms = self.sample.y, self._terms([])
        values = y if self.kind.is_real else np.log1p(y)
        if not terms or not self.takes_inputs:
            return values
        design = Inputs.of(self.series, terms).design(self.sample.series.read_rows(0, len(y)))
        return Regression(self.sample, values).without_inputs(design)

    # ------------------------------------------------------------ lags, family, states
    def specification(self, **changes: Any) -> Specification:
        now = Specification(self.n_states, self.emission, self.ar, list(self.seasons), list(self.trends))
        return replace(now, **changes)

    def evaluate(self, specification: Specification) -> Candidate:
        """Fit and score a specification; more than one lag around a level is reached from one lag."""
        order, warm = getattr(specification.ar, "order", 0), None
        if isinstance(specification.ar, AroundLevel) and order > 1:
            warm = self._try(replace(specification, ar=specification.ar._replace(order=1)))
        return self.candidates.evaluate(specification, warm)

    def _try(self, specification: Specification, warm: Candidate | None = None) -> Candidate | None:
        """Fit and score a specification; None if it cannot be fitted."""
        try:
            return self.candidates.evaluate(specification, warm) if warm else self.evaluate(specification)
        except (ValueError, np.linalg.LinAlgError):
            logger.info("no fit of %s", specification, exc_info=True)
            return None

    def gain(self, better: Candidate, worse: Candidate) -> Gain:
        return self.sample.gain(better.densities, worse.densities)

    def _is_better(self, new: Candidate, old: Candidate) -> bool:
        """Whether a gain is clear by itself, or typical of blocks and BIC agrees: events may be in few of them."""
        gain, typical = self.gain(new, old), self.sample.typical_gain(new.densities, old.densities)
        agreed = gain.exceeds(1.0, LEAST) or typical.exceeds(SEASON_ERRORS, LEAST)
        return gain.exceeds(CLEAR, LEAST) or (agreed and new.bic < old.bic - DECISIVE)

    def _choose_lags(self) -> Candidate:
        """Choose the form and the number of lags; without lags, a further state may take their place."""
        none = self.evaluate(self.specification())
        order = self.largest_order()
        if order == 0:
            return none
        more = self._try(self.specification(n_states=self.n_states + 1)) or none
        rival = max(none, more, key=lambda c: float(c.densities.mean()))
        forms = (AroundLevel, Intercept) if self.has_level(self.emission) else (Intercept,)
        tried = [one for form in forms for one in self._chain(form, order)]
        worthwhile = [c for c in tried if self._is_better(c, rival)]
        best = max(worthwhile, key=lambda c: float(c.densities.mean()), default=none)
        near = [c for c in worthwhile if not self._is_better(best, c)]
        chosen = min(near, key=lambda c: (c.specification.ar.order, tried.index(c)), default=none)
        for c in tried:
            one, states = self.gain(c, rival), rival.specification.n_states
            self._record("lags", lag_words(c.specification.ar), f"none, {states} states", one, c is chosen)
        self.ar = chosen.specification.ar
        return chosen

    def largest_order(self, errors: float = 1.0) -> int:
        """Return the smallest number of lags within so many standard errors of the best, in regressions on lags."""
        design = self._design([])
        scores = [self.regression.densities(design, p) for p in range(self.wide.lags + 1)]
        best = max(scores, key=lambda one: float(one.mean()))
        return next(p for p, one in enumerate(scores) if not self.regression.gain(best, one).exceeds(errors))

    def _chain(self, form: Any, largest: int) -> list[Candidate]:
        """Candidates with 1, 2, ... lags of a form, until a further lag has no gain."""
        found: list[Candidate] = []
        for p in range(1, largest + 1):
            new = self._try(self.specification(ar=form(p)), found[-1] if found else None)
            if new is None:
                break
            found.append(new)
            if len(found) > 1 and not self.gain(new, found[-2]).exceeds(1.0):
                break
        return found

    def _choose_family(self, best: Candidate) -> Candidate:
        """Choose the family, the first one unless another is clearly better."""
        every = {str(self.emission): best}
        for emission in self.kind.families:
            if str(emission) not in every:
                new = self._try(self.specification(emission=emission, ar=self._lags_for(emission)))
                every |= {} if new is None else {str(emission): new}
        ordered = [every[str(emission)] for emission in self.kind.families if str(emission) in every]
        chosen = first = ordered[0]
        for one in ordered[1:]:
            if self._is_better(one, chosen):
                chosen = one
        for name, one in every.items():
            if one is not first:
                self._record("family", name, str(first.specification.emission), self.gain(one, first), one is chosen)
        self.emission, self.ar = chosen.specification.emission, chosen.specification.ar
        return chosen

    def _lags_for(self, emission: Any) -> Any:
        """Return the chosen lags in a form that a family can have."""
        if isinstance(self.ar, AroundLevel) and not self.has_level(emission):
            return Intercept(self.ar.order)
        if isinstance(self.ar, Intercept) and self.is_open("ar") and self.has_level(emission):
            return self.ar if self.has_level(self.emission) else AroundLevel(self.ar.order)
        return self.ar

    def _choose_states(self, best: Candidate) -> Candidate:
        """Choose the number of states: more for as long as BIC favours them and the held-out gain does not object."""
        chosen = self.evaluate(self.specification(n_states=1))
        for K in range(2, MOST_STATES + 1):
            new = best if best.specification.n_states == K else self._try(self.specification(n_states=K))
            if new is None:  # too few distinct values
                break
            gain, previous = self.gain(new, chosen), chosen.specification.n_states
            supported = self._has_further_state(new, chosen, gain)
            self._record("states", f"{K} states", f"{previous} state{'s' * (previous > 1)}", gain, supported)
            if supported:
                chosen = new
            elif K >= STATES:
                break
        return chosen

    def _has_further_state(self, new: Candidate, old: Candidate, gain: Gain) -> bool:
        """Whether the data support the further states of a candidate.

        If its gain comes from a few blocks, as where events are few, the halves of the sample may not both have them:
        BIC decides, unless the held-out gain is clearly negative.
        """
        if new.bic >= old.bic or gain.exceeds(1.0):
            return new.bic < old.bic
        rise = np.bincount(self.sample.block[self.sample.scored], new.own - old.own, BLOCKS)
        rise = np.sort(np.maximum(rise, 0.0))
        few = rise[-FEW:].sum() > FEW_SHARE * rise.sum()
        return bool(few and new.bic < old.bic - DECISIVE and gain.value > -CLEAR * gain.error)
