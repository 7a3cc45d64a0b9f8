"""Are rare states found, and only those?  Series of many kinds, fresh seeds, beside k-means, EM from k-means, hmmlearn.

A rare state is found if some state of the fit holds its observations: F1 of the best state (by smoothed probability)
at least .7 of that of the true parameters.  A series is well posed if EM started at the truth finds it.  Series without
a rare state must not get one reported.  On real data, where RAREHMM_DATA has them, the rarest state is compared with
solar flares and earthquakes.  Writes results/finding.*.
"""

import argparse
import json
import os
import pathlib
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from typing import NamedTuple

import numpy as np
from machine import made_by
from scipy.signal import lfilter

import rarehmm as rh
from rarehmm.exact.em import climb, normalised_rows
from rarehmm.exact.passes import decode, smooth
from rarehmm.search.initial import find_states
from rarehmm.search.labels import from_labels, kmeans_labels
from rarehmm.search.regimes import judge_states

RESULTS = pathlib.Path(__file__).parent / "results"


class Case(NamedTuple):
    kind: str
    name: str
    family: object
    shares: tuple  # of the rare states, the last ones
    stay: float  # of the rare states
    emission: dict
    size: int = 50_000


def transition(K, shares, stay):
    """Common states that change with probability .005, rare ones with given shares that last 1 / (1 - stay)."""
    rare = len(shares)
    common = K - rare
    P = np.zeros((K, K))
    enter = np.array(shares) / (1 - sum(shares)) * (1 - stay)
    P[:common, common:] = enter
    P[:common, :common] = 0.005 / max(common - 1, 1)
    np.fill_diagonal(P[:common, :common], 0)
    P[np.arange(common), np.arange(common)] = 1 - P[:common].sum(1)
    P[common:, :common] = (1 - stay) / common
    P[np.arange(common, K), np.arange(common, K)] = stay
    return P


def gaussian(kind, name, means, shares, stay=0.8, variance=1.0, family=None, scale="variance"):
    return Case(kind, name, rh.Gaussian() if family is None else family, shares, stay, {"mean": means, scale: variance})


def cases():
    found = []
    for percent, gaps in ((5, (20, 3)), (0.5, (20, 6, 4, 3)), (0.05, (20, 6, 4, 3)), (0.005, (20, 6, 4, 3))):
        for s in gaps:
            found.append(gaussian("16 cells", f"{percent} %, {s} sd", [-s, 0, s], (percent / 100,)))
    for percent in (0.5, 0.05):
        found.append(gaussian("16 cells", f"interior, {percent} %", [-8, 8, 0], (percent / 100,)))
    for rates in ([1, 5, 40], [1, 3, 9]):
        for percent in (0.5, 0.05):
            name = f"rates {', '.join(map(str, rates))}; {percent} %"
            found.append(Case("Poisson", name, rh.Poisson(), (percent / 100,), 0.8, {"rate": rates}))
    for s in (20, 6):
        for percent in (0.5, 0.05):
            t = rh.StudentT(5)
            found.append(
                gaussian("Student-t", f"{percent} %, {s} scales", [-s, 0, s], (percent / 100,), 0.8, 1.0, t, "scale2")
            )
    for s in (2, 3):
        for percent in (0.5, 0.1):
            found.append(
                gaussian(
                    "two rare", f"{s} sd apart, {percent} % each", [-4, 0, 5, 5 + s], (percent / 100, percent / 100)
                )
            )
    for factor in (9, 25):
        for percent in (1, 0.2):
            name = f"variance x {factor}, {percent} %"
            found.append(gaussian("variance only", name, [0, 0], (percent / 100,), 0.95, [1, factor]))
            found.append(
                gaussian("variance only", f"{name}, K = 3", [-4, 4, 4], (percent / 100,), 0.95, [1, 1, factor])
            )
    for percent in (1, 0.2):
        name = f"variance / 100, {percent} %"
        found.append(gaussian("variance only", name, [0, 0], (percent / 100,), 0.95, [1, 0.01]))
        found.append(gaussian("variance only", f"{name}, K = 3", [-4, 4, 4], (percent / 100,), 0.95, [1, 1, 0.01]))
    full, diagonal = rh.MultivariateGaussian(2), rh.MultivariateGaussian(2, diagonal=True)
    tilted, round_ = np.array([[1, 0.9], [0.9, 1]]), np.eye(2)
    for percent in (0.5, 0.05):
        apart = {"mean": [[0, 0], [4, 0], [2, 6]], "covariance": [round_] * 3}
        beside = {"mean": [[0, 0], [6, 6], [4, 1]], "covariance": [tilted, tilted, 0.3 * round_]}
        turned = {"mean": [[0, 0], [0, 0]], "covariance": [tilted, tilted * [[1, -1], [-1, 1]]]}
        for name, family, stay, emission in (
            ("apart", full, 0.8, apart),
            ("apart, diagonal", diagonal, 0.8, apart),
            ("off the diagonal of the common ones", full, 0.8, beside),
            ("correlation of the other sign", full, 0.95, turned),
        ):
            found.append(Case("two columns", f"{name}, {percent} %", family, (percent / 100,), stay, emission))
    return found


