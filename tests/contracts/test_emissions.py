"""The contract of families, for every file of the folder and for one written as a user would."""

import ast
import pathlib
import pickle
from typing import NamedTuple

import numpy as np
import pytest
from scipy.stats import laplace as laplace_distribution
from small_models import Pair

from rarehmm import (
    Categorical,
    Flat,
    Gaussian,
    GaussianMixture,
    InverseGamma,
    LogNormal,
    Model,
    MultivariateGaussian,
    NegativeBinomial,
    Normal,
    Poisson,
    Priors,
    Product,
    StudentT,
    check_emission,
    emissions,
    no_priors,
)
from rarehmm.conformance import emission as contract
from rarehmm.conformance.emission import REQUIREMENTS, Case, applicable, default_phi
from rarehmm.data.domains import POSITIVE, REALS, Domain
from rarehmm.emissions import families, rivals
from rarehmm.engine.contracts.family import (
    HOOKS,
    Parameter,
    complete_score,
    has,
    hook,
    log_density,
    prepare,
    score,
    statistics,
    with_log_scale,
    with_predictor,
)
from rarehmm.engine.dispatch import JIT, compiled
from rarehmm.exact.densities import densities, prepared

PRODUCTS = [
    Product(Gaussian(), Gaussian()),
    Product(StudentT(4.0), MultivariateGaussian(2)),
    Product(one=Gaussian()),
]
SIZES = [MultivariateGaussian(2, diagonal=True), MultivariateGaussian(3), Categorical(5), GaussianMixture(3)]
MORE = [Pair(), *SIZES, *PRODUCTS]
ALL = [kind() for kind in families().values()] + MORE


def model_of(family):
    return Model(family, 2, Priors(tuple(Normal(0.0, 1.0) for _ in family.parameters)))


def test_the_folder_is_the_registry():
    assert {"gaussian", "student_t", "poisson"} <= set(families())


LARGE = [*SIZES[1:], *PRODUCTS[1:]]
WITH_KERNELS = {
    "kernels_agree_with_numpy", "window_gradients_add_up", "m_steps_converge_to_the_mode", "m_steps_keep_fixed_values",
    "conditional_draws_from_the_posterior", "linear_predictors_move_the_parameters", "log_scales_move_the_parameters",
}  # fmt: skip
assert {one.holds.__name__ for one in REQUIREMENTS} >= WITH_KERNELS


# with constants in tuples, settings, terms of the data alone, a size, a row of columns; a family of the tests
BY_DAY = (Gaussian, StudentT, Poisson, Categorical, MultivariateGaussian, Pair)


def when(family, check):
    """Kernels of families that differ most with the compiler, of all the others without it, and compiled at night."""
    name, kind = check.holds.__name__, type(family)
    if family in LARGE and name in WITH_KERNELS | {"density_integrates_to_one"}:
        return pytest.mark.nightly
    if name not in WITH_KERNELS:
        return pytest.mark.plain
    if not issubclass(kind, BY_DAY):
        return pytest.mark.nightly if JIT else ()
    if name == "conditional_draws_from_the_posterior" and not issubclass(kind, MultivariateGaussian):
        return ()
    return () if kind in (Gaussian, Poisson) else pytest.mark.jit


@pytest.mark.parametrize(
    ("family", "check"),
    [pytest.param(f, c, marks=when(f, c)) for f in ALL for c in applicable(f)],
    ids=lambda v: v.holds.__name__ if hasattr(v, "holds") else type(v).__name__,
)
def test_a_family_keeps_its_promises(family, check):
    check.holds(Case(family, default_phi(family)))


@pytest.mark.parametrize("name", families())
def test_a_family_of_the_folder_goes_to_other_processes(name):
    family = families()[name]()
    assert pickle.loads(pickle.dumps(family)) == family


# ---------------------------------------------------------------- optional hooks
class Plain(NamedTuple):
    """A family without any hook."""

    parameters = Gaussian().parameters
    domain = REALS
    draw = Gaussian.draw


def test_a_family_without_hooks_has_their_defaults():
    assert not any(has(Plain(), name) for name in HOOKS)
    assert all(hook(Plain(), name) is HOOKS[name].default for name in HOOKS)
    assert rivals(Plain(), np.ones((1, 2))) == []
    y = np.array([[1.0], [np.nan]])
    assert hook(Plain(), "complete")(None, y, None) is y


