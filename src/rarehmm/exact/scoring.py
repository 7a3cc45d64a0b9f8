r"""EM steps for emissions whose rows differ: Newton steps on the expected complete-data log posterior.

.. math:: \theta' = \theta + I(\theta)^{-1} \nabla \log p(\theta \mid y)

By Fisher's identity, this gradient is that of the expected complete-data log posterior; ``model.information`` has its
curvature.  Variances take their M-steps; logarithms, logits and the like move by at most ``REACH``.
"""

import numpy as np

from rarehmm.common.arrays import Array, BoolArray, IntArray
from rarehmm.engine.contracts.family import columns
from rarehmm.model.autoregression import partial_jacobian
from rarehmm.model.information import Information
from rarehmm.model.model import Model
from rarehmm.model.parameters import Parameters
from rarehmm.model.priors import InverseGamma, Normal, bare

REACH = 2.0
RIDGE = 1e-10  # relative to the diagonal, where a state without observations leaves nothing to be known


def has_scoring(model: Model) -> bool:
    """Whether these steps exist: for families of one column, whose positive parameters are logarithms in theta."""
    return columns(model.family) == 1 and bool(model.as_logs.all() or not model.coordinates.is_expanded)


def scoring_step(model: Model, theta: Array, slope: Array, about: Information) -> Array:
    """Step (d,) from theta (d,), where the log posterior has the gradient ``slope`` (d,).

    Rows of transition matrices without inputs do not move.
    """
    gathered, variances, rows = curvature(model, theta, about)
    diagonal = np.diag(gathered)
    known = diagonal > 0
    system, scale = scaled(gathered)
    step = scale * np.linalg.solve(system, scale * np.where(known, slope, 0.0))
    free = model.free
    step = np.where(is_linear(model), step, np.clip(step, -REACH, REACH))
    with np.errstate(divide="ignore", invalid="ignore"):
        closed = np.log1p(np.maximum(slope / diagonal, -0.99))
    step = np.where(variances[free] & known, closed, step)
    return np.where(rows[free], step, 0.0)


def scaled(gathered: Array) -> tuple[Array, Array]:
    """A curvature (d, d) with a unit diagonal and a ridge, and the scale (d,) of each component."""
    known = np.diag(gathered) > 0
    scale = 1 / np.sqrt(np.where(known, np.diag(gathered), 1.0))
    return scale[:, None] * gathered * scale + RIDGE * np.eye(len(gathered)) + np.diag(~known * 1.0), scale


def step_metric(model: Model, theta: Array, about: Information, pairs: Array) -> Array:
    """Inverse (d, d) of the curvature of the expected complete-data log posterior, transitions included.

    ``pairs`` (K, K) are the expected transitions.
    """
    gathered, _, _ = curvature(model, theta, about)
    if model.every_effect.slopes is None:
        out, first = np.zeros((len(model.vector),) * 2), model.fixed_values.phi.size
        row, column = model.coordinates.free(model.n_states)
        P, counts = model.unpack(theta).transition, pairs + model.priors.transition.concentration
        at = first + np.arange(len(row))
        same = row[:, None] == row
        own, total = P[row, column], counts.sum(1)[row]
        out[np.ix_(at, at)] = same * total[:, None] * (np.diag(own) - np.outer(own, own))
        gathered = gathered + gather(model, out)
    system, scale = scaled(gathered)
    return np.asarray(scale[:, None] * np.linalg.inv(system) * scale)


def gather(model: Model, every: Array) -> Array:
    """Curvature (d, d) in theta from that (full, full) in the vector of all parameters."""
    used = model.spread >= 0
    owner, gathered = model.spread[used], np.zeros((model.size, model.size))
    np.add.at(gathered, (owner[:, None], owner), every[np.ix_(used, used)])
    return gathered


def curvature(model: Model, theta: Array, about: Information) -> tuple[Array, BoolArray, BoolArray]:
    """Curvature (d, d) of minus the expected complete-data log posterior at theta (d,), priors included.

    Also the masks (full,) of variances and of the components that ``scoring_step`` moves.
    """
    parameters, out = model.unpack(theta), np.zeros((len(model.vector),) * 2)
    variances = _add_emission(model, parameters, about, out)
    rows = _add_transitions(model, parameters, about, out)
    _add_priors(model, theta, out)
    return gather(model, out), variances, rows


def places(model: Model) -> dict[str, slice]:
    """Place of each block of coefficients in the vector of all parameters."""
    first = len(model.vector) - model.coefficients.size
    return {name: slice(first + at.start, first + at.stop) for name, at in model.coefficients.slices.items()}


def level_parameter(model: Model) -> int:
    """The parameter that the linear predictor moves, if there is only one; otherwise -1."""
    own = np.flatnonzero(model.every_effect.moves.column == 0)
    return int(own[0]) if len(own) == 1 else -1


