"""Cases of ``oracle_regimes`` as models of the library, and sets of cases that cover all kinds of models."""

import functools
import itertools
import operator
from dataclasses import replace

import numpy as np
from oracle_regimes import Regimes

from rarehmm import Gaussian, Model, Series, StudentT, default_priors, no_priors
from rarehmm.data.inputs import Columns, Inputs
from rarehmm.model.autoregression import AroundLevel, Hamilton, Intercept
from rarehmm.transitions.homogeneous import Homogeneous
from rarehmm.transitions.phases import Phases
from rarehmm.transitions.regression import Regression

FACTORS = {
    "form": [("none", 0), *(("level", p) for p in (1, 2, 3)), ("intercept", 1), ("intercept", 2), ("hamilton", 1),
             ("hamilton", 2)],
    "inputs": ["", "shared", "switching", "both"],
    "transitions": ["same", "inputs", "phases"],
    "switching_lags": [False, True],
    "scale": [False, True],
    "known": [False, True],
    "missing": [False, True],
    "sequences": [1, 2],
    "start": ["stationary", "given"],
    "family": ["gaussian", "student_t"],
    "states": [2, 3],
    "forbidden": [False, True],
    "conditional": [False, True],
}  # fmt: skip
LAGS = {1: [0.6], 2: [0.9, -0.4], 3: [0.5, -0.3, 0.2]}


def possible(choice):
    """Whether the levels of the factors that are given can be combined."""
    kind, p = choice.get("form", ("level", 1))
    hopeless = kind == "hamilton" and p > 1 and choice.get("transitions") == "phases"
    idle = (kind == "none" and choice.get("switching_lags")) or (kind != "level" and choice.get("conditional"))
    two = choice.get("forbidden") and (choice.get("states") == 2 or choice.get("transitions") == "phases")
    return not (hopeless or idle or two)


def covering(seed=0):
    """Choices that together have every possible pair of levels: greedy, over random candidates."""
    rng = np.random.default_rng(seed)
    names = list(FACTORS)
    wanted = set()
    for a, b in itertools.combinations(range(len(names)), 2):
        for i, j in itertools.product(range(len(FACTORS[names[a]])), range(len(FACTORS[names[b]]))):
            if possible({names[a]: FACTORS[names[a]][i], names[b]: FACTORS[names[b]][j]}):
                wanted.add((a, i, b, j))
    out = []
    while wanted:
        best, covers = None, set()
        for _ in range(300):
            levels = [int(rng.integers(len(FACTORS[name]))) for name in names]
            a, i, b, j = min(wanted) if rng.random() < 0.5 else sorted(wanted)[int(rng.integers(len(wanted)))]
            levels[a], levels[b] = i, j
            choice = {name: FACTORS[name][level] for name, level in zip(names, levels, strict=True)}
            if not possible(choice):
                continue
            new = {(a, levels[a], b, levels[b]) for a, b in itertools.combinations(range(len(names)), 2)} & wanted
            if len(new) > len(covers):
                best, covers = choice, new
        assert best is not None, wanted
        out.append(best)
        wanted -= covers
    return out


def every_choice():
    """All possible combinations of the first eight factors; the others are drawn."""
    rng = np.random.default_rng(0)
    names = list(FACTORS)
    for levels in itertools.product(*(FACTORS[name] for name in names[:8])):
        choice = dict(zip(names, levels, strict=False))
        while True:
            rest = {name: FACTORS[name][int(rng.integers(len(FACTORS[name])))] for name in names[8:]}
            if possible(choice | rest) or not possible(choice):
                break
        if possible(choice | rest):
            yield choice | rest


def label(choice):
    """A choice as a short name of a test."""
    kind, p = choice["form"]
    return "-".join([f"{kind}{p}", *(f"{name}={choice[name]}" for name in list(FACTORS)[1:] if choice[name])])