def test_rivals_are_given_by_name_or_as_families():
    phi = np.array([[0.0, 1.0]])
    family = laplace(heavier=lambda self, phi: [(("student_t", {"nu": 3.0}), phi), (StudentT(2.0), 2 * phi)])
    found = rivals(family, phi)
    assert [rival for rival, _ in found] == [StudentT(3.0), StudentT(2.0)]
    np.testing.assert_array_equal([start for _, start in found], [phi, 2 * phi])
    assert rivals(Poisson(), phi[:, :1])[0][0] == NegativeBinomial(0.2)


def looked_up(text):
    """Names of hooks that a source looks for by itself."""
    calls = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call) and len(node.args) > 1]
    found = [c.args[1] for c in calls if isinstance(c.func, ast.Name) and c.func.id in ("hasattr", "getattr")]
    return {name.value for name in found if isinstance(name, ast.Constant)} & set(HOOKS)


def test_hooks_are_looked_up_in_one_place():
    source = pathlib.Path(emissions.__file__).parent.parent
    for path in source.rglob("*.py"):
        tables = {"data", "specification", "forecasting.py"} & set(path.parts)  # they have columns, too
        others = {"columns"} if tables else {"check"} if path.name == "sampler.py" else set()
        assert looked_up(path.read_text(encoding="utf-8")) <= others, path


@pytest.mark.parametrize("text", ['hasattr(family, "estimate")', 'getattr(model.family, "wide", False)'])
def test_that_a_look_past_the_table_would_be_noticed(text):
    assert looked_up(text)


# ---------------------------------------------------------------- that the contract would notice
def laplace(**wrong):
    """A family of two parameters that brings everything; each piece may be replaced by a wrong one."""

    class Laplace(NamedTuple):
        parameters = (
            Parameter("centre", support="real", prior=Normal(0.0, 100.0)),
            Parameter("spread", support="positive", prior=InverseGamma(2.0, 1.0)),
        )
        domain = REALS

        def draw(self, rng, states, phi):
            return rng.laplace(phi[states, 0], phi[states, 1])

        def cdf(self, y, phi):
            return laplace_distribution.cdf(y, phi[0], phi[1])

        def estimate(self, y, weight):
            return np.array([np.average(y, weights=weight), 1e-9 + np.average(np.abs(y), weights=weight)])

        def heavier(self, phi):
            return [(StudentT(3.0), phi)]

    for name, value in wrong.items():
        if name not in FUNCTIONS:
            setattr(Laplace, name, value)
    for name, (generic, right) in FUNCTIONS.items():
        function = wrong.get(name, right)
        if function is not None:
            compiled(generic, Laplace)(function)
    return Laplace()


