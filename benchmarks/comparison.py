"""hmmlearn, dynamax, pomegranate, NumPyro and rarehmm on the paper's series with a rare state and on solar flux.

Lines of code, seconds of a fit, whether the rare state is found over 20 seeds, and what is known of the uncertainty.
The fits are in peers.py; each tool has a process of its own for each series, which is ended when a fit takes too long.
One rule, in this file, judges the parameters that a fit returns, whoever made it.  Writes results/comparison.*.
"""

import argparse
import ast
import importlib.metadata
import importlib.util
import inspect
import json
import os
import pathlib
import pickle
import platform
import select
import subprocess
import sys
import tempfile
import textwrap
import time
from typing import NamedTuple

import numpy as np
from detection import DATA, TRAIN, solar
from machine import cpu, made_by
from peers import TOOLS

import rarehmm as rh
from rarehmm.paper.common import simulated
from rarehmm.paper.single import CASE
from rarehmm.search.regimes import RARE as RARE_SHARE

HERE = pathlib.Path(__file__).parent
T, SHORT = 1_000_000, 2_000
FIRST = 100  # seed; those below were looked at before
VERSIONS = ("rarehmm", "hmmlearn", "dynamax", "pomegranate", "torch", "numpyro", "blackjax", "jax", "numba", "numpy")
RARE = CASE.watched[0]
TRUE_MEAN, TRUE_SHARE = CASE.means[RARE], rh.stationary(CASE.transition)[RARE]
SOLAR = "solar"
ABOUT = {
    "rarehmm": ("posterior draws", "long series with a rare regime; says whether its posterior is to be trusted"),
    "hmmlearn": (
        "none (point estimate)",
        "a small, well-known interface; several emissions; nothing to compile; quick on short series",
    ),
    "hmmlearn, variational": ("of a factorised approximation", "states that are not needed are left empty"),
    "dynamax": (
        "none (point estimate); its log density can be given to a sampler",
        "many state-space models, gradients, batches of series, accelerators",
    ),
    "pomegranate": ("none (point estimate)", "mixtures, networks and factor graphs on one interface, GPUs"),
    "NumPyro": ("posterior draws", "any model and prior that can be written down, where the series is short"),
}


class Cell(NamedTuple):
    """A tool on a series: ``data(seed)`` gives y and the number of states; ``judge`` says what a fit has found."""

    series: str
    tool: str
    data: object
    judge: object
    seeds: int


# ---------------------------------------------------------------- series and rules
def single_rare(size):
    """The paper's series of section 4.1, another one for each seed; its first ``size`` observations."""

    def data(seed):
        train = simulated(np.random.default_rng(seed), CASE.transition, CASE.means, T).train
        return np.array(train.read(0, size)[:, 0]), 3

    return data


def has_rare_mean(probability, means, draws):
    """Is there a state with the true mean, give or take 1, and with the true share, give or take a factor of 3?"""
    shares = probability.mean(0)
    near = np.abs(means - TRUE_MEAN) < 1
    exchangeable_groups = (shares > TRUE_SHARE / 3) & (shares < TRUE_SHARE * 3)
    out = {"found": bool((near & exchangeable_groups).any())}
    if draws is not None:
        closest = draws[:, np.argmin(np.abs(means - TRUE_MEAN))]
        low, high = np.quantile(closest, [0.05, 0.95])
        out |= {"interval": [low, high], "covered": bool(low < TRUE_MEAN < high)}
    return out


def solar_flux():
    """The same series for all seeds, and the rule for it."""
    y, kind = (values[:TRAIN] for values in solar())
    return lambda _: (y, 4), lambda probability, *_: has_flares(probability, kind >= 4)


def has_flares(probability, strong):
    """Is there a rare state, as the library means the word, that has at least 80% of the minutes in M and X flares?

    ``probability`` (T, K) are those of the states, ``strong`` (T,) says which minutes are in such a flare.
    """
    inside = probability.argmax(1) == np.arange(probability.shape[1])[:, None]  # (K, T)
    recall, shares = inside[:, strong].mean(1), inside.mean(1)
    rare = shares < RARE_SHARE
    best, most = int(np.argmax(np.where(rare, recall, -1))), int(np.argmax(recall))
    out = {"found": bool(rare.any() and recall[best] >= 0.8), "rare_states": int(np.count_nonzero(rare))}
    out |= {"recall": float(recall[best]) if rare.any() else 0.0, "share": float(shares[best]) if rare.any() else 0.0}
    return out | {"most_recall": float(recall[most]), "most_share": float(shares[most])}


