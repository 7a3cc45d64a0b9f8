"""The contract of a family in numbers: ``check_emission`` runs every promise of ``rarehmm.emissions`` on a family.

``check_family`` is cheap and looks at shapes, at every ``Model``; this takes seconds (and a minute to compile, once),
and is for authors: the tests run the same checks on every family of the library.  Each check is a function of a
``Case``; it raises ``ValueError`` with the function, the parameter and the numbers.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.integrate import nquad, quad
from scipy.optimize import minimize
from scipy.stats import kstest

from rarehmm.common.arrays import Array
from rarehmm.data.series import Series
from rarehmm.engine.contracts.family import (
    Family,
    check_family,
    columns,
    complete_score,
    constant,
    domains,
    log_density,
    observed_rows,
    prepare,
    score,
    statistics,
)
from rarehmm.engine.dispatch import provides
from rarehmm.exact.densities import densities, prepared
from rarehmm.exact.em import climb
from rarehmm.exact.passes import expectations, log_posterior, smooth
from rarehmm.model.checks import check_prior
from rarehmm.model.coordinates import HUGE
from rarehmm.model.model import Model
from rarehmm.model.named_priors import default_priors, no_priors
from rarehmm.model.parameters import Priors
from rarehmm.model.priors import Normal
from rarehmm.windows.gradients import window_gradients
from rarehmm.windows.windows import Windows

MANY = 20_000  # draws for the checks by chance, which fail wrongly once in thousands of seeds
EVEN = np.full((2, 2), 0.5)


class Case(NamedTuple):
    """A family, parameters (2, P) of two states of it, and a seed."""

    family: Any
    phi: Array
    seed: int = 0

    @property
    def name(self) -> str:
        return type(self.family).__name__.split("#")[0]  # without the number of a class that was defined again

    def point(self, k: int = 0) -> str:
        """Parameters of a state in words."""
        return ", ".join(f"{p.name} = {v:.6g}" for p, v in zip(self.family.parameters, self.phi[k], strict=True))

    def rng(self, stream: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, stream])

    def sample(self, n: int) -> Array:
        """Observations (n, D) of both states."""
        rng = self.rng(0)
        return self.drawn(rng, rng.integers(0, 2, n), self.phi)

    def drawn(self, rng: np.random.Generator, states: Any, phi: Array) -> Array:
        y = np.asarray(self.family.draw(rng, states, phi), dtype=float)
        D = columns(self.family)
        self.must(
            y.shape in ((len(states), D), (len(states),) * (D == 1)),
            f"draw returned an array {y.shape} for {len(states)} states; ({len(states)}, {D}) is needed",
        )
        return y.reshape(len(states), D)

    def argument(self, y: Array) -> Any:
        """Rows (n, D) as the functions of a family read them."""
        return y[:, 0] if columns(self.family) == 1 else tuple(y.T)

    def density(self, y: Array, phi: Array) -> Array:
        """Log density of rows (n, D), with all terms."""
        return np.asarray(log_density(self.family, self.argument(y), prepare(self.family, phi))) + constant(
            self.family, y
        )

    def model(self) -> Model:
        """Two states with priors that need no data."""
        return Model(self.family, 2, Priors(tuple(Normal(0.0, 1.0) for _ in self.family.parameters)))

    def single(self, fixed: Any = None) -> tuple[Model, Series]:
        """One state with default priors, and 60 observations."""
        series = Series(self.sample(60))
        return Model(self.family, 1, default_priors(self.family, 1, series), fixed=fixed), series

    def must(self, good: Any, message: str) -> None:
        if not np.all(good):
            raise ValueError(f"{self.name}: {message}.")

    def close(self, what: str, found: Any, wanted: Any, than: str, rtol: float, atol: float) -> None:
        """Refuse numbers that are apart; the worst of them is named."""
        found, wanted = np.broadcast_arrays(np.asarray(found, dtype=float), np.asarray(wanted, dtype=float))
        off = np.abs(found - wanted) / (atol + rtol * np.abs(wanted))
        off = np.where(np.isfinite(off) | (found == wanted), off, np.inf)
        if off.size and np.nanmax(np.where(found == wanted, 0.0, off)) > 1:
            at = np.unravel_index(np.argmax(np.where(found == wanted, 0.0, off)), off.shape)
            place = f"[{', '.join(map(str, at))}]" if at else ""
            raise ValueError(f"{self.name}: {what}{place} is {found[at]:.10g}; {than} is {wanted[at]:.10g}.")


# ---------------------------------------------------------------- densities and draws
def draws_lie_in_the_domain(case: Case) -> None:
    y = case.sample(1000)
    for d, (column, domain) in enumerate(zip(y.T, domains(case.family), strict=True)):
        bad = ~(np.isfinite(column) & domain.valid(column))
        case.must(~bad, f"draw gave {column[bad][:1]} in column {d}; the domain is {domain.message}")
    states = np.zeros(len(y), dtype=np.int64)
    one, same, other = (case.drawn(np.random.default_rng(s), states, case.phi) for s in (1, 1, 2))
    case.must((one == same).all() and (one != other).any(), "draw must take all its chance from rng")
    second = case.drawn(np.random.default_rng(1), states + 1, case.phi)
    case.must((one != second).any(), "draw does not depend on the state")


def a_domain_ends_at_its_bounds(case: Case) -> None:
    for domain in domains(case.family):
        outside = [v for v in (domain.low - 1, domain.high + 1) if np.isfinite(v)] + [0.5] * domain.whole
        case.must(~domain.valid(np.array(outside)), f"the domain, {domain.message}, takes one of {outside}")


def score_is_the_slope(case: Case) -> None:
    """By central differences at both states; where these disagree with themselves (a corner), only one side counts."""
    y, h = case.sample(40), 1e-6
    x = case.argument(y)
    for k, phi in enumerate(case.phi):
        found = score(case.family, x, prepare(case.family, phi))
        P = len(case.family.parameters)
        case.must(len(found) == P, f"score returned {len(found)} values; there are {P} parameters")
        for i, slope in enumerate(found):
            e = h * max(1.0, abs(phi[i])) * np.eye(P)[i]
            up, down = (log_density(case.family, x, prepare(case.family, phi + s * e)) for s in (1, -1))
            what = f"score of {case.family.parameters[i].name!r} for observations of draw, at {case.point(k)}, "
            than = "the slope of log_density by differences"
            case.close(what, slope, (up - down) / (2 * e[i]), than, 1e-6, 1e-7)


def densities_of_many_states(case: Case) -> None:
    constants = [prepare(case.family, row) for row in case.phi]
    y = case.sample(1)[0]
    x = y[0] if len(y) == 1 else tuple(y)
    together = log_density(case.family, x, tuple(np.array(constants).T))
    one_by_one = [log_density(case.family, x, c) for c in constants]
    case.close("log_density with arrays of constants", together, one_by_one, "one by one it", 1e-12, 1e-14)


def integral(family: Any, phi: Array, value: Callable[[Any], Any] = np.ones_like, below: float = math.inf) -> float:
    """Expectation of a function of y where y <= below, in a state with parameters phi: over the family's domain."""
    c, domain = prepare(family, phi), domains(family)[0]

    def part(y: Array) -> Any:
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):  # far out, where a density is 0
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
    """Mean of the log density over draws against its expectation by quadrature or summation, in standard errors."""
    y = case.drawn(case.rng(1), np.zeros(MANY, dtype=np.int64), case.phi[:1])[:, 0]
    c = prepare(case.family, case.phi[0])
    values = log_density(case.family, y, c)
    expected = integral(case.family, case.phi[0], lambda v: log_density(case.family, v, c))
    off = (values.mean() - expected) / (values.std() / math.sqrt(MANY))
    case.must(
        abs(off) < 5,
        f"the mean of log_density over {MANY} draws is {values.mean():.6g}, by integration {expected:.6g} "
        f"({off:.1f} standard errors) at {case.point()}: draw and log_density do not belong together",
    )


