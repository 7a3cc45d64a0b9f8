"""Posterior draws on the natural scale, with states in a stable order: as arrays, a table, ArviZ data, a file."""

import functools
import json
import math
import pathlib
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from rarehmm.common.arrays import Array
from rarehmm.common.writing import atomic_file
from rarehmm.data.sources.checks import said
from rarehmm.model.model import Model
from rarehmm.model.parameters import NO_COEFFICIENTS, Parameters
from rarehmm.model.stationary import stationary
from rarehmm.posterior.model_settings import UnknownTransitionsError, check_format, model_from_settings, model_settings
from rarehmm.posterior.named_coefficients import dimensions, named_coefficients
from rarehmm.sampling.arviz_adapter import effective_size, inference_data, r_hat, read_posterior, write_netcdf
from rarehmm.sampling.diagnostics import Check, verdict
from rarehmm.sampling.rule import Inference
from rarehmm.search.mode import reorder_states

STANDARDISED = "standardised_coefficients"  # in files only: what has to be kept to the last digit
MODE_ONLY = "mode only, no uncertainty"
FIT = "fit"  # in files only: what ``RareHMM.save`` adds to a posterior
DAMAGE = ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError  # raised by damaged data
MIN_LEAVING = 2.0**-53  # smallest probability of leaving a state that rounding does not turn into 0
MIN_OCCUPANCY = 1e-100  # smaller occupancies are raised to this, so that squares of return times do not overflow


class Draws(NamedTuple):
    """Posterior draws on the natural scale.

    Attributes
    ----------
    phi : ndarray, (..., K, P)
        Emission parameters.
    transition : ndarray, (..., K, K)
        Transition matrices.
    """

    phi: Array
    transition: Array


def in_order(model: Model, theta: Array, parameter: int = 0) -> Draws:
    """Return draws on the natural scale, with the states of each draw sorted by one parameter.

    This is the identifiability constraint of the paper's section 4.1, mu_1 < mu_2 < ..., imposed after sampling: the
    posterior is invariant under relabelling, so each draw may be relabelled separately.

    Parameters
    ----------
    model : Model
        The model that was sampled.
    theta : ndarray, (..., d)
        Draws of its parameter vector.
    parameter : int
        Index of the emission parameter to sort by.

    Returns
    -------
    Draws
        With ``phi`` (..., K, P) and ``transition`` (..., K, K).
    """
    phi, transition = model.unpack_all(theta)
    return Draws(*reorder_states(phi, transition, np.argsort(phi[..., parameter], axis=-1, kind="stable")))