def judged(cell, seed, y, found):
    """What a fit is worth, by its parameters alone: the same pass over the series for all tools."""
    means, variances, transition, draws = found
    K = len(means)
    if not all(np.isfinite(part).all() for part in (means, variances, transition)):
        return {"found": False, "means": list(means), "log_likelihood": -np.inf}
    model = rh.Model(rh.Gaussian(), K, rh.Priors((rh.Flat(), rh.Flat())), np.full(K, 1 / K))
    parameters = model.parameters(transition, mean=means, variance=variances)
    series = rh.Series(y)
    return {
        **cell.judge(rh.smooth(model, parameters, series), means, draws),
        "means": list(means),
        "log_likelihood": rh.log_likelihood(model, parameters, series),
    }


# ---------------------------------------------------------------- fits
def fits(cell, limit, cache, kind="plain", judged=judged):
    """A row for each seed; the last one is {"stopped": True} where a fit took longer than the limit."""
    command = [sys.executable, str(HERE / "peers.py"), kind, cell.tool]
    peer = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=os.environ | {"NUMBA_CACHE_DIR": cache}
    )
    rows = []
    try:
        for seed in range(FIRST, FIRST + cell.seeds):
            y, K = cell.data(seed)
            pickle.dump((y, K, seed), peer.stdin)
            peer.stdin.flush()
            if not select.select([peer.stdout], [], [], limit)[0]:
                rows.append({"seed": seed, "stopped": True, "found": False})
                break
            seconds, found, said = pickle.load(peer.stdout)
            rows.append({"seed": seed, "seconds": seconds, "warnings": said, **judged(cell, seed, y, found)})
            print(f"{cell.series}, {cell.tool}, {seed}: {seconds:.1f} s, found {rows[-1]['found']}", flush=True)
    finally:
        peer.kill()
        peer.wait()
    return rows


def lines_of(function):
    """Lines of a function's body with code on them: no blank ones, no comments, no docstring."""
    source = inspect.getsource(function)
    body = ast.parse(source).body[0].body
    skip = len(body) > 1 and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant)
    rest = source.splitlines()[body[skip].lineno - 1 :]
    return sum(bool(line.strip()) and not line.strip().startswith("#") for line in rest)


# ---------------------------------------------------------------- report
def machine():
    there = [name for name in VERSIONS if importlib.util.find_spec(name)]
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in there)
    return f"{cpu()}, {os.cpu_count()} cores, default threads; Python {platform.python_version()}, {versions}."


def behind(cells):
    """Write into each row how far its log likelihood is below that of the best fit of the same series."""
    best = {}
    rows = [
        (row, cell["series"] if cell["series"] == SOLAR else (cell["series"], row["seed"]))
        for cell in cells
        for row in cell["fits"]
        if "seconds" in row
    ]
    for row, key in rows:
        best[key] = max(best.get(key, -np.inf), row["log_likelihood"])
    for row, key in rows:
        row["behind"] = best[key] - row["log_likelihood"]


def clock(seconds):
    return f"{seconds:,.0f}" if seconds >= 100 else f"{seconds:.1f}" if seconds >= 1 else f"{seconds:.2f}"


def message(rows, limit):
    """A line of the table: first, then, found, interval, behind."""
    done = [row for row in rows if "seconds" in row]
    found = f"{sum(row['found'] for row in rows)} of {len(rows)}"
    first = clock(done[0]["seconds"]) if done else f"> {limit:g}"
    if len(done) < len(rows):
        return first, f"> {limit:g}" if done else "", f"{found}, stopped", "", ""
    then = np.median([row["seconds"] for row in done[1:]])
    low, high = np.quantile([row["behind"] for row in done], [0.25, 0.75])
    covered = [row["covered"] for row in done if "covered" in row]
    interval = f"{sum(covered)} of {len(covered)}" if covered else ""
    return first, clock(then), found, interval, f"{low:,.1f} to {high:,.1f}"