FUNCTIONS = {
    "prepare": (prepare, lambda family, phi: (phi[0], 1 / phi[1], -np.log(2 * phi[1]))),
    "log_density": (log_density, lambda family, y, c: c[2] - np.abs(y - c[0]) * c[1]),
    "score": (score, lambda family, y, c: (np.where(y > c[0], c[1], -c[1]), (np.abs(y - c[0]) * c[1] - 1) * c[1])),
    "with_predictor": (with_predictor, None),
    "with_log_scale": (with_log_scale, None),
}
UNSURE = Parameter("centre", support="real", prior=Flat())
SPREAD = Parameter("spread", support="positive", prior=InverseGamma(2.0, 1.0))
WRONG = {
    r"draw returned an array of shape \(\d+, 1, 1\)": {
        "draw": lambda self, rng, states, phi: rng.laplace(size=(len(states), 1, 1))
    },
    "draw must use rng for all randomness": {
        "draw": lambda self, rng, states, phi: np.random.default_rng().laplace(phi[states, 0], phi[states, 1])
    },
    "draw does not depend on the state": {
        "draw": lambda self, rng, states, phi: rng.laplace(phi[0, 0], phi[0, 1], len(states))
    },
    "the domain is positive numbers": {"domain": POSITIVE},
    "accepts one of .*, which lie outside its bounds": {
        "domain": Domain(lambda y: np.ones(y.shape, dtype=bool), "from -90 to 90", -90.0, 90.0)
    },
    "prepare at .* returned .*: all must be finite": {
        "prepare": lambda family, phi: (phi[0], 1 / phi[1], np.where(phi[1] > 50, np.inf, -np.log(2 * phi[1])))
    },
    "score of 'spread' .* is .* the slope of log_density by finite differences is": {
        "score": lambda family, y, c: (np.where(y > c[0], c[1], -c[1]), (np.abs(y - c[0]) * c[1] - 1) * c[1] * 1.0001)
    },
    "log_density with arrays of constants": {
        "log_density": lambda family, y, c: np.min(c[2]) - np.abs(y - c[0]) * c[1]
    },
    "the integral of the density at centre = 0.7, spread = 1.3 is 2": {
        "prepare": lambda family, phi: (phi[0], 1 / phi[1], -np.log(phi[1]))
    },
    "draw and log_density do not match": {
        "draw": lambda self, rng, states, phi: rng.laplace(phi[states, 0], 1.1 * phi[states, 1])
    },
    "the integral of the default prior of 'centre', Flat": {"parameters": (UNSURE, SPREAD)},
    "estimate returned spread = .* must be positive": {"estimate": lambda self, y, weight: np.array([0.0, -1.0])},
    "estimate with whole weights": {"estimate": lambda self, y, weight: np.array([np.mean(y), 1.0])},
    "estimate from one observation is": {
        "estimate": lambda self, y, weight: np.array([0.0, 1.0 if len(y) > 1 else np.nan])
    },
    "cdf of draws at .* is not uniform": {
        "cdf": lambda self, y, phi: laplace_distribution.cdf(y, phi[0], 1.2 * phi[1])
    },
    "cdf hardly depends on the parameters": {"cdf": lambda self, y, phi: laplace_distribution.cdf(y, 0.7, 1.3)},
    r"cdf\(.*\) at .* the integral of the density is": {
        "cdf": lambda self, y, phi: laplace_distribution.cdf(y, phi[0], phi[1]) + 2e-6
    },
    "heavier returned Gaussian: its log density": {"heavier": lambda self, phi: [(Gaussian(), phi)]},
    "heavier of Laplace.* returned variance": {"heavier": lambda self, phi: [(Gaussian(), -phi)]},
    "which has another domain": {"heavier": lambda self, phi: [(LogNormal(), phi)]},
}


def test_a_right_family_of_a_user_is_let_in():
    found = check_emission(laplace(), seed=3)
    assert "score is the slope" in str(found)
    assert "without maximise: modes are found by gradients" in str(found)
    assert tuple(found.without) == ("maximise", "conditional", "linear_predictor", "log_scale")
    assert "without log_scale: inputs on the scale are refused" in str(found)


@pytest.mark.parametrize("message", WRONG)
def test_the_contract_notices(message):
    """Each mistake is refused by the check that is there for it, in words that name it."""
    with pytest.raises(ValueError, match=message):
        check_emission(laplace(**WRONG[message]))


def test_the_contract_is_held_at_sensible_points():
    with pytest.raises(ValueError, match=r"phi has shape \(2,\); it must be \(2, 2\)"):
        check_emission(Gaussian(), phi=[0.0, 1.0])
    with pytest.raises(ValueError, match=r"phi has variance = .* it must be positive"):
        check_emission(Gaussian(), phi=[[0.0, 1.0], [1.0, -1.0]])
    with pytest.raises(TypeError, match="pass an instance"):
        check_emission(Gaussian)


def test_inputs_on_a_family_of_a_user_are_checked():
    assert "log scales move the parameters" in str(check_emission(laplace(**INPUTS)))