@dataclass(frozen=True, eq=False)
class Posterior:
    """Equally weighted draws from the posterior of a model.

    States are in ascending order of the parameter that separates them best: the mean, where means differ.

    Attributes
    ----------
    model : Model
        The model, with its states in the order of the draws.
    phi : ndarray, (chains, draws, K, P)
        Emission parameters on their natural scale.
    transition : ndarray, (chains, draws, K, K)
        Transition matrices.
    method : str
        The sampling method.
    why : list of str
        Why this method was chosen.
    checks : list of Check
        Convergence and accuracy checks; ``verdict`` sums them up in a sentence.
    coefficients : ndarray, (chains, draws, c)
        Coefficients of standardised inputs and of lags, as in ``Parameters``; ``quantities`` has them by name, in the
        user's units.

    Examples
    --------
    >>> import numpy as np
    >>> from rarehmm import Posterior, RareHMM
    >>> y = np.random.default_rng(0).normal(size=2000)
    >>> y[700:800] += 9
    >>> posterior = RareHMM(2, n_draws=400).fit(y).posterior_
    >>> posterior.summary().loc["mean[1]", ["mean", "sd"]].round(1).tolist()
    [8.9, 0.1]
    >>> import tempfile, pathlib
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     posterior.save(pathlib.Path(folder) / "fit.nc")
    ...     loaded = Posterior.load(pathlib.Path(folder) / "fit.nc")
    >>> bool((loaded.phi == posterior.phi).all())
    True
    """

    model: Model
    phi: Array
    transition: Array
    method: str
    why: list[str] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)
    coefficients: Array = field(default_factory=lambda: NO_COEFFICIENTS)

    def __post_init__(self) -> None:
        K, P, c = self.model.n_states, len(self.model.family.parameters), self.model.every_effect.size
        if c == 0:
            object.__setattr__(self, "coefficients", np.zeros((*self.phi.shape[:2], 0)))
        parts = ("phi", self.phi, (K, P)), ("transition", self.transition, (K, K)), (
            "coefficients", self.coefficients, (c,)
        )  # fmt: skip
        for name, values, shape in parts:
            if values.shape[2:] != shape or values.ndim != 2 + len(shape) or values.shape[:2] != self.phi.shape[:2]:
                raise ValueError(
                    f"{name} has shape {values.shape}; it must be (chains, draws, {', '.join(map(str, shape))})."
                )

    def __repr__(self) -> str:
        chains, draws, K, _ = self.phi.shape
        return f"Posterior({chains} x {draws} draws of {K} states of {self.model.name} by {self.method})"

    @classmethod
    def of(cls, result: Inference) -> "Posterior":
        """Create a posterior from the result of ``infer``."""
        model = result.mode.model
        coefficients = model.unpack_coefficients(result.theta)
        return cls(
            model, *model.unpack_all(result.theta), result.method, result.why, result.checks, coefficients
        )  # fmt: skip

    # ------------------------------------------------------------ quantities to report
    @property
    def verdict(self) -> str:
        """The checks in a sentence: "All checks passed.", or a clear warning that the results are unreliable."""
        return verdict(self.checks)

    @property
    def is_mode(self) -> bool:
        """Whether this is the mode alone: a single draw, which has no uncertainty."""
        return math.prod(self.phi.shape[:2]) == 1

    @functools.cached_property
    def occupancy(self) -> Array:
        """Long-run share of the time spent in each state, (chains, draws, K), which follows from the transition matrix.

        ``Regime.share`` is the share of this series that a state has: in a short series, or where a rare state came by
        chance more or less often than it will, the two differ.

        Where transitions have inputs, there is none: this is what it would be if these stayed at their means.
        """
        visits = stationary(self.transition)
        if self._phases.max() == 1:
            return visits
        return np.asarray(self._phases * visits / (visits @ self._phases)[..., None])

    @property
    def _phases(self) -> Array:
        """Number of phases (K,) of each state."""
        return self.model.transitions.phases(self.model.n_states).astype(float)

    @property
    def sojourn(self) -> Array:
        """Expected length of a visit to each state, (chains, draws, K); for absorbing states, 2**53 times its phases.

        Where transitions have inputs, if these stayed at their means.
        """
        return self._phases / np.maximum(1 - np.diagonal(self.transition, axis1=-2, axis2=-1), MIN_LEAVING)

    @property
    def return_time(self) -> Array:
        r"""Expected time from the start of one visit to the start of the next, (chains, draws, K).

        .. math:: 1 / \pi_k (1 - P_{kk})

        where states have a single phase; in general, the length of a visit over the share of the time.
        """
        return np.asarray(self.sojourn / np.maximum(self.occupancy, MIN_OCCUPANCY))

    @property
    def mean(self) -> Parameters:
        """Posterior means, as parameters of the model; for lags that are stationary, of partial autocorrelations."""
        draws = self.coefficients.reshape(math.prod(self.phi.shape[:2]), self.model.every_effect.size)
        coefficients = self.model.coefficients.mean(draws)
        return self.model.natural(self.phi.mean((0, 1)), self.transition.mean((0, 1)), coefficients)

    def points(self, count: int) -> list[Parameters]:
        """Return evenly spaced draws as parameters of the model.

        Parameters
        ----------
        count : int
            How many draws; all of them if there are fewer.

        Returns
        -------
        list of Parameters
        """
        every = math.prod(self.phi.shape[:2])
        selected = np.linspace(0, every - 1, min(count, every)).astype(int)
        parts = (a.reshape(every, *a.shape[2:])[selected] for a in (self.phi, self.transition, self.coefficients))
        return [self.model.natural(*point) for point in zip(*parts, strict=True)]

    @property
    def quantities(self) -> dict[str, Array]:
        """Draws of every reported quantity by name: (chains, draws, ...), with the dimensions of ``dims``.

        Coefficients are per unit of the user's inputs; levels and transition probabilities are those at their means.
        Where transitions have inputs, there are no long-run shares and lengths of visits.
        """
        emission = {p.name: self.phi[..., i] for i, p in enumerate(self.model.family.parameters)}
        out = {**emission, "transition": self.transition}
        if self.model.transitions.inputs is None:
            out |= {"occupancy": self.occupancy, "sojourn": self.sojourn, "return_time": self.return_time}
        return {**out, **named_coefficients(self.model, self.coefficients)}

    @property
    def dims(self) -> dict[str, list[str]]:
        """Dimensions of each quantity after chain and draw: "state", "state_to", "input", "lag" and the like."""
        dims = {name: ["state"] for name in self.quantities} | {"transition": ["state", "state_to"]}
        return dims | dimensions(self.model)[0]

    @property
    def coords(self) -> dict[str, Any]:
        """Coordinates of each dimension: numbers of states and lags, names of inputs."""
        states = np.arange(self.model.n_states)
        return {"state": states, "state_to": states, **dimensions(self.model)[1]}

    def interval(self, name: str, state: int, probability: float = 0.9) -> tuple[float, float, float]:
        """Return the posterior mean and the central interval of one quantity of a state.

        Parameters
        ----------
        name : str
            An emission parameter, "occupancy", "sojourn" or "return_time", or a coefficient that switches.
        state : int
            The state.
        probability : float
            Probability of the interval.

        Returns
        -------
        mean, low, high : float
        """
        if name not in self.quantities or self.dims[name][-1] != "state" or len(self.dims[name]) > 1:
            known = ", ".join(k for k, dims in self.dims.items() if dims == ["state"])
            raise ValueError(f"name is {name!r}; states have {known}.")
        x = self.quantities[name][..., state]
        low, high = np.quantile(x, [(1 - probability) / 2, (1 + probability) / 2])
        return float(x.mean()), float(low), float(high)

    def summary(self, probability: float = 0.9) -> Any:
        """Summarise the posterior in a table.

        Parameters
        ----------
        probability : float
            Probability of the central intervals.

        Returns
        -------
        pandas.DataFrame
            A row per quantity: mean, standard deviation, interval, effective sample size and R-hat.  Of the mode alone,
            only its values, in the column of means: ``attrs["note"]`` says so.
        """
        import pandas as pd

        if not 0 < probability < 1:
            raise ValueError(f"probability is {probability}; it must lie between 0 and 1.")
        rows = {}
        low, high = (1 - probability) / 2, (1 + probability) / 2
        dims, coords = self.dims, self.coords
        for name, values in self.quantities.items():
            for index in np.ndindex(values.shape[2:]):
                x, label = values[(..., *index)], [coords[d][i] for d, i in zip(dims[name], index, strict=True)]
                chains = x if len(x) > 1 else x[:, : x.shape[1] // 2 * 2].reshape(2, -1)
                if self.is_mode:
                    rows[f"{name}[{', '.join(map(str, label))}]"] = [x.item(), *[math.nan] * 5]
                    continue
                constant = bool((x == x.flat[0]).all())
                rows[f"{name}[{', '.join(map(str, label))}]"] = [
                    x.mean(), x.std(), *np.quantile(x, [low, high]),
                    math.nan if constant else effective_size(x), math.nan if constant else r_hat(chains),
                ]  # fmt: skip
        names = ["mean", "sd", f"{low:.1%}", f"{high:.1%}", "ess", "r_hat"]
        table = pd.DataFrame.from_dict(rows, orient="index", columns=names)
        if self.is_mode:
            table.attrs["note"] = MODE_ONLY
        return table

    # ------------------------------------------------------------ ArviZ and files
    def to_arviz(self) -> Any:
        """Convert the draws to ArviZ, with dimensions chain, draw, state and state_to.

        Coefficients of inputs and lags have the dimensions input, switching_input, scale_input, transition_input and
        lag, with the names of the inputs as coordinates.

        Returns
        -------
        arviz.InferenceData
            A DataTree from ArviZ 1.0 on.
        """
        return self._to_arviz({}, {})

    def _to_arviz(self, more: dict[str, Array], dims: dict[str, list[str]], fit: dict[str, Any] | None = None) -> Any:
        """Convert the draws, and ``more`` of these dimensions, to ArviZ, with what else is known of a ``fit``."""
        attributes = {"rarehmm": json.dumps(self._metadata() | ({} if fit is None else {FIT: fit}))}
        return inference_data({**self.quantities, **more}, {**self.dims, **dims}, self.coords, attributes)

    def _metadata(self) -> dict[str, Any]:
        return {
            **model_settings(self.model),
            "method": self.method,
            "why": self.why,
            "checks": [[c.name, float(c.value), bool(c.passed), c.message, c.note] for c in self.checks],
        }

    def save(self, path: str | pathlib.Path) -> None:
        """Save the posterior to a netCDF file, which ArviZ can open too.

        Parameters
        ----------
        path : str or Path
            The file; it appears only once it is complete, and replaces one of the same name.
        """
        self.save_with(path, None)

    def save_with(self, path: str | pathlib.Path, fit: dict[str, Any] | None) -> None:
        """Save the posterior as ``save`` does, with what else is known of a fit as plain data."""
        with atomic_file(pathlib.Path(path)) as name:
            exact = {STANDARDISED: self.coefficients} if self.coefficients.size > 0 else {}
            room = sum(values.nbytes for values in {**self.quantities, **exact}.values()) + (1 << 18)
            name.write_bytes(bytes(room))  # HDF5 crashes on a full disk, so make sure there is room first
            name.unlink()
            write_netcdf(self._to_arviz(exact, {one: ["component"] for one in exact}, fit), name)

    @classmethod
    def load(cls, path: str | pathlib.Path, emission: Any = None, transitions: Any = None) -> "Posterior":
        """Load a posterior saved with ``save``; nothing in the file is executed.

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
        Posterior

        Raises
        ------
        FileNotFoundError
            If there is no such file.
        ValueError
            If the file is damaged, was not written by ``save``, or is from a later version of rarehmm.
        """
        return cls.load_with(path, emission, transitions)[0]

    @classmethod
    def load_with(
        cls, path: str | pathlib.Path, emission: Any = None, transitions: Any = None
    ) -> tuple["Posterior", Any]:
        """Load what ``save_with`` saved: the posterior, and what else is known of the fit, or None."""
        path = pathlib.Path(path)
        if path.is_dir():
            raise ValueError(f"{path} is a folder; pass the name of a file.")
        if not path.is_file():
            raise FileNotFoundError(f"{path} does not exist.")
        try:
            attributes, arrays = read_posterior(path)
            saved = json.loads(attributes)
            version = int(saved["format"])
        except Exception as error:
            raise ValueError(f"{path} is not a posterior saved by rarehmm, or is damaged ({said(error)}).") from None
        check_format(version, str(path))
        try:
            saved["n_states"] = len(arrays["state"])
            model = model_from_settings(saved, emission, transitions, most=len(arrays))
            phi = np.stack([arrays[p.name] for p in model.family.parameters], axis=-1)
            transition, coefficients = arrays["transition"], arrays.get(STANDARDISED, NO_COEFFICIENTS)
            check_draws(model, phi, transition, coefficients)
            checks = [Check(str(c[0]), float(c[1]), c[2] is True, *map(str, c[3:])) for c in saved["checks"]]
            why = [str(reason) for reason in saved["why"]]
            return cls(model, phi, transition, str(saved["method"]), why, checks, coefficients), saved.get(FIT)
        except UnknownTransitionsError as error:
            raise ValueError(f"{path} has transitions that are not rarehmm's ({error}).") from None
        except DAMAGE as error:
            raise ValueError(f"{path} is damaged, or uses an unknown family ({said(error)}).") from None


def check_draws(model: Model, phi: Array, transition: Array, coefficients: Array) -> None:
    """Raise ValueError if draws from a file are impossible values, which no sampler produces."""
    family, parts = model.family, {p.name: phi[..., i] for i, p in enumerate(model.family.parameters)}
    parts["transition"] = transition
    if model.every_effect.size > 0:
        if coefficients.shape[2:] != (model.every_effect.size,):
            raise ValueError(f"{STANDARDISED} has shape {coefficients.shape}")
        parts[STANDARDISED] = coefficients
    for name, values in parts.items():
        if values.dtype.kind != "f" or values.size == 0 or not np.isfinite(values).all():
            raise ValueError(f"{name} holds values that are not finite numbers")
    for i, p in enumerate(family.parameters):
        if p.support == "positive" and (phi[..., i] <= 0).any():
            raise ValueError(f"{p.name} is not always positive")
    if (transition < 0).any() or (np.abs(transition.sum(-1) - 1) > 1e-6).any():
        raise ValueError("some rows of transition are not probabilities")
    if model.coefficients.is_partial:
        for draw in coefficients.reshape(-1, coefficients.shape[-1]):
            model.every_effect.check(draw)