def make_case(choice, seed):
    """A random case with T = 7 of one of the kinds that ``FACTORS`` describe."""
    rng = np.random.default_rng(seed)
    T, K = 7, choice["states"]
    (kind, p), three = choice["form"], choice["transitions"] == "phases" and K == 3
    P = rng.dirichlet(np.full(K, 2.0), K) + 0.05
    if choice["forbidden"]:
        P[0, 2] = 0.0
    P /= P.sum(1, keepdims=True)
    shared, switching = choice["inputs"] in ("shared", "both"), choice["inputs"] in ("switching", "both")
    phi = np.array(LAGS[p]) if p else None
    if choice["switching_lags"]:
        phi = phi[:, None] * rng.uniform(0.5, 1.5, K)
    y = 2 * rng.normal(size=T)
    if choice["missing"]:
        y[[1, 4]] = np.nan
    known = np.full(T, -1)
    if choice["known"]:
        known[[2, 5]] = [0, K - 1] if choice["transitions"] != "phases" else [0, 0]
    slopes = rng.normal(size=(1, K, K)) if choice["transitions"] == "inputs" else None
    return Regimes(
        y=y, mu=rng.normal(size=K), sigma=rng.uniform(0.5, 2.0, K), transition=P,
        lengths=[T] if choice["sequences"] == 1 else [4, 3], nu=4.0 if choice["family"] == "student_t" else None,
        start=rng.dirichlet(np.ones(K)) if choice["start"] == "given" else None,
        shared_x=rng.normal(size=(T, 2)) if shared else None, beta=rng.normal(size=2) if shared else None,
        switching_x=3 + rng.normal(size=(T, 1)) if switching else None,
        b=rng.normal(size=(1, K)) if switching else None,
        scale_x=5 * rng.normal(size=(T, 1)) if choice["scale"] else None,
        delta=0.1 * rng.normal(size=1) if choice["scale"] else None,
        z=2 + rng.normal(size=(T, 1)) if slopes is not None else None, slopes=slopes,
        phases=np.array([1, 2, 3] if three else [1, 2]) if choice["transitions"] == "phases" else None,
        kind=kind, p=p, phi=phi, conditional=choice["conditional"], states=known if choice["known"] else None,
    )  # fmt: skip


def as_model(case, priors="none"):
    """Model, parameters and series of a case, with inputs standardised as the library does it."""
    blocks = {
        "inputs": case.shared_x, "switching": case.switching_x, "scale": case.scale_x,
        "slopes": np.zeros((len(case.y), 0)) if case.z is None else case.z,
    }  # fmt: skip
    columns = {name: [f"{name}{i}" for i in range(x.shape[1])] for name, x in blocks.items()}
    exog = np.column_stack(list(blocks.values()))
    names = functools.reduce(operator.iadd, columns.values(), [])
    known = case.states if (case.states >= 0).any() else None
    table = None if not names else _frame(exog, names)
    series = Series(case.y, case.lengths, exog=table, states=known)
    made = {name: Inputs.of(series, [Columns(tuple(part))]) if part else None for name, part in columns.items()}
    centre, width = {}, {}
    for name, inputs in made.items():
        x = blocks[name]
        z = inputs.design(series.read_rows(0, len(case.y))) if inputs else np.zeros(x.shape)
        fits = [np.polyfit(z[:, i], x[:, i], 1) for i in range(x.shape[1])]
        width[name], centre[name] = (np.array([fit[i] for fit in fits]) for i in (0, 1))
    family = Gaussian() if case.nu is None else StudentT(case.nu)
    autoregression = {
        "none": lambda: None,
        "level": lambda: AroundLevel(case.p, case.switching_lags, case.conditional),
        "intercept": lambda: Intercept(case.p, case.switching_lags),
        "hamilton": lambda: Hamilton(case.p, case.switching_lags),
    }[case.kind]()
    transitions = Homogeneous()
    if case.phases is not None:
        transitions = Phases(tuple(int(r) for r in case.phases))
    elif case.z is not None:
        transitions = Regression(made["slopes"])
    P, slopes = case.transition, np.zeros((0, *case.transition.shape))
    fixed = None
    if (P == 0).any():
        fixed = {"transition": np.where(P == 0, 0.0, np.nan)}
    if case.z is not None:
        P = P * np.exp(np.einsum("q,qjk->jk", centre["slopes"], case.slopes))
        P = P / P.sum(1, keepdims=True)
        slopes = case.slopes * width["slopes"][:, None, None]
        there = P > 0
        slopes = np.where(there, slopes - np.where(there, slopes, 0).sum(-1, keepdims=True) / there.sum(1)[:, None], 0)
    model = Model(
        family, len(P), no_priors(family) if priors == "none" else default_priors(family, 1, series), case.start,
        fixed=fixed, inputs=made["inputs"], switching=made["switching"], scale=made["scale"],
        autoregression=autoregression, transitions=transitions,
    )  # fmt: skip
    mu = case.mu + centre["inputs"] @ case.beta + centre["switching"] @ case.b
    sigma = case.sigma * np.exp(centre["scale"] @ case.delta)
    coefficients = np.concatenate([
        case.beta * width["inputs"], (case.b * width["switching"][:, None]).ravel(), case.delta * width["scale"],
        np.ravel(case.phi), slopes.ravel(),
    ])  # fmt: skip
    return model, model.natural(np.column_stack([mu, sigma**2]), P, coefficients), series


def _frame(values, names):
    import pandas as pd

    return pd.DataFrame(values, columns=names)


def with_rows(case, **changes):
    """A copy of a case with some of its fields changed."""
    return replace(case, **changes)