def constants_are_finite(case: Case) -> None:
    """At a hundredth and a hundred times of positive parameters too, where samplers come by."""
    positive = np.array([p.support == "positive" for p in case.family.parameters])
    for factor in (0.01, 1.0, 100.0):
        phi = np.where(positive, case.phi[0] * factor, case.phi[0])
        message = (
            f"prepare at {dict(zip((p.name for p in case.family.parameters), phi.tolist(), strict=True))} returned"
        )
        c = prepare(case.family, phi)
        case.must(np.isfinite(c), f"{message} {c}: all must be finite")


# ---------------------------------------------------------------- kernels
def kernels_are_numpy(case: Case) -> None:
    y = case.sample(37)
    y[3], y[5, 0], y[6, -1] = np.nan, np.nan, np.nan
    model = case.model()
    parameters = model.natural(case.phi, EVEN)
    point, seen, series = prepared(model, parameters), observed_rows(case.family, y), Series(y)
    x, found = case.argument(y), densities(model, point, y)
    for k in range(2):
        expected = np.where(seen, log_density(case.family, x, prepare(case.family, point.phi[k])), 0.0)
        case.close("log_density in a kernel", found[:, k], expected, "in NumPy it", 1e-13, 1e-14)
    gamma = smooth(model, parameters, series)[seen]
    pass_ = expectations(model, parameters, series, with_statistics=True)
    for k in range(2):
        c = prepare(case.family, point.phi[k])
        for function, sums in ((score, pass_.scores), (statistics, pass_.statistics)):
            one = function(case.family, case.argument(y[seen]), c)
            expected = np.array([np.sum(gamma[:, k] * s) for s in one])
            size = max([1.0, *(np.sum(gamma[:, k] * np.abs(s)) for s in one)])
            what = f"the expected sum of {function.__name__} by a kernel"
            case.close(what, sums[k], expected, "in NumPy it", 0.0, 1e-10 * size)


