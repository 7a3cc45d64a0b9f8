"""Numerical tests of the contract of emission families: ``check_emission``.

``check_family`` is cheap, looks at shapes, and runs for every ``Model``.  The tests here take seconds, and up to a
minute to compile at first; they are for authors, and the test suite applies them to every family of the library.  Each
requirement is a function of a ``Case`` that raises ``ValueError`` with the function, the parameter and the numbers.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.integrate import nquad, quad
from scipy.optimize import minimize
from scipy.stats import ks_2samp, kstest

from rarehmm.common.arrays import Array
from rarehmm.conformance.requirements import Checked, check_all, must
from rarehmm.data.series import Series
from rarehmm.emissions import rivals
from rarehmm.engine.contracts.family import (
    HOOKS,
    Family,
    check_family,
    columns,
    complete_score,
    constant,
    domains,
    has,
    hook,
    log_density,
    move_parameters,
    observed_rows,
    prepare,
    score,
    statistics,
)
from rarehmm.engine.dispatch import explained, provides
from rarehmm.engine.kernels.moved_densities import add_inputs, moved_densities
from rarehmm.exact.densities import densities, prepared
from rarehmm.exact.em import climb
from rarehmm.exact.passes import expectations, log_posterior, smooth
from rarehmm.model.checks import check_prior
from rarehmm.model.coordinates import HUGE
from rarehmm.model.model import Model
from rarehmm.model.moves import moves
from rarehmm.model.named_priors import default_priors, no_priors
from rarehmm.model.parameters import Priors
from rarehmm.model.priors import Normal
from rarehmm.windows.gradients import window_gradients
from rarehmm.windows.windows import Windows

MANY = 20_000  # draws for statistical tests, which fail by chance for one seed in thousands
EVEN = np.full((2, 2), 0.5)


class Case(NamedTuple):
    """Family under test, with parameters (2, P) of two states and a seed."""

    family: Any
    phi: Array
    seed: int = 0

    @property
    def name(self) -> str:
        return type(self.family).__name__.split("#")[0]  # without the number that a redefined class is given

    def point(self, k: int = 0) -> str:
        """Parameters of a state as text."""
        return ", ".join(f"{p.name} = {v:.6g}" for p, v in zip(self.family.parameters, self.phi[k], strict=True))

    def rng(self, stream: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, stream])

    def sample(self, n: int) -> Array:
        """Observations (n, D) of both states."""
        rng = self.rng(0)
        return self.draw(rng, rng.integers(0, 2, n), self.phi)

    def draw(self, rng: np.random.Generator, states: Any, phi: Array) -> Array:
        y = np.asarray(self.family.draw(rng, states, phi), dtype=float)
        D = columns(self.family)
        self.must(
            y.shape in ((len(states), D), (len(states),) * (D == 1)),
            f"draw returned an array of shape {y.shape} for {len(states)} states; it must be ({len(states)}, {D})",
        )
        return y.reshape(len(states), D)

    def argument(self, y: Array) -> Any:
        """Rows (n, D) in the form that the functions of a family take."""
        return y[:, 0] if columns(self.family) == 1 else tuple(y.T)

    def density(self, y: Array, phi: Array) -> Array:
        """Log density of rows (n, D), including the terms of ``constant``."""
        return np.asarray(log_density(self.family, self.argument(y), prepare(self.family, phi))) + constant(
            self.family, y
        )

    def model(self) -> Model:
        """Model of two states, with priors that need no data."""
        return Model(self.family, 2, Priors(tuple(Normal(0.0, 1.0) for _ in self.family.parameters)))

    def single(self, fixed: Any = None) -> tuple[Model, Series]:
        """Model of one state with default priors, and 60 observations."""
        series = Series(self.sample(60))
        return Model(self.family, 1, default_priors(self.family, 1, series), fixed=fixed), series

    def must(self, condition: Any, message: str) -> None:
        must(np.all(condition), self.name, message)

    def close(self, what: str, found: Any, wanted: Any, reference: str, rtol: float, atol: float) -> None:
        """Raise an error that shows the worst mismatch if ``found`` and ``wanted`` differ."""
        found, wanted = np.broadcast_arrays(np.asarray(found, dtype=float), np.asarray(wanted, dtype=float))
        off = np.abs(found - wanted) / (atol + rtol * np.abs(wanted))
        off = np.where(np.isfinite(off) | (found == wanted), off, np.inf)
        if off.size and np.nanmax(np.where(found == wanted, 0.0, off)) > 1:
            at = np.unravel_index(np.argmax(np.where(found == wanted, 0.0, off)), off.shape)
            place = f"[{', '.join(map(str, at))}]" if at else ""
            raise ValueError(f"{self.name}: {what}{place} is {found[at]:.10g}; {reference} is {wanted[at]:.10g}.")


# ---------------------------------------------------------------- densities and draws
def draws_lie_in_the_domain(case: Case) -> None:
    y = case.sample(1000)
    for d, (column, domain) in enumerate(zip(y.T, domains(case.family), strict=True)):
        bad = ~(np.isfinite(column) & domain.valid(column))
        case.must(~bad, f"draw returned {column[bad][:1]} in column {d}; the domain is {domain.message}")
    states = np.zeros(len(y), dtype=np.int64)
    one, same, other = (case.draw(np.random.default_rng(s), states, case.phi) for s in (1, 1, 2))
    case.must((one == same).all() and (one != other).any(), "draw must use rng for all randomness")
    second = case.draw(np.random.default_rng(1), states + 1, case.phi)
    case.must((one != second).any(), "draw does not depend on the state")


def domain_ends_at_its_bounds(case: Case) -> None:
    for domain in domains(case.family):
        outside = [v for v in (domain.low - 1, domain.high + 1) if np.isfinite(v)] + [0.5] * domain.whole
        case.must(
            ~domain.valid(np.array(outside)),
            f"the domain, {domain.message}, accepts one of {outside}, which lie outside its bounds",
        )


def score_is_the_slope(case: Case) -> None:
    """By central differences of the log density, at both states."""
    y, h = case.sample(40), 1e-6
    x = case.argument(y)
    for k, phi in enumerate(case.phi):
        found = score(case.family, x, prepare(case.family, phi))
        P = len(case.family.parameters)
        case.must(len(found) == P, f"score returned {len(found)} values for {P} parameters")
        for i, slope in enumerate(found):
            e = h * max(1.0, abs(phi[i])) * np.eye(P)[i]
            up, down = (log_density(case.family, x, prepare(case.family, phi + s * e)) for s in (1, -1))
            what = f"score of {case.family.parameters[i].name!r} for drawn observations at {case.point(k)}, "
            reference = "the slope of log_density by finite differences"
            case.close(what, slope, (up - down) / (2 * e[i]), reference, 1e-6, 1e-7)


def log_density_takes_arrays_of_constants(case: Case) -> None:
    constants = [prepare(case.family, row) for row in case.phi]
    y = case.sample(1)[0]
    x = y[0] if len(y) == 1 else tuple(y)
    together = log_density(case.family, x, tuple(np.array(constants).T))
    one_by_one = [log_density(case.family, x, c) for c in constants]
    case.close("log_density with arrays of constants", together, one_by_one, "state by state, it", 1e-12, 1e-14)


def integral(family: Any, phi: Array, value: Callable[[Any], Any] = np.ones_like, below: float = math.inf) -> float:
    """Integral over the domain, up to ``below``, of a function of y times the density with parameters phi."""
    c, domain = prepare(family, phi), domains(family)[0]

    def part(y: Array) -> Any:
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):  # far out, where the density is 0
            p = np.exp(log_density(family, y, c) + constant(family, y[:, None]))
            return np.where(p > 0, p * value(y), 0.0)

    if domain.whole:
        return float(part(np.arange(min(domain.high, below, 200.0) + 1)).sum())
    high = max(min(domain.high, below), domain.low)
    return float(quad(lambda v: part(np.array([v]))[0], domain.low, high)[0])


def density_integrates_to_one(case: Case) -> None:
    family = case.family
    if columns(family) == 1:
        whole = domains(family)[0].whole
        total, tolerance = integral(family, case.phi[0]), 1e-12 if whole else 1e-6
    else:
        c, box = prepare(family, case.phi[0]), [(-12, 12)] * columns(family)
        accuracy: Any = {"epsabs": 1e-4, "epsrel": 1e-4}
        total, *_ = nquad(lambda *v: np.exp(log_density(family, v, c)), box, opts=accuracy)
        tolerance = 1e-3
    case.close(
        f"the integral of the density at {case.point()}", total, 1.0, "that of a density (log_density, constant)",
        0.0, tolerance,
    )  # fmt: skip


def draws_follow_the_density(case: Case) -> None:
    """Mean of the log density over draws, against its expectation by quadrature or summation, in standard errors."""
    y = case.draw(case.rng(1), np.zeros(MANY, dtype=np.int64), case.phi[:1])[:, 0]
    c = prepare(case.family, case.phi[0])
    values = log_density(case.family, y, c)
    expected = integral(case.family, case.phi[0], lambda v: log_density(case.family, v, c))
    off = (values.mean() - expected) / (values.std() / math.sqrt(MANY))
    case.must(
        abs(off) < 5,
        f"the mean of log_density over {MANY} draws is {values.mean():.6g}, but {expected:.6g} by integration "
        f"({off:.1f} standard errors apart) at {case.point()}: draw and log_density do not match",
    )


def constants_are_finite(case: Case) -> None:
    """Also where positive parameters are a hundredth or a hundred times as large, since samplers may get there."""
    positive = np.array([p.support == "positive" for p in case.family.parameters])
    for factor in (0.01, 1.0, 100.0):
        phi = np.where(positive, case.phi[0] * factor, case.phi[0])
        message = (
            f"prepare at {dict(zip((p.name for p in case.family.parameters), phi.tolist(), strict=True))} returned"
        )
        c = prepare(case.family, phi)
        case.must(np.isfinite(c), f"{message} {c}: all must be finite")


# ---------------------------------------------------------------- kernels
def kernels_agree_with_numpy(case: Case) -> None:
    y = case.sample(37)
    y[3], y[5, 0], y[6, -1] = np.nan, np.nan, np.nan
    model = case.model()
    parameters = model.natural(case.phi, EVEN)
    point, seen, series = prepared(model, parameters), observed_rows(case.family, y), Series(y)
    x, found = case.argument(y), densities(model, point, y)
    for k in range(2):
        expected = np.where(seen, log_density(case.family, x, prepare(case.family, point.phi[k])), 0.0)
        case.close("log_density in a kernel", found[:, k], expected, "in NumPy, it", 1e-13, 1e-14)
    gamma = smooth(model, parameters, series)[seen]
    pass_ = expectations(model, parameters, series, with_statistics=True)
    for k in range(2):
        c = prepare(case.family, point.phi[k])
        for function, sums in ((score, pass_.scores), (statistics, pass_.statistics)):
            one = function(case.family, case.argument(y[seen]), c)
            expected = np.array([np.sum(gamma[:, k] * s) for s in one])
            size = max([1.0, *(np.sum(gamma[:, k] * np.abs(s)) for s in one)])
            what = f"the expected sum of {function.__name__} from a kernel"
            case.close(what, sums[k], expected, "in NumPy, it", 0.0, 1e-10 * size)


def window_gradients_add_up(case: Case) -> None:
    """Gradients of windows whose buffer spans the series sum to the exact gradient, the slope of the log posterior."""
    series, model = Series(case.sample(150)), case.model()
    theta = model.pack(model.natural(case.phi, [[0.9, 0.1], [0.3, 0.7]]))
    total = window_gradients(model, theta, series, Windows(series, 2, 150)).sum(0)
    exact = log_posterior(model, theta, series)[1]
    wanted = exact - model.log_prior_gradient(theta)
    case.close("the sum of the window gradients", total, wanted, "the gradient of the series", 1e-9, 1e-9)
    for i, name in enumerate(model.component_names):
        e = 1e-5 * np.eye(model.size)[i]
        up, down = (log_posterior(model, theta + s * e, series)[0] for s in (1, -1))
        case.close(
            f"the gradient in {name}", exact[i], (up - down) / 2e-5, "the slope of the log posterior", 1e-5, 1e-4
        )


# ---------------------------------------------------------------- inputs
def linear_predictors_move_the_parameters(case: Case) -> None:
    """Log densities and scores after ``with_predictor``, on arrays and on lanes, against parameters moved by hand."""
    y, eta, _ = rows_with_inputs(case)
    densities_and_scores_move(case, y, eta, 0.0 * eta, "inputs on linear_predictor")


def log_scales_move_the_parameters(case: Case) -> None:
    """Log densities and scores after ``with_log_scale``, alone and after ``with_predictor``, as for that."""
    y, eta, zeta = rows_with_inputs(case)
    densities_and_scores_move(case, y, 0.0 * eta, zeta, "inputs on log_scale")
    densities_and_scores_move(case, y, eta, zeta, "inputs on linear_predictor, then log_scale,")


def rows_with_inputs(case: Case) -> tuple[Array, Array, Array]:
    """Observations, linear predictors and log scales of each row, (n, D); some columns are missing, if they may be."""
    y = case.sample(40)
    if columns(case.family) > 1 and hook(case.family, "accepts_partial_rows"):
        y[3, 0], y[4, -1] = np.nan, np.nan
    eta, zeta = 0.7 * case.rng(6).standard_normal((2, *y.shape))
    return y, eta, zeta


def densities_and_scores_move(case: Case, y: Array, eta: Array, zeta: Array, inputs: str) -> None:
    family, model = case.family, case.model()
    point, reference = prepared(model, model.natural(case.phi, EVEN)), "at the parameters moved by hand, it"
    for k in range(2):
        moved = move_parameters(family, case.phi[k], eta, zeta)
        at = [(case.argument(y[t : t + 1]), prepare(family, phi)) for t, phi in enumerate(moved)]
        wanted = [float(np.squeeze(log_density(family, *one))) for one in at]
        slopes = np.array([[float(np.squeeze(s)) for s in score(family, *one)] for one in at])
        given = add_inputs(
            family, case.argument(y), prepare(family, case.phi[k]), case.argument(eta), case.argument(zeta)
        )
        on_arrays = log_density(family, *given), np.array([s + np.zeros(len(y)) for s in score(family, *given)]).T
        with explained(case.name):
            on_lanes = moved_densities(family, point, k, y, eta, zeta)
        for where, (density, scores) in (("", on_arrays), (" in a kernel", on_lanes)):
            tail = f"after {inputs}{where} at {case.point(k)}, for row "
            case.close(f"log_density {tail}", density, wanted, reference, 1e-9, 1e-10)
            for i, p in enumerate(family.parameters):
                case.close(f"score of {p.name!r} {tail}", scores[:, i], slopes[:, i], reference, 1e-9, 1e-9)


def levels_are_what_observations_return_to(case: Case) -> None:
    """What draws are above a level (``returns_to``) has mean 0, within 5 standard errors, or is symmetric around 0."""
    y = case.draw(case.rng(9), np.zeros(MANY, dtype=np.int64), case.phi[:1])
    level = moves(case.family).level
    for d in np.flatnonzero(level >= 0):
        p, noise = case.family.parameters[level[d]], y[:, d] - case.phi[0, level[d]]
        off = noise.mean() / (noise.std() / math.sqrt(MANY))
        symmetric = float(ks_2samp(noise[::2], -noise[1::2], method="asymp").pvalue) > 1e-5
        case.must(
            symmetric or abs(off) < 5,
            f"observations do not return to {p.name!r}, which autoregression takes for the level of column {d}: what "
            f"draws are above it is not symmetric, and its mean is {off:.1f} standard errors from 0 at {case.point()}; "
            "the level must be their mean or centre. Leave it out of returns_to, a tuple of names that may be empty",
        )


def inputs_of_each_row(case: Case) -> None:
    """Draws and distribution functions take parameters of each row as well as those of each state."""
    n = 4000
    states = np.arange(n) % 2
    y = case.draw(case.rng(7), np.arange(n), case.phi[states])
    other = case.draw(case.rng(8), states, case.phi)
    for k in range(2):
        for d in range(y.shape[1]):
            p = float(ks_2samp(y[states == k, d], other[states == k, d], method="asymp").pvalue)
            case.must(
                p > 1e-5,
                f"draw with parameters of each row (states 0, 1, ..., n - 1) differs from draw with those of state {k} "
                f"in column {d} (p = {p:.2g}): index phi by states",
            )
    if has(case.family, "cdf") or has(case.family, "cdfs"):
        value = case.family.cdfs if has(case.family, "cdfs") else lambda y, phi: case.family.cdf(y[:, 0], phi)[:, None]
        found = value(y[:40], case.phi[states[:40]].T)
        wanted = [value(y[t : t + 1], case.phi[states[t]])[0] for t in range(40)]
        case.close(
            "cdf with parameters (P, n) of each row, in row, column ", found, wanted, "row by row, it", 1e-9, 1e-12
        )


# ---------------------------------------------------------------- priors and estimates
def default_priors_are_proper(case: Case) -> None:
    """They integrate to one, and their slope is that of their log density."""
    _, series = case.single()
    for p, prior in zip(case.family.parameters, default_priors(case.family, 2, series).emission, strict=True):
        check_prior(prior, p.name)
        u = np.linspace(-60.0, 60.0, 600_001) if p.support == "positive" else np.linspace(-25.0, 25.0, 500_001)
        x, dx = (np.exp(u), np.exp(u)) if p.support == "positive" else (np.sinh(u), np.cosh(u))
        with np.errstate(over="ignore", under="ignore"):
            mass = float(np.sum(np.exp(prior.log_density(x)) * dx) * (u[1] - u[0]))
        what = f"the integral of the default prior of {p.name!r}, {prior},"
        case.close(what, mass, 1.0, "that of a proper prior", 0.0, 1e-3)
        at, h = np.array([0.5, 1.5]), 1e-6
        slope = (prior.log_density(at + h) - prior.log_density(at - h)) / (2 * h)
        case.close(f"slope of the prior of {p.name!r}", prior.slope(at), slope, "by finite differences, it",
                   1e-6, 1e-7)  # fmt: skip


def estimate_lies_in_the_support(case: Case) -> None:
    y = case.sample(60)
    x = y[:, 0] if columns(case.family) == 1 else y
    weight = case.rng(4).integers(1, 4, len(y))
    found = inside(case, "estimate returned", np.asarray(case.family.estimate(x, weight.astype(float)))[None])[0]
    again = case.family.estimate(np.repeat(x, weight, axis=0), np.ones(weight.sum()))
    case.close("estimate with whole weights", found, again, "with observations repeated instead, it", 1e-9, 1e-9)
    one = np.asarray(case.family.estimate(x[:1], np.ones(1)))
    case.must(np.isfinite(one), f"estimate from one observation is {one}; all must be finite (a variance may be 0)")


def inside(case: Case, origin: str, found: Any) -> Array:
    """Parameters (K, P) as an array; raise an error that names their ``origin`` if they are not in their support."""
    P = len(case.family.parameters)
    phi: Array = np.asarray(found, dtype=float)
    case.must(phi.shape[1:] == (P,), f"{origin} shape {phi.shape[1:]} for each state; it must be ({P},)")
    for i, p in enumerate(case.family.parameters):
        low = 1 / HUGE if p.support == "positive" else -HUGE
        good = (phi[:, i] > low) & (phi[:, i] < HUGE)
        wanted = "positive and finite" if p.support == "positive" else "finite"
        case.must(good, f"{origin} {p.name} = {phi[~good, i][:1]}; it must be {wanted}")
    return phi


# ---------------------------------------------------------------- distribution functions and tails
def cdf_matches_draws_and_density(case: Case) -> None:
    """It turns draws into uniform numbers (counts: at random within a step), and is the integral of the density."""
    family, whole = case.family, domains(case.family)[0].whole
    y = case.draw(case.rng(2), np.zeros(MANY, dtype=np.int64), case.phi[:1])[:, 0]

    def p_value(phi: Array) -> float:
        low = family.cdf(y - 1, phi) if whole else family.cdf(y, phi)
        return float(kstest(low + case.rng(3).random(MANY) * (family.cdf(y, phi) - low), "uniform").pvalue)

    right, wrong = p_value(case.phi[0]), p_value(np.where(case.phi[0] == 0, 0.2, 1.3 * case.phi[0]))
    case.must(right > 1e-3, f"cdf of draws at {case.point()} is not uniform (p = {right:.2g})")
    case.must(wrong < 1e-3, f"cdf hardly depends on the parameters (p = {wrong:.2g} at 1.3 times {case.point()})")
    for v in np.quantile(y, [0.1, 0.5, 0.9], method="nearest"):
        found, wanted = family.cdf(np.array([v]), case.phi[0])[0], integral(family, case.phi[0], below=v)
        case.close(f"cdf({v:.6g}) at {case.point()}", found, wanted, "the integral of the density", 0.0, 1e-6)


def heavier_families_are_heavier(case: Case) -> None:
    """Ten times as far from the median as any draw, they have the larger density, on the same domain."""
    y = case.sample(MANY)
    middle = np.median(y, axis=0)
    far = middle + 10 * (y.max(0) - middle)
    for other, phi in rivals(case.family, case.phi):
        check_family(other)
        more = Case(other, phi)
        inside(more, f"heavier of {case.name} returned", phi)
        case.must(domains(other) == domains(case.family), f"heavier returned {more.name}, which has another domain")
        for k in range(2):
            mine, its = case.density(far[None], case.phi[k])[0], more.density(far[None], phi[k])[0]
            case.must(
                its > mine, f"heavier returned {more.name}: its log density at {far} is {its:.4g}, not above {mine:.4g}"
            )


# ---------------------------------------------------------------- M-steps and draws given the states
def totals(case: Case, y: Array, c: Any) -> Array:
    """Sums (Q,) of the statistics of rows."""
    return np.array([np.sum(s) for s in statistics(case.family, case.argument(y), c)])


def m_steps_converge_to_the_mode(case: Case) -> None:
    """For one state: no step lowers the log posterior, and the steps converge to the mode that BFGS finds."""
    model, series = case.single()
    found = climb(model, series, model.natural(case.phi[1:], [[1.0]]), steps=3000, tolerance=1e-13)
    fall = -np.diff(found.trace).min(initial=0.0)
    case.must(found.converged, "M-steps (maximise) do not converge in 3000 steps")
    case.must(fall < 1e-9, f"an M-step (maximise) lowers the log posterior by {fall:.3g}")
    theta = model.pack(found.parameters)

    def down(x: Array) -> float:
        return -log_posterior(model, x, series)[0]

    best = minimize(down, theta + 0.01, method="BFGS", options={"gtol": 1e-7})
    case.close("log posterior where M-steps (maximise) converge", found.log_posterior, -best.fun,
               "at the mode that BFGS finds, it", 0.0, 1e-6)  # fmt: skip
    for name, slope in zip(model.component_names, log_posterior(model, theta, series)[1], strict=True):
        case.close(f"slope in {name} where M-steps (maximise) converge", slope, 0.0, "at a mode, it", 0.0, 1e-4)


def m_steps_keep_fixed_values(case: Case) -> None:
    first, phi = case.family.parameters[0].name, case.phi[1:]
    model, series = case.single(fixed={first: phi[:, 0]})
    found = climb(model, series, model.natural(phi, [[1.0]]), steps=3000, tolerance=1e-13)
    kept = found.parameters.phi[:, 0]
    case.close(f"{first}, which is fixed, after M-steps (maximise)", kept, phi[:, 0], "its fixed value", 1e-7, 0.0)
    slopes: Any = log_posterior(model, model.pack(found.parameters), series)[1] if model.size else ()
    for name, slope in zip(model.component_names, slopes, strict=True):
        case.close(f"slope in {name} where M-steps converge with {first} fixed", slope, 0.0, "at a mode, it", 0.0, 1e-4)


def complete_score_is_the_score(case: Case) -> None:
    """It is the sum of scores where the statistics were taken, 0 at the M-step without priors, and finite elsewhere."""
    y, phi, other = case.sample(40), *case.phi
    c, away = prepare(case.family, phi), prepare(case.family, 0.5 * (phi + other))
    sums, n = totals(case, y, c), len(y)
    names = [p.name for p in case.family.parameters]
    case.must(
        provides(complete_score, case.family),
        "it has maximise but no complete_score, which the control variates of chains need",
    )
    each = [np.sum(s) for s in score(case.family, case.argument(y), c)]
    for name, found, wanted in zip(names, complete_score(case.family, n, sums, c, c), each, strict=True):
        case.close(f"complete_score of {name!r}", found, wanted, "the sum of the scores", 1e-9, 1e-9)
    best = case.family.maximise(phi[None], np.array([float(n)]), sums[None], no_priors(case.family).emission)[0]
    case.must(np.abs(best - phi).max() > 0.01, f"maximise stays at {case.point()} whatever the observations")
    for name, found in zip(names, complete_score(case.family, n, sums, c, prepare(case.family, best)), strict=True):
        case.close(
            f"complete_score of {name!r} at the M-step without priors", found, 0.0, "at a maximum, it", 0.0, 1e-6
        )
    case.must(np.isfinite(complete_score(case.family, n, sums, c, away)), "complete_score is not finite away from hat")


def a_state_without_observations_has_an_m_step(case: Case) -> None:
    """Its parameters stay finite and in their support, even without a prior."""
    Q = len(totals(case, case.sample(1), prepare(case.family, case.phi[0])))
    flat = no_priors(case.family).emission
    found = case.family.maximise(case.phi, np.zeros(2), np.zeros((2, Q)), flat)
    inside(case, "maximise without observations returned", found)


def conditional_draws_from_the_posterior(case: Case) -> None:
    """Identities of the posterior given 20 observations hold over 1000 chains of draws, in standard errors.

    With g the slope of the log posterior in a coordinate theta of mean m, E g = 0 and E (theta - m) g = -1.
    """
    model, series = case.single()
    y, family, K, P = series.read(0, 20), case.family, 1000, len(case.family.parameters)
    n, rng, phi = len(y), case.rng(5), np.repeat(case.phi[1:], K, axis=0)
    x: Any = y[:, :1] if columns(family) == 1 else tuple(y.T[..., None])
    for _ in range(10):
        c = tuple(np.array([prepare(family, row) for row in phi]).T)
        sums = np.stack([np.sum(s + np.zeros((n, K)), axis=0) for s in statistics(family, x, c)], axis=1)  # (K, Q)
        phi = inside(
            case,
            "conditional returned",
            family.conditional(rng, phi, np.full(K, float(n)), sums, model.priors.emission),
        )
    case.must(phi.shape == (K, P), f"conditional returned shape {phi.shape} for {K} states of {P} parameters")
    c = tuple(np.array([prepare(family, row) for row in phi]).T)
    slopes = [np.sum(s + np.zeros((n, K)), axis=0) for s in score(family, x, c)]
    for i, (p, prior) in enumerate(zip(family.parameters, model.priors.emission, strict=True)):
        log = p.support == "positive"
        g = (slopes[i] + prior.slope(phi[:, i])) * (phi[:, i] if log else 1.0) + (1.0 if log else 0.0)
        theta = np.log(phi[:, i]) if log else phi[:, i]
        for message, values in (("slope", g), ("slope times theta, plus 1,", (theta - theta.mean()) * g + 1)):
            off = values.mean() / (values.std() / math.sqrt(K))
            case.must(
                abs(off) < 5,
                f"draws of {p.name!r} by conditional do not follow the posterior: their mean {message} is "
                f"{off:.1f} standard errors from 0",
            )


class Requirement(NamedTuple):
    """One requirement of the contract.

    ``holds`` raises an error if a case violates it; it applies to families that have the hook ``needs``, if there is
    one, and that read one column, if ``single_column``.
    """

    holds: Callable[[Case], None]
    needs: str = ""
    single_column: bool = False


REQUIREMENTS = (
    Requirement(draws_lie_in_the_domain),
    Requirement(domain_ends_at_its_bounds),
    Requirement(constants_are_finite),
    Requirement(score_is_the_slope),
    Requirement(log_density_takes_arrays_of_constants),
    Requirement(density_integrates_to_one),
    Requirement(draws_follow_the_density, single_column=True),
    Requirement(default_priors_are_proper),
    Requirement(kernels_agree_with_numpy),
    Requirement(window_gradients_add_up),
    Requirement(linear_predictors_move_the_parameters, "linear_predictor"),
    Requirement(log_scales_move_the_parameters, "log_scale"),
    Requirement(levels_are_what_observations_return_to, "linear_predictor"),
    Requirement(inputs_of_each_row, "linear_predictor"),
    Requirement(estimate_lies_in_the_support, "estimate"),
    Requirement(cdf_matches_draws_and_density, "cdf"),
    Requirement(heavier_families_are_heavier, "heavier"),
    Requirement(complete_score_is_the_score, "maximise"),
    Requirement(a_state_without_observations_has_an_m_step, "maximise"),
    Requirement(m_steps_converge_to_the_mode, "maximise"),
    Requirement(m_steps_keep_fixed_values, "maximise"),
    Requirement(conditional_draws_from_the_posterior, "conditional"),
)


def default_phi(family: Family) -> Array:
    """Parameters (2, P) of two states, inside their support."""
    return np.array([[0.7 if p.support == "real" else 1.3 for p in family.parameters],
                     [-1.1 if p.support == "real" else 0.4 for p in family.parameters]])  # fmt: skip


def applicable(family: Family) -> list[Requirement]:
    """Requirements that apply to a family."""
    mine = [one for one in REQUIREMENTS if not one.needs or has(family, one.needs)]
    return [one for one in mine if columns(family) == 1 or not one.single_column]


def check_emission(family: Family, phi: Any = None, *, seed: int = 0) -> Checked:
    """Check numerically that a family satisfies the contract of ``rarehmm.emissions``.

    It takes seconds, and up to a minute to compile at first.

    Parameters
    ----------
    family
        Instance of the family.
    phi
        Parameters (2, P) of the two states at which it is tested; by default 0.7 and -1.1 for real parameters, 1.3 and
        0.4 for positive ones.
    seed
        Seed of the draws.

    Returns
    -------
    Checked
        The requirements that hold, and what the family does without; print it to read them.

    Raises
    ------
    ValueError
        For the first requirement that is violated, with the function, the parameter and the numbers.

    Examples
    --------
    >>> from rarehmm import Exponential, check_emission
    >>> print(check_emission(Exponential()))  # doctest: +ELLIPSIS
    Exponential satisfies the contract:
      draws lie in the domain
    ...
    """
    check_family(family)
    phi = default_phi(family) if phi is None else np.asarray(phi, dtype=float)
    case = Case(family, phi, seed)
    P = len(family.parameters)
    case.must(phi.shape == (2, P), f"phi has shape {phi.shape}; it must be (2, {P}), for two states")
    inside(case, "phi has", phi)
    wanted = {one.needs for one in REQUIREMENTS}
    without = {name: one.without for name, one in HOOKS.items() if name in wanted and not has(family, name)}
    return check_all(case.name, case, (one.holds for one in applicable(family)), without)