INPUTS = {
    "linear_predictor": ("centre",),
    "log_scale": (("spread", 1.0),),
    "with_predictor": lambda family, y, c, eta: (y - eta, c),
    "with_log_scale": lambda family, y, c, zeta: (y, (c[0], c[1] * np.exp(-zeta), c[2] - zeta)),
}
WRONG_INPUTS = {
    "log_density after inputs on linear_predictor at .*, for row .* at the parameters moved by hand, it is": {
        "with_predictor": lambda family, y, c, eta: (y + eta, c)
    },
    "log_density after inputs on log_scale at .*, for row": {
        "with_log_scale": lambda family, y, c, zeta: (y, (c[0], c[1] * np.exp(-zeta), c[2]))
    },
    "score of 'centre' after inputs on log_scale at .*, for row": {  # the density is right
        "with_log_scale": lambda family, y, c, zeta: (c[0] + (y - c[0]) * np.exp(-zeta), (c[0], c[1], c[2] - zeta))
    },
    "log_density after inputs on linear_predictor, then log_scale, at": {  # right where the centre has not moved
        "with_predictor": lambda family, y, c, eta: (y, (c[0] + eta, c[1], c[2])),
        "with_log_scale": lambda family, y, c, zeta: (
            y, (c[0] + np.where(c[0] > 0.7, zeta, 0.0), c[1] * np.exp(-zeta), c[2] - zeta)),
    },
    "draw with parameters of each row .* differs": {
        "draw": lambda self, rng, states, phi: rng.laplace(phi[states % 2, 0], phi[states % 2, 1] + (len(phi) > 2))
    },
    "observations do not return to 'centre', .* its mean is .* at centre = 0.7, .*; .* Leave it out of returns_to": {
        "returns_to": ("centre",), "prepare": lambda family, phi: (phi[0] + 1, 1 / phi[1], -np.log(2 * phi[1])),
        "draw": lambda self, rng, states, phi: rng.laplace(phi[states, 0] + 1, phi[states, 1]),
        "cdf": lambda self, y, phi: laplace_distribution.cdf(y, phi[0] + 1, phi[1]),
    },
    r"cdf with parameters \(P, n\) of each row, in row, column \[.*\] is": {
        "cdf": lambda self, y, phi: laplace_distribution.cdf(y, phi[0], np.max(phi[1]))
    },
}  # fmt: skip


@pytest.mark.parametrize("message", WRONG_INPUTS)
def test_the_contract_notices_wrong_inputs(message):
    with pytest.raises(ValueError, match=message):
        check_emission(laplace(**(INPUTS | WRONG_INPUTS[message])))


def test_the_contract_notices_inputs_in_a_kernel_that_are_not_those_of_numpy(monkeypatch):
    right = contract.moved_densities
    monkeypatch.setattr(contract, "moved_densities", lambda *args: [1.0001 * x for x in right(*args)])
    with pytest.raises(ValueError, match=r"log_density after inputs on linear_predictor in a kernel at mean = 0\.7"):
        held(Gaussian(), "linear_predictors_move_the_parameters")


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"linear_predictor": "centre"}, r"linear_predictor is 'centre'; it must be a tuple of names"),
        ({"linear_predictor": ("mean",)}, "linear_predictor names 'mean'; its parameters are centre, spread"),
        ({"returns_to": "centre"}, r"returns_to is 'centre'; it must be a tuple of names"),
        (
            {"returns_to": ("mean",)},
            r"returns_to names 'mean'; it takes real parameters of linear_predictor, here centre",
        ),
        ({"returns_to": ("spread",)}, r"returns_to names 'spread'; it takes real parameters of .*, here centre"),
        ({"linear_predictor": ("centre", "spread"), "returns_to": ("spread",)}, "returns_to names 'spread'; .* real"),
        ({"log_scale": ("spread",)}, r"log_scale is \('spread',\); it must be a tuple of pairs of a name and a power"),
        ({"log_scale": (("scale", 1.0),)}, "log_scale names 'scale'; its parameters are centre, spread"),
        ({"log_scale": (("centre", 1.0),)}, "log_scale names 'centre', which is real; it takes positive parameters"),
        ({"with_predictor": None}, "has linear_predictor but no with_predictor: attach one with @compiled"),
        ({"with_log_scale": None}, "has log_scale but no with_log_scale: attach one with @compiled"),
        ({"with_predictor": lambda family, y, c, eta: y - eta}, r"with_predictor must return a pair \(y', c'\)"),
        ({"with_log_scale": lambda family, y, c, zeta: (y, c[:2])}, "must return c or a tuple of 3 constants c', not"),
        ({"with_predictor": lambda family, y, c, eta: (y - c[5], c)}, "with_predictor failed on an array .IndexError"),
    ],
)
def test_inputs_that_do_not_fit_are_refused(more, message):
    with pytest.raises((TypeError, ValueError), match="Laplace.*" + message):
        model_of(laplace(**(INPUTS | more)))


