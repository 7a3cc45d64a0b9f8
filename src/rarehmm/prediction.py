r"""Log predictive densities of held-out observations under draws of the posterior."""

import numpy as np
from scipy.special import logsumexp

from rarehmm.emissions import columns, constant, log_density, prepare
from rarehmm.model import Model
from rarehmm.posterior import Draws
from rarehmm.series import Array
from rarehmm.transitions import stationary


def state_densities(model: Model, draws: Draws, y: Array, state: int) -> Array:
    r"""Log densities (Z, n) of observations y (n,) or (n, D), known to come from ``state``, under each of Z draws.

    .. math:: \log p(Y^{(r)} \mid \theta_z, X^{(r)} = k)
    """
    draws, y = several(draws), np.atleast_2d(np.asarray(y, dtype=float).T).T  # (n, D)
    value = y[:, 0] if columns(model.family) == 1 else tuple(y.T)
    logs = [log_density(model.family, value, prepare(model.family, phi)) for phi in draws.phi[:, state]]
    return np.where(np.isnan(y).any(1), 0.0, constant(model.family, y) + np.array(logs))


def several(draws: Draws) -> Draws:
    """Draws with one leading axis, from any number of them."""
    phi, transition = draws
    if phi.size == 0:
        raise ValueError("there are no draws to predict with.")
    return Draws(phi.reshape(-1, *phi.shape[-2:]), transition.reshape(-1, *transition.shape[-2:]))


def sequence_densities(model: Model, draws: Draws, y: Array) -> Array:
    r"""Log densities (Z, n) of n held-out sequences y (n, m) under each of Z draws, from the start law of the model."""
    draws, y = several(draws), np.atleast_2d(np.asarray(y, dtype=float))
    _, m = y.shape
    K = draws.transition.shape[-1]
    law = np.array([stationary(P) if model.start is None else model.start for P in draws.transition])  # (Z, K)
    prediction = np.broadcast_to(law[:, None], (len(law), len(y), K))
    total = np.zeros(prediction.shape[:2])
    for t in range(m):
        logs = np.stack([state_densities(model, draws, y[:, t], k) for k in range(K)], axis=-1)  # (Z, n, K)
        top = logs.max(-1, keepdims=True)
        joint = prediction * np.exp(logs - top)
        mass = joint.sum(-1, keepdims=True)
        total += (np.log(mass) + top)[..., 0]
        prediction = np.einsum("znj,zjk->znk", joint / mass, draws.transition)
    return total


def held_out(densities: Array) -> float:
    r"""Mean log predictive density of n held-out observations or sequences, from their log densities (Z, n).

    .. math:: \frac 1 n \sum_r \log \Bigl(\frac 1 Z \sum_z p(Y^{(r)} \mid \theta_z)\Bigr)

    Ou et al., eq. (11).
    """
    return float(np.mean(logsumexp(densities, axis=0) - np.log(len(densities))))


def held_out_so_far(densities: Array) -> Array:
    """The same (Z,) from the first 1, 2, ..., Z draws."""
    total = np.logaddexp.accumulate(densities, axis=0) - np.log(np.arange(1, len(densities) + 1))[:, None]
    return np.asarray(total.mean(1))