def windows_add_up(case: Case) -> None:
    """Gradients of windows with a buffer of everything sum to the exact gradient, which is the slope in theta."""
    series, model = Series(case.sample(150)), case.model()
    theta = model.pack(model.natural(case.phi, [[0.9, 0.1], [0.3, 0.7]]))
    total = window_gradients(model, theta, series, Windows(series, 2, 150)).sum(0)
    exact = log_posterior(model, theta, series)[1]
    wanted = exact - model.log_prior_gradient(theta)
    case.close("the sum of the gradients of windows", total, wanted, "that of the series", 1e-9, 1e-9)
    for i, name in enumerate(model.component_names):
        e = 1e-5 * np.eye(model.size)[i]
        up, down = (log_posterior(model, theta + s * e, series)[0] for s in (1, -1))
        case.close(
            f"the gradient in {name}", exact[i], (up - down) / 2e-5, "the slope of the log posterior", 1e-5, 1e-4
        )


# ---------------------------------------------------------------- priors and estimates
def default_priors_are_proper(case: Case) -> None:
    """Densities that integrate to one, with the right slope, and centred within reach of the data."""
    _, series = case.single()
    for p, prior in zip(case.family.parameters, default_priors(case.family, 2, series).emission, strict=True):
        check_prior(prior, p.name)
        u = np.linspace(-60.0, 60.0, 600_001) if p.support == "positive" else np.linspace(-25.0, 25.0, 500_001)
        x, dx = (np.exp(u), np.exp(u)) if p.support == "positive" else (np.sinh(u), np.cosh(u))
        with np.errstate(over="ignore", under="ignore"):
            mass = float(np.sum(np.exp(prior.log_density(x)) * dx) * (u[1] - u[0]))
        what = f"the integral of the default prior of {p.name!r}, {prior},"
        case.close(what, mass, 1.0, "that of a proper one", 0.0, 1e-3)
        at, h = np.array([0.5, 1.5]), 1e-6
        slope = (prior.log_density(at + h) - prior.log_density(at - h)) / (2 * h)
        case.close(f"slope of the prior of {p.name!r}", prior.slope(at), slope, "the slope of its log_density",
                   1e-6, 1e-7)  # fmt: skip