def report(found):
    limit = found["limit"]
    lines = [
        "# Beside hmmlearn, dynamax, pomegranate and NumPyro",
        "",
        filled(
            f"{found['made']} Each tool is used as its documentation has it. The code that "
            "is run, and whose lines are counted (imports, fit, parameters handed over), is benchmarks/peers.py."
        ),
        "",
        "## Tools",
        "",
        "| tool | lines | uncertainty | what it is good at |",
        "|---|---|---|---|",
    ]
    lines += [
        f"| {name} | {found['lines'][name]} | {' | '.join(ABOUT[name])} |" for name in ABOUT if name in found["lines"]
    ]
    lines += [
        "",
        "## Fits",
        "",
        filled(
            "*first*: seconds of the first fit in a new process, imports and compilation counted. *then*: median "
            "seconds of the other fits. *found*: whether the rare state is there, see below. *interval*: how often the "
            "90% interval of its mean has the true one. *behind*: log likelihood below that of the best fit of the "
            "same series by any tool, quartiles: thousands are another, poorer solution. A fit that takes more than "
            f"{limit:g} s is stopped, and the other seeds of that line are not run."
        ),
        "",
        "| series | tool | first, s | then, s | found | interval | behind |",
        "|---|---|---|---|---|---|---|",
    ]
    for cell in found["cells"]:
        lines.append(f"| {cell['series']} | {cell['tool']} | {' | '.join(message(cell['fits'], limit))} |")
    lines += [
        "",
        *(filled(f"- {text}", "  ") for text in remarks(found)),
        "",
        filled(f"Machine: {found['machine']} In all {found['minutes']:.0f} minutes."),
    ]
    return "\n".join(lines) + "\n"


def filled(text, indent=""):
    return textwrap.fill(text, 118, subsequent_indent=indent, break_on_hyphens=False)


def remarks(found):
    """What was fitted, what counts as found, and what the table cannot say."""
    return [
        f"Single rare: section 4.1 of the paper, T = {T:,}, means -20, 0 and 20, variance 1, three states; seed i is "
        "a data set of its own, and the seed of the tool. Found: a state whose mean is within 1 of 20 (one standard "
        f"deviation of its observations) and whose share is within a factor of 3 of the true {TRUE_SHARE:.2%}. A rare "
        "state 20 standard deviations from the others is an easy one; [finding](finding.md) has harder ones.",
        f"The first {SHORT:,} observations of each, about ten of them rare, are a series that NumPyro can do: it "
        "reads all of a series for each of its thousands of gradients.",
        *variational_remarks(found["cells"]),
        *(solar_remarks(found["cells"]) if found["solar"] else ["Solar: no data in RAREHMM_DATA; not run."]),
        "Shares, most probable states and log likelihoods are those of the parameters that a tool returns (posterior "
        "means where there are draws), by the same pass over the series for all.",
        "hmmlearn: default start, at most 100 iterations. Its tutorial advises several starts and the best score: "
        "the line with 5 starts does that (for 5 data sets where T is large). dynamax: its k-means start, 50 "
        "iterations (its default; on solar the likelihood is still rising), double precision. pomegranate: its k-means "
        "start, at most 100 iterations, single precision (its default). NumPyro: forward algorithm in `lax.scan`, weak "
        "priors scaled from the data, NUTS from a k-means start, one chain of 300 + 300 draws.",
        "rarehmm keeps compiled code on disk, for each family and method: *first* is with nothing there before the "
        f"first line. With it the first fit of a new process takes {found['again']:.1f} s on single rare. The jax of "
        "the others compiles in each process, and here in each fit.",
        "Limits: two series, one machine without an accelerator, one user's idea of good practice. rarehmm was made "
        "for such series, the others were not. dynamax and NumPyro gain from a GPU, and hmmlearn and dynamax from "
        "starts that a user who knows the data gives them.",
    ]