@pytest.mark.parametrize("family", [kind() for kind in families().values() if not hasattr(kind, "linear_predictor")])
def test_a_family_without_a_meaning_for_inputs_refuses_them_by_name(family):
    name = type(family).__name__
    assert hook(family, "linear_predictor") == hook(family, "log_scale") == ()
    with pytest.raises(TypeError, match=f"{name} takes no inputs: it has no linear_predictor"):
        with_predictor(family, 1.0, (1.0,), 0.5)
    with pytest.raises(TypeError, match=f"{name} takes no inputs on its scale: it has no log_scale"):
        with_log_scale(family, 1.0, (1.0,), 0.5)


def test_inputs_move_what_the_table_says():
    """Also which families have none: that is a decision for each."""
    found = {name: (hook(kind(), "linear_predictor"), hook(kind(), "log_scale")) for name, kind in families().items()}
    squares = (("variance_0", 2.0), ("variance_1", 2.0))
    assert found == {
        "bernoulli": (("log_odds",), ()),
        "categorical": ((), ()),
        "exponential": (("mean",), ()),
        "free_negative_binomial": (("mean",), ()),
        "free_student_t": (("mean",), (("scale2", 2.0),)),
        "gamma": (("mean",), ()),
        "gaussian": (("mean",), (("variance", 2.0),)),
        "gaussian_mixture": (("mean",), squares),
        "log_normal": (("mean_log",), (("variance_log", 2.0),)),
        "multivariate_gaussian": (("mean_0", "mean_1"), (("residual_0", 2.0), ("residual_1", 2.0))),
        "negative_binomial": (("mean",), ()),
        "poisson": (("rate",), ()),
        "student_t": (("mean",), (("scale2", 2.0),)),
        "von_mises": ((), ()),
        "zero_inflated_poisson": (("rate",), ()),
    }


class Poor(NamedTuple):
    """Gaussian, of which M-step, statistics and draws may be spoilt."""

    parameters = Gaussian().parameters
    domain = REALS
    draw = Gaussian.draw
    maximise = Gaussian.maximise
    conditional = Gaussian.conditional


for generic in (prepare, log_density, score, statistics, complete_score):
    compiled(generic, Poor)(generic.registry[Gaussian])


def held(family, name):
    """One check by its name."""
    next(c for c in REQUIREMENTS if c.holds.__name__ == name).holds(Case(family, default_phi(family)))


def off(factor):
    return lambda self, phi, *rest: Gaussian.maximise(self, phi, *rest) * [1.0, factor]


def without_priors(self, phi, counts, sums, priors):
    return Gaussian.maximise(self, phi, counts, sums, no_priors(Gaussian()).emission)


@pytest.mark.parametrize(
    ("name", "piece", "wrong", "message"),
    [
        ("m_steps_converge_to_the_mode", "maximise", off(1.1), r"lowers the log posterior|where M-steps .* converge"),
        ("m_steps_converge_to_the_mode", "maximise", without_priors, "where M-steps .* converge|lowers the log post"),
        ("m_steps_keep_fixed_values", "maximise", without_priors, "mean, which is fixed|converge"),
        ("complete_score_is_the_score", "maximise", off(1.1), "complete_score of 'variance' at the M-step"),
        ("complete_score_is_the_score", "maximise", lambda self, phi, *rest: phi, "maximise stays at"),
        ("a_state_without_observations_has_an_m_step", "maximise", off(np.nan), "returned variance = .*nan"),
        ("conditional_draws_from_the_posterior", "conditional",
         lambda self, rng, phi, n, s, priors: Gaussian.conditional(self, rng, phi, 1.5 * n, s, priors),
         "draws of '.*' by conditional do not follow the posterior"),
        ("conditional_draws_from_the_posterior", "conditional",
         lambda self, rng, phi, *rest: Gaussian.conditional(self, rng, phi, *rest) * [1.0, 1.1],
         "draws of 'variance' by conditional do not follow the posterior"),
    ],
)  # fmt: skip
@pytest.mark.filterwarnings(
    "ignore:the log posterior fell:RuntimeWarning", "ignore:a state has collapsed:RuntimeWarning"
)
def test_the_contract_notices_wrong_m_steps_and_draws(monkeypatch, name, piece, wrong, message):
    held(Poor(), name)
    monkeypatch.setattr(Poor, piece, wrong)
    with pytest.raises(ValueError, match=message):
        held(Poor(), name)