def f1(score, rare):
    """Of the best state by probabilities (T, K): for each true rare state the best F1, the smallest of these."""
    labels = score.argmax(1) if score.ndim == 2 else score
    worst = 1.0
    for truth in rare:
        both = np.bincount(labels[truth], minlength=labels.max() + 1)
        size = np.bincount(labels, minlength=labels.max() + 1)
        worst = min(worst, (2 * both / (size + truth.sum())).max())
    return worst


def simulated(case, seed):
    names = len(case.family.parameters)
    K = len(next(iter(case.emission.values())))
    shell = rh.Model(case.family, K, rh.Priors((rh.Flat(),) * names))
    P = transition(K, case.shares, case.stay)
    if isinstance(case.family, rh.MultivariateGaussian):
        truth = shell.natural(case.family.phi_of(*map(np.array, case.emission.values())), P)
    else:
        truth = shell.parameters(P, **case.emission)
    for again in range(100):  # fewer than three observations are no state to be found
        rng = np.random.default_rng([seed, again, *case.name.encode()])
        y, states = rh.simulate(rng, shell, truth, case.size)
        rare = [states == k for k in range(K - len(case.shares), K)]
        if all(r.sum() >= 3 for r in rare):
            break
    series = rh.Series(y)
    return rh.Model(case.family, K, rh.default_priors(case.family, K, series)), series, truth, rare


def one(case, seed, peers):
    warnings.simplefilter("ignore")
    model, series, truth, rare = simulated(case, seed)
    out = {"kind": case.kind, "name": case.name, "seed": seed, **searched(model, series, truth, rare)}
    oracle = out["oracle"]
    if "kmeans" in peers:
        labels = kmeans_labels(series, model.n_states)
        out["kmeans"] = f1(labels, rare) / oracle
        start = climb(model, series, from_labels(model, series, labels), tolerance=1e-3, threads=1)
        out["kmeans_em"] = f1(smooth(model, start.parameters, series, threads=1), rare) / oracle
    if "hmmlearn" in peers and isinstance(model.family, rh.Gaussian):
        out["hmmlearn"] = by_hmmlearn(model, series, rare) / oracle
    return out


def searched(model, series, truth, rare):
    """Quality of the states that are found and of EM from the truth, relative to that of the truth itself."""

    def quality(parameters):
        return f1(smooth(model, parameters, series, threads=1), rare)

    oracle = quality(truth)
    begin = model.natural(truth.phi, normalised_rows(truth.transition + 1e-6), truth.coefficients)
    top = climb(model, series, begin, tolerance=1e-3, threads=1)
    began = time.perf_counter()
    best = find_states(model, series, threads=1)[0]
    seconds = time.perf_counter() - began
    best = climb(model, series, best.parameters, tolerance=1e-3, threads=1)
    return {
        "oracle": oracle, "seconds": seconds, "truth": quality(top.parameters) / oracle,
        "found": quality(best.parameters) / oracle, "reached": best.log_posterior - top.log_posterior,
    }  # fmt: skip


def by_hmmlearn(model, series, rare):
    """The best of ten seeds by likelihood."""
    from hmmlearn.hmm import GaussianHMM

    y = series.read(0, len(series))
    fits = [GaussianHMM(model.n_states, n_iter=50, random_state=seed).fit(y) for seed in range(10)]
    best = max(fits, key=lambda fit: fit.score(y))
    return f1(best.predict_proba(y), rare)


