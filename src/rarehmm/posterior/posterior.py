"""Draws in their own units, with their states in a stable order: arrays, a table, ArviZ, a file."""

import functools
import json
import math
import pathlib
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from rarehmm.common.arrays import Array
from rarehmm.common.writing import whole_file
from rarehmm.data.sources.checks import said
from rarehmm.emissions import families
from rarehmm.emissions._sized import Sized
from rarehmm.emissions.product import Product
from rarehmm.model import priors as all_priors
from rarehmm.model.model import Model
from rarehmm.model.parameters import Parameters, Priors
from rarehmm.model.stationary import stationary
from rarehmm.sampling.arviz_adapter import effective_size, inference_data, r_hat, read_posterior, write_netcdf
from rarehmm.sampling.diagnostics import Check, verdict
from rarehmm.sampling.rule import Inference
from rarehmm.search.mode import reordered

FORMAT = 1  # of saved files
DAMAGE = ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError  # what damaged data raise
NEVER = 2.0**-53  # a chance of leaving a state that rounding makes 0
NOWHERE = 1e-100  # an occupancy below it counts as this: squares of return times must not overflow


class Draws(NamedTuple):
    """``phi`` (..., K, P) and ``transition`` (..., K, K) of many draws."""

    phi: Array
    transition: Array


def in_order(model: Model, theta: Array, parameter: int = 0) -> Draws:
    """Draws theta (..., d) in their own units, the states of each ordered by one parameter, the first by default.

    The identifiability constraint of the paper's section 4.1, mu_1 < mu_2 < ..., imposed after sampling: the posterior
    does not change when states are renamed, so each draw may be renamed on its own.
    """
    phi, transition = model.unpack_all(theta)
    return Draws(*reordered(phi, transition, np.argsort(phi[..., parameter], axis=-1, kind="stable")))