def test_the_contract_notices_a_kernel_that_is_not_numpy(monkeypatch):
    right = contract.densities
    monkeypatch.setattr(contract, "densities", lambda *args: right(*args) * (1 + 1e-12))
    with pytest.raises(ValueError, match="log_density in a kernel"):
        held(Gaussian(), "kernels_agree_with_numpy")
    monkeypatch.undo()
    found = contract.expectations
    monkeypatch.setattr(contract, "expectations", lambda *a, **k: found(*a, **k)._replace(scores=np.ones((2, 2))))
    with pytest.raises(ValueError, match="the expected sum of score from a kernel"):
        held(Gaussian(), "kernels_agree_with_numpy")
    monkeypatch.undo()
    of_windows = contract.window_gradients
    monkeypatch.setattr(contract, "window_gradients", lambda *args: of_windows(*args)[1:])
    with pytest.raises(ValueError, match="the sum of the window gradients"):
        held(Gaussian(), "window_gradients_add_up")


# ---------------------------------------------------------------- what an author sees after a mistake
def family_with(density, **more):
    class Mine(NamedTuple):
        parameters = (Parameter("rate", support="positive", prior=Normal(0.0, 1.0)),)
        domain = REALS

        def draw(self, rng, states, phi):
            return rng.exponential(1 / phi[states, 0])

    for name, value in more.items():
        setattr(Mine, name, value)
    compiled(prepare, Mine)(lambda family, phi: (phi[0], 1 / phi[0]))
    if density is not None:
        compiled(log_density, Mine)(density)
    compiled(score, Mine)(lambda family, y, c: (1 / c[0] - y,))
    return Mine()


def branch(family, y, c):
    return -y if y > c[0] else y


def scalar_function(family, y, c):
    import math

    return math.log(y)


def typo(family, y, c):
    return y * c[7]


@pytest.mark.parametrize("density", [branch, scalar_function, typo, None])
def test_a_mistake_in_a_family_is_explained_without_a_compiler(density):
    with pytest.raises(TypeError, match="Mine") as caught:
        model_of(family_with(density))
    assert "numba" not in str(caught.value)


def exotic(family, y, c):
    return np.arctan(y)


@pytest.mark.jit
def test_what_cannot_be_compiled_is_said_in_words_about_the_family():
    model = model_of(family_with(exotic))
    parameters = model.natural(np.ones((2, 1)), np.full((2, 2), 0.5))
    with pytest.raises(TypeError, match=r"the functions of Mine.* cannot be compiled \(arctan\(lanes16\)\)"):
        densities(model, prepared(model, parameters), np.ones((3, 1)))


def good(family, y, c):
    return np.log(c[0]) - c[0] * y


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (
            {"parameters": (Parameter("rate", support="unit", prior=Normal(0.0, 1.0)),)},
            "the support of 'rate' is 'unit'",
        ),
        ({"parameters": (Parameter("rate", "positive", Normal(0.0, 1.0)),) * 2}, "score must return a tuple of 2"),
    ],
)
def test_a_family_that_does_not_fit_the_contract_is_refused(more, message):
    with pytest.raises((TypeError, ValueError), match=message):
        model_of(family_with(good, **more))


def test_functions_must_return_tuples():
    for generic, message in (
        (prepare, "prepare must return a tuple"),
        (score, "score must return a tuple"),
        (statistics, "statistics must return a tuple"),
        (log_density, r"log_density of 16 observations has shape \(\)"),
    ):
        family = family_with(good)
        compiled(generic, type(family))(lambda family, *args: 1.0)
        with pytest.raises(TypeError, match=message):
            model_of(family)


def test_a_class_that_is_not_a_family_is_refused():
    with pytest.raises(TypeError, match="str has no 'parameters'; see the contract"):
        Model("gaussian", 2, Priors(()))
