"""From the settings of ``RareHMM`` to a model of a series."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rarehmm.data.inputs import Columns, Inputs
from rarehmm.data.series import Series
from rarehmm.model.autoregression import Autoregression
from rarehmm.model.learnable import check_learnable, check_observed
from rarehmm.model.model import Model
from rarehmm.model.moves import moves
from rarehmm.model.named_priors import default_priors
from rarehmm.model.parameters import Priors
from rarehmm.specification.families import family_of
from rarehmm.specification.terms import LAGS, Terms, as_list, autoregression_of, lags_of, seasons_of, trends_of
from rarehmm.transitions.homogeneous import Homogeneous
from rarehmm.transitions.phases import Phases
from rarehmm.transitions.regression import Regression

FEW = 2, 2  # harmonics of seasons of transitions and of the scale, of which little is known, unless a user says


@dataclass(frozen=True, eq=False)
class Specification:
    """What a model of a series consists of, as a user writes it; ``RareHMM`` describes each of these."""

    n_states: Any
    emission: Any = "gaussian"
    ar: Any = None
    season: Any = None
    trend: Any = None
    switching: Any = False
    scale: Any = None
    transitions: Any = None
    durations: Any = None
    priors: Priors | None = None
    startprob: npt.ArrayLike | None = None
    fixed: Mapping[str, npt.ArrayLike] | None = None

    def model(self, series: Series) -> Model:
        """Return the model of a series, which the terms are settled against."""
        family, K = family_of(self.emission, series), self.n_states
        priors = default_priors(family, K, series) if self.priors is None else self.priors
        start = None if self.startprob is None else np.asarray(self.startprob, dtype=float)
        lags = self._lags(family)
        check_learnable(family, K, series, 0 if lags is None else lags.order)
        check_observed(series)
        terms = Terms(seasons_of(self.season), trends_of(self.trend), series.observation_names)
        if len(terms) > 0 and len(moves(family).predicted) == 0:
            raise ValueError(
                f"{type(family).__name__} takes no season, trend or exog: none of its parameters has a linear "
                "predictor. Leave them out, choose another emission, or pass exog as exog_transition."
            )
        shared, switching = self._inputs(series, terms)
        moves_scale = terms.chosen(self.scale, "scale", series.exog_names)
        return Model(
            family, K, priors, start, fixed=self.fixed, inputs=shared, switching=switching,
            scale=Inputs.of(series, moves_scale, FEW) if moves_scale else None, autoregression=lags,
            transitions=self._transitions(series, terms),
        )  # fmt: skip

    def _inputs(self, series: Series, terms: Terms) -> tuple[Inputs | None, Inputs | None]:
        """Return the inputs whose effects all states share, and those whose effects differ between states."""
        if self.switching is True and len(terms) == 0:
            raise ValueError(
                "switching is True, and there is no season, trend or exog that could switch; leave it out. For lags "
                "that switch, pass switching='ar'."
            )
        if isinstance(self.switching, bool):
            flags = [self.switching] * len(terms)
        else:
            flags = terms.flags(self.switching, "switching", [LAGS] if lags_of(self.ar) else [])
        if len(terms) == 0:
            return None, None
        every = Inputs.of(series, terms.every)
        return every.part([not flag for flag in flags]), every.part(flags)

    def _lags(self, family: Any) -> Autoregression | None:
        """Return the autoregression, with coefficients that differ between states if "ar" is among what switches."""
        found = autoregression_of(self.ar, family)
        if found is None or isinstance(self.switching, bool) or LAGS not in as_list(self.switching):
            return found
        return found._replace(switching=True)

    def _transitions(self, series: Series, terms: Terms) -> Any:
        """Return how states follow each other: by a constant matrix, by one that depends on inputs, or with phases."""
        if hasattr(self.transitions, "phases"):
            return self._given_transitions(series)
        found = terms.chosen(self.transitions, "transitions", series.exog_names)
        found = terms.chosen([*found, Columns(series.transition_names)], "transitions", series.exog_names)
        if self.durations is None:
            return Regression(Inputs.of(series, found, FEW)) if found else Homogeneous()
        phases = phases_of(self.durations, self.n_states)
        if found:
            what = "exog_transition" if self.transitions is None else "transitions"
            raise ValueError(
                f"durations is {self.durations!r}, which cannot be combined with transitions that depend on inputs; "
                f"leave out durations or {what}."
            )
        return Phases(phases) if self.n_states > 1 else Homogeneous()  # a single state is never left

    def _given_transitions(self, series: Series) -> Any:
        """Return transitions that were given as an object, after checking that nothing else was."""
        if self.durations is not None:
            raise ValueError(
                f"transitions is {self.transitions!r} and durations is {self.durations!r}; pass only one of them."
            )
        reads = self.transitions.inputs
        names = reads.chosen.names if reads is not None and reads.chosen else ()
        if unread := [name for name in series.transition_names if name not in names]:
            raise ValueError(
                f"exog_transition has {', '.join(map(repr, unread))}, and the transitions given do not read it; leave "
                "out exog_transition, or transitions=."
            )
        return self.transitions


def phases_of(durations: Any, n_states: int) -> tuple[int, ...]:
    """Return the number of phases of each state: one number for all, or one for each."""
    given = as_list(durations.tolist() if isinstance(durations, np.ndarray) else durations)
    each = given * n_states if len(given) == 1 else given
    for r in each:
        if isinstance(r, bool) or not isinstance(r, int | np.integer) or r < 1:
            raise ValueError(
                f"durations is {durations!r}; pass the shortest length of a visit, a whole number of at least 1, for "
                "all states or for each."
            )
    if len(each) != n_states:
        raise ValueError(
            f"durations has {len(each)} numbers and there are {n_states} states; pass one for each, or one for all."
        )
    return tuple(int(r) for r in each)