@dataclass(frozen=True, eq=False)
class Posterior:
    """Equally weighted draws of the posterior of a model.

    Attributes
    ----------
    model
        The model; its states are those of the draws.
    phi
        Parameters of the emissions, (chains, draws, K, P), in their own units.
    transition
        Transition matrices, (chains, draws, K, K).
    method, why
        How they were drawn, and the reasons for it.
    checks
        What was checked; ``verdict`` is the whole in a sentence.

    States are in ascending order of the parameter that tells them apart best: the mean, where means differ.

    Examples
    --------
    >>> import numpy as np
    >>> from rarehmm import Posterior, RareHMM
    >>> y = np.random.default_rng(0).normal(size=2000)
    >>> y[700:800] += 9
    >>> found = RareHMM(2, n_draws=400).fit(y).posterior_
    >>> found.summary().loc["mean[1]", ["mean", "sd"]].round(1).tolist()
    [8.9, 0.1]
    >>> import tempfile, pathlib
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     found.save(pathlib.Path(folder) / "fit.nc")
    ...     again = Posterior.load(pathlib.Path(folder) / "fit.nc")
    >>> bool((again.phi == found.phi).all())
    True
    """

    model: Model
    phi: Array
    transition: Array
    method: str
    why: list[str] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)

    def __post_init__(self) -> None:
        K, P = self.model.n_states, len(self.model.family.parameters)
        for name, values, shape in (("phi", self.phi, (K, P)), ("transition", self.transition, (K, K))):
            if values.ndim != 4 or values.shape[2:] != shape or values.shape[:2] != self.phi.shape[:2]:
                raise ValueError(f"{name} has shape {values.shape}; (chains, draws, {shape[0]}, {shape[1]}) is needed.")

    def __repr__(self) -> str:
        chains, draws, K, _ = self.phi.shape
        return f"Posterior({chains} x {draws} draws of {K} states of {self.model.name} by {self.method})"

    @classmethod
    def of(cls, found: Inference) -> "Posterior":
        """The posterior that ``infer`` found."""
        model = found.mode.model
        return cls(model, *model.unpack_all(found.theta), found.method, found.why, found.checks)

    # ------------------------------------------------------------ what people report
    @property
    def verdict(self) -> str:
        return verdict(self.checks)

    @functools.cached_property
    def occupancy(self) -> Array:
        """Share of the time spent in each state in the long run, (chains, draws, K)."""
        return stationary(self.transition)

    @property
    def sojourn(self) -> Array:
        """Expected length of a visit, (chains, draws, K); of a state that is never left, the longest that can be told
        from that."""
        return 1 / np.maximum(1 - np.diagonal(self.transition, axis1=-2, axis2=-1), NEVER)

    @property
    def return_time(self) -> Array:
        r"""Expected time from the start of a visit to the start of the next, (chains, draws, K).

        .. math:: 1 / \pi_k (1 - P_{kk})
        """
        return np.asarray(self.sojourn / np.maximum(self.occupancy, NOWHERE))

    @property
    def mean(self) -> Parameters:
        """Means over all draws, as parameters of the model."""
        return self.model.natural(self.phi.mean((0, 1)), self.transition.mean((0, 1)))

    def points(self, count: int) -> list[Parameters]:
        """``count`` of the draws, evenly spaced, as parameters of the model."""
        phi, transition = (a.reshape(-1, *a.shape[2:]) for a in (self.phi, self.transition))
        chosen = np.linspace(0, len(phi) - 1, min(count, len(phi))).astype(int)
        return [self.model.natural(phi[i], transition[i]) for i in chosen]

    @property
    def quantities(self) -> dict[str, Array]:
        """All that is reported, by name: (chains, draws, K), transitions (chains, draws, K, K)."""
        emission = {p.name: self.phi[..., i] for i, p in enumerate(self.model.family.parameters)}
        return {
            **emission,
            "transition": self.transition,
            "occupancy": self.occupancy,
            "sojourn": self.sojourn,
            "return_time": self.return_time,
        }

    def interval(self, name: str, state: int, probability: float = 0.9) -> tuple[float, float, float]:
        """Mean of one quantity of a state, and the ends of its central interval."""
        x = self.quantities[name][..., state]
        low, high = np.quantile(x, [(1 - probability) / 2, (1 + probability) / 2])
        return float(x.mean()), float(low), float(high)

    def summary(self, probability: float = 0.9) -> Any:
        """A pandas table: mean, standard deviation and central interval of everything that is reported, with the
        effective number of draws and R-hat."""
        import pandas as pd

        if not 0 < probability < 1:
            raise ValueError(f"probability is {probability}; it must lie between 0 and 1.")
        rows = {}
        low, high = (1 - probability) / 2, (1 + probability) / 2
        for name, values in self.quantities.items():
            for index in np.ndindex(values.shape[2:]):
                x = values[(..., *index)]
                chains = x if len(x) > 1 else x[:, : x.shape[1] // 2 * 2].reshape(2, -1)
                constant = bool((x == x.flat[0]).all())
                rows[f"{name}[{', '.join(map(str, index))}]"] = [
                    x.mean(), x.std(), *np.quantile(x, [low, high]),
                    math.nan if constant else effective_size(x), math.nan if constant else r_hat(chains),
                ]  # fmt: skip
        names = ["mean", "sd", f"{low:.1%}", f"{high:.1%}", "ess", "r_hat"]
        return pd.DataFrame.from_dict(rows, orient="index", columns=names)

    # ------------------------------------------------------------ ArviZ and files
    def to_arviz(self) -> Any:
        """An ArviZ InferenceData (a DataTree from ArviZ 1.0 on) with dimensions chain, draw, state and state_to."""
        dims = {name: ["state"] for name in self.quantities} | {"transition": ["state", "state_to"]}
        states = np.arange(self.model.n_states)
        about = {"rarehmm": json.dumps(self._described())}
        return inference_data(self.quantities, dims, {"state": states, "state_to": states}, about)

    def _described(self) -> dict[str, Any]:
        model = self.model
        return {
            "format": FORMAT,
            "family": described(model.family),
            "priors": [described(p) for p in model.priors.emission],
            "concentration": model.priors.transition.concentration,
            "start": None if model.start is None else list(model.start),
            "fixed": {name: as_list(np.asarray(values, dtype=float)) for name, values in (model.fixed or {}).items()},
            "method": self.method,
            "why": self.why,
            "checks": [[c.name, float(c.value), bool(c.passed), c.message, c.note] for c in self.checks],
        }

    def save(self, path: str | pathlib.Path) -> None:
        """One netCDF file, which ArviZ opens too; written whole or not at all."""
        with whole_file(pathlib.Path(path)) as name:
            room = sum(values.nbytes for values in self.quantities.values()) + (1 << 18)
            name.write_bytes(bytes(room))  # HDF5 crashes on a full disk: see that there is room
            name.unlink()
            write_netcdf(self.to_arviz(), name)

    @classmethod
    def load(cls, path: str | pathlib.Path, family: Any = None) -> "Posterior":
        """A posterior that was saved; ``family`` if it is one of your own.  Nothing in the file is executed."""
        path = pathlib.Path(path)
        if path.is_dir():
            raise ValueError(f"{path} is a folder; the name of a file is needed.")
        if not path.is_file():
            raise FileNotFoundError(f"{path} is not there.")
        try:
            about, arrays = read_posterior(path)
            given = json.loads(about)
            version = int(given["format"])
        except Exception as error:
            raise ValueError(f"{path} is not a posterior that rarehmm saved, or is damaged ({said(error)}).") from None
        if version > FORMAT:
            raise ValueError(f"{path} has format {version}; this version of rarehmm reads up to {FORMAT}. Update it.")
        try:
            if family is None:
                family = restored(given["family"], {**families(), "product": Product}, most=len(arrays))
            emission = tuple(restored(p, vars(all_priors)) for p in given["priors"])
            start = None if given["start"] is None else np.array(given["start"])
            priors = Priors(emission, all_priors.Dirichlet(given["concentration"]))
            model = Model(family, len(arrays["state"]), priors, start, fixed=given.get("fixed") or None)
            phi = np.stack([arrays[p.name] for p in family.parameters], axis=-1)
            transition = arrays["transition"]
            check_draws(family, phi, transition)
            checks = [Check(str(c[0]), float(c[1]), c[2] is True, *map(str, c[3:])) for c in given["checks"]]
            return cls(model, phi, transition, str(given["method"]), [str(why) for why in given["why"]], checks)
        except DAMAGE as error:
            raise ValueError(f"{path} is damaged, or of a family that is not known here ({said(error)}).") from None


def check_draws(family: Any, phi: Array, transition: Array) -> None:
    """Refuse draws out of a file that no sampler made."""
    for name, values in (*((p.name, phi[..., i]) for i, p in enumerate(family.parameters)), ("transition", transition)):
        if values.dtype.kind != "f" or values.size == 0 or not np.isfinite(values).all():
            raise ValueError(f"{name} holds something else than finite numbers")
    for i, p in enumerate(family.parameters):
        if p.support == "positive" and (phi[..., i] <= 0).any():
            raise ValueError(f"{p.name} is not always positive")
    if (transition < 0).any() or (np.abs(transition.sum(-1) - 1) > 1e-6).any():
        raise ValueError("rows of transition are not always probabilities")


def as_list(values: Array) -> list[Any]:
    """Numbers as data, None for NaN."""
    return [as_list(v) if np.ndim(v) else (None if np.isnan(v) else float(v)) for v in values]


def described(thing: Any) -> list[Any]:
    """A family or a prior as data: the name of its class, and its settings; a part of a family as [label, part]."""
    if hasattr(thing, "settings"):
        name, settings = thing.settings
        return [name, *([s[0], described(s[1])] if isinstance(s, tuple) else s for s in settings)]
    return [type(thing).__name__, *(float(v) if isinstance(v, float | np.floating) else v for v in thing)]


def restored(given: list[Any], known: dict[str, Any], most: float = math.inf) -> Any:
    """The family or prior that was described, out of known classes; of families with a size, which have as many
    parameters at least, those with ``most`` of these."""
    name, *settings = given
    settings = [(s[0], restored(s[1], known, most)) if isinstance(s, list) else s for s in settings]
    classes = {c.__name__: c for c in known.values() if isinstance(c, type) and issubclass(c, tuple)}
    if name not in classes:
        raise ValueError(f"{name} is not among {', '.join(sorted(classes))}; pass family=")
    if issubclass(classes[name], Sized) and any(isinstance(s, int) and s > most + 1 for s in settings):
        raise ValueError(f"{name} of {settings} has more parameters than there are in the file")
    return classes[name](*settings)