def estimate_lies_in_the_support(case: Case) -> None:
    y = case.sample(60)
    x = y[:, 0] if columns(case.family) == 1 else y
    weight = case.rng(4).integers(1, 4, len(y))
    found = inside(case, "estimate", np.asarray(case.family.estimate(x, weight.astype(float)))[None])[0]
    again = case.family.estimate(np.repeat(x, weight, axis=0), np.ones(weight.sum()))
    case.close("estimate with whole weights", found, again, "with observations repeated as often it", 1e-9, 1e-9)
    one = np.asarray(case.family.estimate(x[:1], np.ones(1)))
    case.must(np.isfinite(one), f"estimate of one observation is {one}: all must be finite (a variance may be 0)")


def inside(case: Case, what: str, found: Any) -> Array:
    """Parameters (K, P), which must be finite, and positive where they should."""
    P = len(case.family.parameters)
    phi: Array = np.asarray(found, dtype=float)
    case.must(phi.shape[1:] == (P,), f"{what} returned an array {phi.shape[1:]} for each state; ({P},) is needed")
    for i, p in enumerate(case.family.parameters):
        low = 1 / HUGE if p.support == "positive" else -HUGE
        good = (phi[:, i] > low) & (phi[:, i] < HUGE)
        message = "positive and finite" if p.support == "positive" else "finite"
        case.must(good, f"{what} returned {p.name} = {phi[~good, i][:1]}; it must be {message}")
    return phi


# ---------------------------------------------------------------- distribution functions and tails
def cdf_belongs_to_draws_and_density(case: Case) -> None:
    """It makes uniform numbers of draws, if those of discrete draws are spread over their step."""
    family, whole = case.family, domains(case.family)[0].whole
    y = case.drawn(case.rng(2), np.zeros(MANY, dtype=np.int64), case.phi[:1])[:, 0]

    def p_value(phi: Array) -> float:
        low = family.cdf(y - 1, phi) if whole else family.cdf(y, phi)
        return float(kstest(low + case.rng(3).random(MANY) * (family.cdf(y, phi) - low), "uniform").pvalue)

    right, wrong = p_value(case.phi[0]), p_value(np.where(case.phi[0] == 0, 0.2, 1.3 * case.phi[0]))
    case.must(right > 1e-3, f"cdf of draws at {case.point()} is not uniform (p = {right:.2g})")
    case.must(wrong < 1e-3, f"cdf hardly changes with the parameters (p = {wrong:.2g} at 1.3 times {case.point()})")
    for v in np.quantile(y, [0.1, 0.5, 0.9], method="nearest"):
        found, wanted = family.cdf(np.array([v]), case.phi[0])[0], integral(family, case.phi[0], below=v)
        case.close(f"cdf({v:.6g}) at {case.point()}", found, wanted, "the integral of the density", 0.0, 1e-6)


def heavier_families_are_heavier(case: Case) -> None:
    """Ten times as far from the middle as any draw, they have the larger density, in the same domain."""
    y = case.sample(MANY)
    middle = np.median(y, axis=0)
    far = middle + 10 * (y.max(0) - middle)
    for other, phi in case.family.heavier(case.phi):
        check_family(other)
        more = Case(other, phi)
        inside(more, f"heavier of {case.name}", phi)
        case.must(domains(other) == domains(case.family), f"heavier returned {more.name}, of another domain")
        for k in range(2):
            mine, its = case.density(far[None], case.phi[k])[0], more.density(far[None], phi[k])[0]
            case.must(
                its > mine, f"heavier returned {more.name}: its log density at {far} is {its:.4g}, here {mine:.4g}"
            )


# ---------------------------------------------------------------- M-steps and draws given the states
def totals(case: Case, y: Array, c: Any) -> Array:
    """Sums of the statistics (Q,) of rows."""
    return np.array([np.sum(s) for s in statistics(case.family, case.argument(y), c)])