# ---------------------------------------------------------------- nothing rare
def without_rare(rng, T=50_000):
    """Series without a rare state, by name."""
    t = np.arange(T)
    day, week = np.sin(2 * np.pi * t / 1440), np.sin(2 * np.pi * t / 10080)
    levels = 6.0 * np.repeat(rng.integers(0, 2, T // 100), 100)

    def along(phi, noise):
        return lfilter([1], [1, -phi], noise)

    garch, h = rng.normal(size=T), 1.0
    for i in range(T):
        garch[i] *= np.sqrt(h)
        h = 0.05 + 0.1 * garch[i] ** 2 + 0.85 * h
    return {
        "Gaussian noise": rng.normal(size=T),
        "Student-t noise, nu = 3": rng.standard_t(3, T),
        "Student-t noise, nu = 5": rng.standard_t(5, T),
        "Laplace noise": rng.laplace(size=T),
        "log-normal noise": np.exp(0.5 * rng.normal(size=T)),
        "autoregression, .9": along(0.9, rng.normal(size=T)),
        "autoregression, .5, Student-t noise": along(0.5, rng.standard_t(3, T)),
        "log-normal autoregression, .5": np.exp(0.5 * along(0.5, rng.normal(size=T))),
        "random walk": np.cumsum(rng.normal(size=T)),
        "GARCH(1, 1)": garch,
        "stochastic volatility": np.exp(along(0.98, 0.15 * rng.normal(size=T)) / 2) * rng.normal(size=T),
        "daily wave": 3 * day + rng.normal(size=T),
        "daily peaks": 4 * np.maximum(day, 0) ** 9 + rng.normal(size=T),
        "daily and weekly waves, Student-t noise": 2 * day + week + rng.standard_t(3, T),
        "daily wave of the variance": (1.5 + day) * rng.normal(size=T),
        "two levels, Student-t noise": levels + rng.standard_t(4, T),
        "counts: Poisson": rng.poisson(3.0, T).astype(float),
        "counts: daily wave": rng.poisson(np.exp(1 + day)).astype(float),
        "counts: negative binomial": rng.negative_binomial(0.5, 0.1, T).astype(float),
        "counts: log-normal rate, autoregression .8": rng.poisson(np.exp(0.5 * along(0.8, rng.normal(size=T)))).astype(
            float
        ),
    }


def invented(name, seed):
    """Rare regimes reported for a series that has none, with two, three and four states."""
    warnings.simplefilter("ignore")
    series = rh.Series(without_rare(np.random.default_rng([seed, 6]))[name])
    family = rh.Poisson() if name.startswith("counts") else rh.Gaussian()
    kinds = {}
    for K in (2, 3, 4):
        model = rh.Model(family, K, rh.default_priors(family, K, series))
        mode = rh.find_mode(model, series, threads=1)
        found = judge_states(mode.model, mode.model.unpack(mode.theta), series, threads=1)
        kinds[K] = sorted(r.kind for r in found if r.kind != "common")
    return {"name": name, "seed": seed, "kinds": kinds, "invented": any("rare" in k for k in kinds.values())}


# ---------------------------------------------------------------- real data
def real_data(folder):
    """Words about the rarest state on solar flux and the busiest on earthquakes."""
    warnings.simplefilter("ignore")
    if not (folder / "goes_g16_2022").exists():
        return ["Real data: not found in RAREHMM_DATA; nothing to compare with."]
    return [solar(folder / "goes_g16_2022"), earthquakes(folder / "japan_earthquakes")]


def decoded(y, family, K):
    series = rh.Series(y)
    mode = rh.find_mode(rh.Model(family, K, rh.default_priors(family, K, series)), series)
    parameters = mode.model.unpack(mode.theta)
    return parameters, decode(mode.model, parameters, series)[0]


def solar(folder):
    y = np.load(folder / "derived_paperstyle_residual.npz")["ln_residual"]
    file = np.load(folder / "g16_xrs_1m_20220101_20220814.npz")
    kind = file["derived_class_swpc_rule"][file["derived_good"].astype(bool)]  # 3 C, 4 M, 5 X
    parameters, path = decoded(y, rh.Gaussian(), 4)
    flare = int(np.argmax(parameters.phi[:, 0]))
    inside, strong = path == flare, kind >= 4
    edges = np.flatnonzero(np.diff(strong.astype(int), prepend=0, append=0))
    events = list(zip(edges[::2], edges[1::2], strict=True))
    hit = sum(inside[a:b].any() for a, b in events)
    return (
        f"GOES-16, 2022, K = 4, log flux above its baseline: the state with the largest mean "
        f"({parameters.phi[flare, 0]:.2f}, {'' if flare == np.bincount(path).argmin() else 'not '}the rarest) holds "
        f"{inside.mean():.1%} of the minutes, {inside[strong].mean():.1%} of the minutes in M and X "
        f"flares, {hit} of these {len(events)} flares, and {inside[kind == 3].mean():.1%} of the minutes in C flares; "
        f"of its minutes {(kind[inside] >= 2).mean():.1%} are in a flare of class B or above by the rule of the file."
    )


def earthquakes(folder):
    counts = np.load(folder / "japan_hourly_counts_1990_2019.npz")["hourly_counts"].astype(float)
    quake = int((np.datetime64("2011-03-11T05") - np.datetime64("1990-01-01T00")).astype(int))
    parameters, path = decoded(counts, rh.Poisson(), 4)
    top = int(np.argmax(parameters.phi[:, 0]))
    after = path[quake + 1 : quake + 49] == top
    return (
        f"Earthquakes near Japan, 1990 to 2019, K = 4: the state with the largest rate ({parameters.phi[top, 0]:.1f} "
        f"an hour) holds {(path == top).sum()} of {len(path)} hours, and {after.sum()} of the 48 after the M9.1 of "
        "2011-03-11."
    )


# ---------------------------------------------------------------- report
def share(values):
    values = [v for v in values if v is not None]
    return f"{sum(v >= 0.7 for v in values)} of {len(values)}" if values else ""


def cells(found):
    """A table with a line for each cell of the grid."""
    lines = ["", "Cells: F1 over that of the truth, seed by seed (log posterior above EM from the truth).", ""]
    lines += ["| kind | cell | found | from the truth |", "|---|---|---|---|"]
    for kind, name in dict.fromkeys((r["kind"], r["name"]) for r in found):
        mine = [r for r in found if (r["kind"], r["name"]) == (kind, name)]
        ours = ", ".join(f"{r['found']:.2f} ({r['reached']:+.1f})" for r in mine)
        lines.append(f"| {kind} | {name} | {ours} | {', '.join(format(r['truth'], '.2f') for r in mine)} |")
    return lines


def report(made, found, none, real):
    kinds = list(dict.fromkeys(r["kind"] for r in found))
    lines = [
        "# Finding rare states",
        "",
        made,
        "T = 50,000, fresh seeds, 3 a cell. Found: F1 of the best state at least",
        ".7 of that of the true parameters. From the truth: EM started at the true parameters; a series where",
        "that succeeds is well posed. Mode: share of the well-posed series on which the log posterior is within 3 of",
        "it, or above. hmmlearn: GaussianHMM, the best of ten seeds by likelihood.",
        "",
        "| kind | found | of the well-posed | from the truth | mode | k-means | k-means + EM | hmmlearn | s |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for kind in [*kinds, "all"]:
        mine = [r for r in found if kind in (r["kind"], "all")]
        posed = [r for r in mine if r["truth"] >= 0.7]
        near = sum(r["reached"] > -3 for r in posed)
        peers = " | ".join(share([r.get(k) for r in mine]) for k in ("kmeans", "kmeans_em", "hmmlearn"))
        lines.append(
            f"| {kind} | {share([r['found'] for r in mine])} | {share([r['found'] for r in posed])} "
            f"| {share([r['truth'] for r in mine])} | {near} of {len(posed)} | {peers} "
            f"| {np.mean([r['seconds'] for r in mine]):.1f} |"
        )
    lines += cells(found)
    lines += [
        "",
        f"Nothing rare: reported all the same in {sum(r['invented'] for r in none)} of {len(none)} series.",
        "",
    ]
    lines += ["| series | seed | states that are not common, K = 2 | K = 3 | K = 4 |", "|---|---|---|---|---|"]
    for r in none:
        lines.append(f"| {r['name']} | {r['seed']} | {' | '.join(', '.join(k) for k in r['kinds'].values())} |")
    lines += ["", *(f"- {line}" for line in real)]
    return "\n".join(lines) + "\n"


def main():
    ask = argparse.ArgumentParser()
    ask.add_argument("--sets", type=int, default=3)
    ask.add_argument("--first", type=int, default=900, help="first seed; those below were looked at before")
    ask.add_argument("--nothing", type=int, default=1, help="series of each kind without a rare state")
    ask.add_argument("--kinds", nargs="*", default=None)
    ask.add_argument("--no-peers", action="store_true")
    ask.add_argument("--out", default=str(RESULTS / "finding.json"))
    ask.add_argument("--workers", type=int, default=2)
    use, made = ask.parse_args(), made_by("finding")
    chosen = [c for c in cases() if use.kinds is None or c.kind in use.kinds]
    order = {(c.kind, c.name): i for i, c in enumerate(chosen)}
    jobs = [
        (case, use.first + i, () if use.no_peers else ("kmeans", "hmmlearn"))
        for case in chosen
        for i in range(use.sets)
    ]
    names = list(without_rare(np.random.default_rng(0), 1000))
    with ProcessPoolExecutor(use.workers) as workers:
        found = [workers.submit(one, *job) for job in jobs]
        none = [workers.submit(invented, name, use.first + i) for name in names for i in range(use.nothing)]
        found, none = ([future.result() for future in futures] for futures in (found, none))
    found.sort(key=lambda r: (order[r["kind"], r["name"]], r["seed"]))
    real = real_data(pathlib.Path(os.environ.get("RAREHMM_DATA", "../shared/data")))
    path = pathlib.Path(use.out)
    path.write_text(
        json.dumps({"made": made, "found": found, "nothing rare": none, "real": real}, indent=1, default=float) + "\n"
    )
    path.with_suffix(".md").write_text(report(made, found, none, real))
    print(report(made, found, none, real))


if __name__ == "__main__":
    main()