def variational_remarks(cells):
    """Where a factorised approximation puts the rare state of a short series, and how sure it is."""
    for cell in cells:
        rows = [row for row in cell["fits"] if "seconds" in row]
        if cell["tool"] == "hmmlearn, variational" and cell["series"].startswith("the first") and rows:
            closest = [min(row["means"], key=lambda mean: abs(mean - TRUE_MEAN)) for row in rows]
            near = sum(abs(mean - TRUE_MEAN) < 1 for mean in closest)
            yield (
                f"hmmlearn, variational, on these: the mean closest to {TRUE_MEAN:g} is {np.median(closest):.1f} "
                f"(median), in {near} of {len(rows)} fits within 1 of it; {sum(row['covered'] for row in rows)} of its "
                f"intervals have {TRUE_MEAN:g}. Its default prior counts as one observation at the mean of the whole "
                "series."
            )


def middle(rows, key):
    return np.median([row.get(key, 0) for row in rows])


def solar_remarks(cells):
    """The rule, then what the best of all starts found, and who warned."""
    fits = {
        cell["tool"]: [row for row in cell["fits"] if "seconds" in row] for cell in cells if cell["series"] == SOLAR
    }
    said = [
        f"Solar: GOES-16, 2022, log flux above its baseline, the first {TRAIN:,} minutes, four states, one data set; "
        "the seeds are those of the tool. Found: a state that is the most probable one in at least 80% of the minutes "
        f"in M and X flares, and in less than {RARE_SHARE:.0%} of all minutes, which is what the library calls rare "
        "(`rare_share`). There is no true mean, hence no interval."
    ]
    for tool, rows in fits.items():
        if rows:
            best = max(rows, key=lambda row: row["log_likelihood"])
            warned = [row["warnings"][0] for row in rows if row["warnings"]]
            said.append(
                f"Solar, {tool}: the state with most flares has {middle(rows, 'most_recall'):.0%} of their minutes and "
                f"{middle(rows, 'most_share'):.0%} of all (medians); of the rare states, the one with most flares has "
                f"{middle(rows, 'recall'):.0%} and {middle(rows, 'share'):.1%}. The fit of the best log likelihood "
                f"{'has' if best['found'] else 'has not'} found a rare state of flares."
                + (f" In {len(warned)} of {len(rows)} fits it warned, as in: {warned[0]}" if warned else "")
            )
    return said


def main():
    ask = argparse.ArgumentParser()
    ask.add_argument("--quick", action="store_true", help="two seeds, nothing written, to see that it works")
    ask.add_argument("--limit", type=float, default=120, help="seconds a fit may take")
    use = ask.parse_args()
    began, made, seeds = time.perf_counter(), made_by("comparison"), 2 if use.quick else 20
    tools = [tool for tool in TOOLS if tool != "pomegranate" or importlib.util.find_spec(tool)]
    one = [tool for tool in tools if "best" not in tool]
    plan = [Cell("single rare", tool, single_rare(T), has_rare_mean, seeds) for tool in one]
    plan.insert(2, Cell("single rare", "hmmlearn, best of 5 starts", single_rare(T), has_rare_mean, min(seeds, 5)))
    plan += [Cell(f"the first {SHORT:,} of it", tool, single_rare(SHORT), has_rare_mean, seeds) for tool in tools]
    there = (DATA / "goes_g16_2022").exists()
    if there:
        data, has_flares = solar_flux()
        plan += [Cell(SOLAR, tool, data, has_flares, seeds) for tool in one]
    with tempfile.TemporaryDirectory() as cache:
        cells = [{"series": c.series, "tool": c.tool, "fits": fits(c, use.limit, cache)} for c in plan]
        again = fits(plan[0]._replace(seeds=1), use.limit, cache)[0].get("seconds", use.limit)
    behind(cells)
    found = {
        "made": made, "machine": machine(), "minutes": (time.perf_counter() - began) / 60, "limit": use.limit,
        "solar": there, "lines": {name: lines_of(TOOLS[name]) for name in tools}, "again": again,
        "cells": cells,
    }  # fmt: skip
    if not use.quick:
        (HERE / "results/comparison.json").write_text(json.dumps(found, indent=1, default=float) + "\n")
        (HERE / "results/comparison.md").write_text(report(found))
    print(report(found))


if __name__ == "__main__":
    main()