def m_steps_climb_to_the_mode(case: Case) -> None:
    """Of one state: every step raises the log posterior, and no quasi-Newton step finds more where they settle."""
    model, series = case.single()
    found = climb(model, series, model.natural(case.phi[1:], [[1.0]]), steps=3000, tolerance=1e-13)
    fall = -np.diff(found.trace).min(initial=0.0)
    case.must(found.converged, "M-steps (maximise) do not settle in 3000 steps")
    case.must(fall < 1e-9, f"an M-step (maximise) lowers the log posterior by {fall:.3g}")
    theta = model.pack(found.parameters)

    def down(x: Array) -> float:
        return -log_posterior(model, x, series)[0]

    best = minimize(down, theta + 0.01, method="BFGS", options={"gtol": 1e-7})
    case.close("log posterior where M-steps (maximise) settle", found.log_posterior, -best.fun,
               "that of the mode by quasi-Newton steps", 0.0, 1e-6)  # fmt: skip
    for name, slope in zip(model.component_names, log_posterior(model, theta, series)[1], strict=True):
        case.close(f"slope in {name} where M-steps (maximise) settle", slope, 0.0, "at a mode it", 0.0, 1e-4)


def m_steps_keep_known_values(case: Case) -> None:
    first, phi = case.family.parameters[0].name, case.phi[1:]
    model, series = case.single(fixed={first: phi[:, 0]})
    found = climb(model, series, model.natural(phi, [[1.0]]), steps=3000, tolerance=1e-13)
    kept = found.parameters.phi[:, 0]
    case.close(f"{first}, which is known, after M-steps (maximise),", kept, phi[:, 0], "what was known", 1e-7, 0.0)
    slopes: Any = log_posterior(model, model.pack(found.parameters), series)[1] if model.size else ()
    for name, slope in zip(model.component_names, slopes, strict=True):
        case.close(f"slope in {name} where M-steps settle, {first} known,", slope, 0.0, "at a mode it", 0.0, 1e-4)


def complete_score_is_the_score(case: Case) -> None:
    """The sum of scores where the statistics were taken, 0 at the M-step without priors, finite elsewhere."""
    y, phi, other = case.sample(40), *case.phi
    c, away = prepare(case.family, phi), prepare(case.family, 0.5 * (phi + other))
    sums, n = totals(case, y, c), len(y)
    names = [p.name for p in case.family.parameters]
    case.must(provides(complete_score, case.family), "there is maximise and no complete_score: chains have no variate")
    each = [np.sum(s) for s in score(case.family, case.argument(y), c)]
    for name, found, wanted in zip(names, complete_score(case.family, n, sums, c, c), each, strict=True):
        case.close(f"complete_score of {name!r}", found, wanted, "the sum of scores", 1e-9, 1e-9)
    best = case.family.maximise(phi[None], np.array([float(n)]), sums[None], no_priors(case.family).emission)[0]
    case.must(np.abs(best - phi).max() > 0.01, f"maximise stays at {case.point()}, whatever the observations")
    for name, found in zip(names, complete_score(case.family, n, sums, c, prepare(case.family, best)), strict=True):
        case.close(f"complete_score of {name!r} at the M-step without priors", found, 0.0, "at a maximum it", 0.0, 1e-6)
    case.must(np.isfinite(complete_score(case.family, n, sums, c, away)), "complete_score is not finite away from hat")


def a_state_without_observations_has_an_m_step(case: Case) -> None:
    """Also without a prior, its parameters stay finite and in their support."""
    Q = len(totals(case, case.sample(1), prepare(case.family, case.phi[0])))
    flat = no_priors(case.family).emission
    found = case.family.maximise(case.phi, np.zeros(2), np.zeros((2, Q)), flat)
    inside(case, "maximise without observations", found)


def conditional_draws_the_posterior(case: Case) -> None:
    r"""1000 chains of draws given 20 observations: with g the slope of the log posterior in theta, E g = 0 and
    E (theta - m) g = -1 for every coordinate, in standard errors."""
    model, series = case.single()
    y, family, K, P = series.read(0, 20), case.family, 1000, len(case.family.parameters)
    n, rng, phi = len(y), case.rng(5), np.repeat(case.phi[1:], K, axis=0)
    x: Any = y[:, :1] if columns(family) == 1 else tuple(y.T[..., None])
    for _ in range(10):
        c = tuple(np.array([prepare(family, row) for row in phi]).T)
        sums = np.stack([np.sum(s + np.zeros((n, K)), axis=0) for s in statistics(family, x, c)], axis=1)  # (K, Q)
        phi = inside(
            case, "conditional", family.conditional(rng, phi, np.full(K, float(n)), sums, model.priors.emission)
        )
    case.must(phi.shape == (K, P), f"conditional returned an array {phi.shape} for {K} states of {P} parameters")
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