def is_linear(model: Model) -> BoolArray:
    """Mask (d,) of the components in which the log density of an observation is about quadratic."""
    out, at, moves = np.zeros(len(model.vector), dtype=bool), places(model), model.every_effect.moves
    level, K = level_parameter(model), model.n_states
    if level >= 0 and not moves.logs[level] and model.every_effect.moves.power.any():
        out[level * K : (level + 1) * K] = True
        out[at["location"]] = out[at["switching"]] = True
        out[at["lags"]] = not model.coefficients.is_partial
    return np.asarray(out[model.free])


def _add_emission(model: Model, parameters: Parameters, about: Information, out: Array) -> BoolArray:
    """Add the information about emissions to out (full, full), and return the mask (full,) of variances."""
    effects, K, at = model.every_effect, model.n_states, places(model)
    level, variances = level_parameter(model), np.zeros(len(model.vector), dtype=bool)
    for i in range(len(model.family.parameters)):
        mine = np.arange(i * K, (i + 1) * K)
        if effects.moves.power[i] == 2.0:
            variances[mine] = True
            out[mine, mine] = about.counts / 2
        elif i != level:
            out[mine, mine] = about.squares[:, i]
    where = location_places(model, level)
    found = about.location
    if model.coefficients.is_partial and effects.shapes["lags"][0] > 0:
        phi = effects.block("lags", parameters.coefficients)[:, 0, 0]
        turn = np.eye(len(found))
        turn[-len(phi) :, -len(phi) :] = lag_jacobian(model, parameters)
        found = turn.T @ found @ turn
    kept = where >= 0
    out[np.ix_(where[kept], where[kept])] += found[np.ix_(kept, kept)]
    out[at["scale"], at["scale"]] += about.scale
    return variances


def location_places(model: Model, level: int) -> IntArray:
    """Place of each component of ``Information.location`` in the vector of all parameters, -1 if it has none."""
    K, at = model.n_states, places(model)
    levels = level * K + np.arange(K) if level >= 0 else np.full(K, -1)
    rest = [np.arange(at[name].start, at[name].stop) for name in ("location", "switching", "lags")]
    return np.concatenate([levels, *rest])


def lag_jacobian(model: Model, parameters: Parameters) -> Array:
    """Derivatives (p, p) of the lags in the hyperbolic arctangents of their partial autocorrelations."""
    x = model.coefficients.pack(parameters.coefficients)
    partial = np.tanh(x[model.coefficients.slices["lags"]])
    return np.asarray(partial_jacobian(partial) * (1 - partial**2))


def _add_transitions(model: Model, parameters: Parameters, about: Information, out: Array) -> BoolArray:
    """Add the information about transitions with inputs to out; the mask (full,) of the components that may move."""
    K, rows = model.n_states, np.ones(len(model.vector), dtype=bool)
    first = model.fixed_values.phi.size
    pairs = np.stack(model.coordinates.free(K), axis=1)
    rows[first : first + len(pairs)] = model.every_effect.slopes is not None
    if model.every_effect.slopes is None:
        return rows
    slopes, compared = places(model)["slopes"].start, np.stack(model.coefficients.compared, axis=1)
    q = model.every_effect.slopes.size
    concentration = model.priors.transition.concentration * model.fixed_values.allowed.sum(1)
    for j in range(K):
        P = parameters.transition[j]
        found = about.transition[j].copy()
        found[:K, :K] += concentration[j] * (np.diag(P) - np.outer(P, P))
        own, other = np.flatnonzero(pairs[:, 0] == j), np.flatnonzero(compared[:, 0] == j)
        where = [first + own, *(slopes + f * len(compared) + other for f in range(q))]
        which = [pairs[own, 1], *((f + 1) * K + compared[other, 1] for f in range(q))]
        out[np.ix_(np.concatenate(where), np.concatenate(where))] += found[
            np.ix_(np.concatenate(which), np.concatenate(which))
        ]
    return rows


def _add_priors(model: Model, theta: Array, out: Array) -> None:
    """Add the curvature of the log priors to the diagonal of out (full, full)."""
    K, diagonal, first = model.n_states, np.zeros(len(model.vector)), len(model.vector) - model.coefficients.size
    for i, (p, prior) in enumerate(zip(model.family.parameters, model.priors.emission, strict=True)):
        one, mine = bare(prior), slice(i * K, i * K + (1 if p.name in model.tied else K))
        if isinstance(one, Normal):
            diagonal[mine] = 1 / one.variance
        elif isinstance(one, InverseGamma):
            diagonal[mine] = one.shape
    if model.coefficients.size > 0 and model.priors.effects is not None:
        x = model.coefficient_coordinates(theta)
        diagonal[first:] = model.coefficients.prior_precisions(x, model.priors.effects)
    out[np.arange(len(out)), np.arange(len(out))] += diagonal