class Check(NamedTuple):
    """One promise: the function that holds a case to it, and what a family must bring for it to apply, or that it must
    be of one column."""

    holds: Callable[[Case], None]
    needs: str = ""
    alone: bool = False


CHECKS = (
    Check(draws_lie_in_the_domain),
    Check(a_domain_ends_at_its_bounds),
    Check(constants_are_finite),
    Check(score_is_the_slope),
    Check(densities_of_many_states),
    Check(density_integrates_to_one),
    Check(draws_follow_the_density, alone=True),
    Check(default_priors_are_proper),
    Check(kernels_are_numpy),
    Check(windows_add_up),
    Check(estimate_lies_in_the_support, "estimate"),
    Check(cdf_belongs_to_draws_and_density, "cdf"),
    Check(heavier_families_are_heavier, "heavier"),
    Check(complete_score_is_the_score, "maximise"),
    Check(a_state_without_observations_has_an_m_step, "maximise"),
    Check(m_steps_climb_to_the_mode, "maximise"),
    Check(m_steps_keep_known_values, "maximise"),
    Check(conditional_draws_the_posterior, "conditional"),
)

# what a family does without, if it does not bring something
WITHOUT = {
    "estimate": "no start from labels by its own rule",
    "maximise": "modes by gradients instead of EM, chains whose control variates are gradients",
    "conditional": "no Gibbs sampling",
    "cdf": "no residuals (RareHMM.check looks at replicas alone)",
    "heavier": "rare states are not tried against heavier tails",
}


class Checked(NamedTuple):
    """What was found right, and what the family does without; in words if printed."""

    name: str
    right: tuple[str, ...]
    without: tuple[str, ...]

    def __str__(self) -> str:
        lines = [f"{self.name} keeps the contract:", *(f"  {one.replace('_', ' ')}" for one in self.right)]
        lines += [f"  without {one}: {WITHOUT[one]}" for one in self.without]
        return "\n".join(lines)


def default_phi(family: Family) -> Array:
    """Two states (2, P) with parameters inside their support."""
    return np.array([[0.7 if p.support == "real" else 1.3 for p in family.parameters],
                     [-1.1 if p.support == "real" else 0.4 for p in family.parameters]])  # fmt: skip


def applicable(family: Family) -> list[Check]:
    """The checks of all that a family brings."""
    mine = [check for check in CHECKS if not check.needs or hasattr(family, check.needs)]
    return [check for check in mine if columns(family) == 1 or not check.alone]


def check_emission(family: Family, phi: Any = None, *, seed: int = 0) -> Checked:
    """Hold a family of your own to every promise of ``rarehmm.emissions``, in numbers.

    ``phi`` (2, P) are parameters of two states at which it is looked at; by default 0.7 and -1.1 for real ones, 1.3 and
    0.4 for positive ones.  Takes seconds, and up to a minute at first, to compile.  The first promise that is broken
    raises ``ValueError`` with the function, the parameter and the numbers.

    >>> from rarehmm import Exponential, check_emission
    >>> print(check_emission(Exponential()))  # doctest: +ELLIPSIS
    Exponential keeps the contract:
      draws lie in the domain
    ...
    """
    check_family(family)
    phi = default_phi(family) if phi is None else np.asarray(phi, dtype=float)
    case = Case(family, phi, seed)
    case.must(phi.shape == (2, len(family.parameters)), f"phi has shape {phi.shape}; (2, P) is needed")
    inside(case, "phi", phi)
    for check in applicable(family):
        check.holds(case)
    right = tuple(check.holds.__name__ for check in applicable(family))
    return Checked(case.name, right, tuple(name for name in WITHOUT if not hasattr(family, name)))
