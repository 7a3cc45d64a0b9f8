"""What a mode and a posterior cost as the series grows from 1e4 to 1e7 observations: rarehmm beside its peers.

Point estimates are those of peers.py, samplers those of samplers.py; each has a process of its own for each length,
alone on the machine, and is stopped where it would need more than ten minutes.  The posteriors are compared with
importance sampling on all data.  Writes results/scaling.json, scaling.md and scaling.png.
"""

import argparse
import functools
import importlib.util
import json
import pathlib
import subprocess
import sys
import tempfile
import time

import numpy as np
from comparison import clock, filled, lines_of, machine
from configurations import CASES, simulated
from machine import peak_memory
from peers import TOOLS
from samplers import SAMPLERS, Problem, quantities

import rarehmm as rh
from rarehmm.paper import runtime
from rarehmm.sampling.importance import Roots, laplace_importance

HERE = pathlib.Path(__file__).parent
LENGTHS = (10_000, 100_000, 1_000_000, 10_000_000)
LIMIT, WANTED = 600.0, 400
POINTS = {
    "rarehmm, the mode": None,
    **{name: TOOLS[name] for name in ("hmmlearn", "hmmlearn, variational", "dynamax", "pomegranate")},
}
PAPER = "the paper's TASS, printed"


# ---------------------------------------------------------------- one measurement, in a process of its own
@functools.cache
def series_of(T):
    return simulated(CASES["single rare"]._replace(size=T), 0)[:2]


def point(name, T):
    """A fit from the array to a point: seconds of the first and of a second one, log likelihood, memory."""
    model, series = series_of(T)
    y = np.array(series.read(0, T)[:, 0])
    before, seconds = peak_memory(), []

    def mode():
        fresh = rh.Series(y)
        found = rh.find_mode(rh.Model(rh.Gaussian(), 3, rh.default_priors(rh.Gaussian(), 3, fresh)), fresh)
        parameters = found.model.unpack(found.theta)
        return parameters.phi[:, 0], parameters.phi[:, 1], parameters.transition, None

    for _ in range(2):
        began = time.perf_counter()
        found = mode() if POINTS[name] is None else POINTS[name](y, 3, 0)
        means, variances, transition, draws = [None if part is None else np.asarray(part) for part in found]
        seconds.append(time.perf_counter() - began)
        if sum(seconds) > LIMIT / 4:
            break
    memory = peak_memory() - before
    if not all(np.isfinite(part).all() for part in (means, variances, transition)):
        return {"first": seconds[0], "failed": f"NaN after {clock(min(seconds))} s"}
    order = np.argsort(means)
    parameters = model.parameters(transition[np.ix_(order, order)], mean=means[order], variance=variances[order])
    return {
        "first": seconds[0], "seconds": min(seconds), "memory": memory,
        "log_likelihood": rh.log_likelihood(model, parameters, series),
        "sds": None if draws is None else list(draws[:, order].std(0)),
    }  # fmt: skip


def sampled(name, T):
    """A sampler from the mode to 400 effective draws of the worst parameter, or to where it would take too long."""
    model, series = series_of(T)
    began = time.perf_counter()
    mode = rh.find_mode(model, series)
    climbing, before = time.perf_counter() - began, peak_memory()
    sampler, n = SAMPLERS[name]
    while True:
        began = time.perf_counter()
        seconds, values, effective = sampler(Problem(mode, series), n)
        whole, missing = time.perf_counter() - began, max(1.0, WANTED / effective)
        row = {
            "draws": values.shape[0] * values.shape[1], "effective": effective, "rate": effective / seconds,
            "whole": whole, "needed": climbing + whole - seconds + missing * seconds, "memory": peak_memory() - before,
            "sds": list(values.reshape(-1, values.shape[-1]).std(0)),
        }  # fmt: skip
        if missing == 1 or name == "rarehmm":
            return row
        if whole + 1.25 * row["needed"] > LIMIT:
            return row | {"stopped": True}
        n = int(np.ceil(1.25 * missing * n))


def gold(_, T):
    """Standard deviations by importance sampling from the Gaussian at the mode in cube roots, likelihoods exact."""
    model, series = series_of(T)
    mode = rh.find_mode(model, series)
    size = int(np.clip(2e10 / T, 2000, 20_000))
    found = laplace_importance(np.random.default_rng(1), Roots(mode, series), (size,))
    values = quantities(mode.model, found.theta)
    mean = found.weights @ values
    return {"sds": list(np.sqrt(found.weights @ (values - mean) ** 2)), "effective": found.effective, "size": size}


def apart(kind, name, T):
    """The measurement ``kind`` of a tool, in a new process; {"stopped": True} where that did not end in time."""
    command = [sys.executable, __file__, "--one", kind, name, str(T)]
    print(f"T = {short(T)}, {name}", flush=True)
    with tempfile.NamedTemporaryFile() as out:
        try:
            done = subprocess.run(command, stdout=out, timeout=1.3 * LIMIT + 60)
        except subprocess.TimeoutExpired:
            return {"stopped": True}
        text = pathlib.Path(out.name).read_text().splitlines()
    if done.returncode != 0:
        return {"failed": f"exit {done.returncode}"}
    row = json.loads(text[-1])
    print("   ", {k: v for k, v in row.items() if k != "sds"}, flush=True)
    return row | ({"stopped": True} if row.get("first", 0) > LIMIT else {})


# ---------------------------------------------------------------- all of them
def measured(kind, name, lengths):
    """The rows of a tool by length; beyond one at which it failed, or was much too slow, it is not run."""
    rows, over = {}, False
    for T in lengths:
        rows[T] = {"skipped": True} if over else apart(kind, name, T)
        over = over or "failed" in rows[T] or ("stopped" in rows[T] and far(rows[T]))
    return rows


def kept(path):
    """Results of an earlier run."""
    found = json.loads(path.read_text())
    for part in ("points", "samplers"):
        found[part] = {name: by_length(rows) for name, rows in found[part].items()}
    return found | {"gold": by_length(found["gold"])}


def by_length(rows):
    return {int(T): row for T, row in rows.items()}


def far(row):
    """Whether ten times as much data would leave nothing to show in ten minutes."""
    return 10 * row.get("whole", LIMIT) > 1.3 * LIMIT


def ratios(row, gold):
    """Standard deviations beside those of the reference."""
    return np.array(row["sds"]) / np.array(gold["sds"])[: len(row["sds"])]


# ---------------------------------------------------------------- report
def short(T):
    """1000000 as 1e6."""
    return f"{T:.0e}".replace("e+0", "e")


def point_cells(row, best):
    if "seconds" not in row:
        return ["not run" if "skipped" in row else row.get("failed", "> 600"), "", ""]
    behind = best - row["log_likelihood"]
    return [f"{clock(row['seconds'])} ({clock(row['first'])})", f"{behind:,.1f}", f"{row['memory']:,.0f}"]


def sampler_cells(row, gold):
    if "rate" not in row:
        return ["not run" if "skipped" in row else row.get("failed", "> 600"), "", "", ""]
    needed = f"**> 600**, about {clock(row['needed'])}" if "stopped" in row else clock(row["needed"])
    few = row["effective"] < 50
    r = ratios(row, gold)
    spread = "" if few else f"{np.mean(r):.3f} ({r.min():.2f} to {r.max():.2f})"
    return [needed, f"{row['rate']:,.3g}", spread, f"{row['memory']:,.0f}"]


def report(found):
    lines = [
        "# Cost against the length of the series",
        "",
        filled(
            "Written by `make bench`; do not edit. The paper's series with a single rare state (three Gaussian states, "
            "means 20 standard deviations apart, 0.5% rare), T from 1e4 to 1e7, two cores, nothing else running, each "
            "tool in a process of its own for each length. How often the rare state is found over 20 seeds, and lines "
            "of code of the point estimates: [comparison](comparison.md)."
        ),
        "",
        "![seconds against T](scaling.png)",
        "",
        "## To a point",
        "",
        filled(
            "From an array to parameters; seconds of the quicker of two fits and, in brackets, of the first one in a "
            "new process, compilation counted (rarehmm keeps compiled code on disk, and finds it there). *behind*: log "
            "likelihood below that of the best tool (rarehmm's mode is that of the posterior, with its priors). "
            "*memory*: growth of the peak beyond that with the data, MB, the tool's own code counted. hmmlearn and "
            "pomegranate stop at an improvement of 0.01; dynamax makes 50 iterations; variational Bayes at most 100."
        ),
        "",
        "| tool | T | seconds | behind | memory |",
        "|---|---|---|---|---|",
    ]
    for T in found["lengths"]:
        rows = {name: found["points"][name][T] for name in found["points"]}
        best = max(row["log_likelihood"] for row in rows.values() if "log_likelihood" in row)
        lines += [f"| {name} | {short(T)} | {' | '.join(point_cells(row, best))} |" for name, row in rows.items()]
    lines += [
        "",
        "## To a posterior",
        "",
        filled(
            f"Seconds to {WANTED} effective draws (bulk, ArviZ) of the worst of all means, variances and transition "
            "probabilities, from an array: the search for the mode, where all start, set-up, warm-up and compilation "
            "of jax counted. Where that would be more than ten minutes the tool was stopped, and the seconds are those "
            "at the rate seen. *a second*: effective draws a second, once set up; for rarehmm all after the mode is "
            "counted ([cost](cost.md) has its chains alone). NUTS after four draws: all are effective. *sd*: mean, and "
            "range over the 15 quantities, of standard deviations over those of the reference, which is importance "
            "sampling with exact likelihoods; by chance each is off by about 4%."
        ),
        "",
        "| sampler | lines | T | seconds | a second | sd, beside the reference | memory |",
        "|---|---|---|---|---|---|---|",
    ]
    for T in found["lengths"]:
        for name in found["samplers"]:
            cells = sampler_cells(found["samplers"][name][T], found["gold"][T])
            lines.append(f"| {name} | {found['lines'][name]} | {short(T)} | {' | '.join(cells)} |")
    printed = ", ".join(f"{rows[-1][1]} at T = {T:,}" for T, rows in runtime.PAPER.items())
    lines += [
        "",
        filled(
            f"- The paper's sampler on its own machine (2.6 GHz), as printed: seconds for {runtime.STEPS[-1]:,} "
            f"iterations of TASS: {printed}. It says nothing of effective draws; they are biased "
            "(docs/explanation/calibration.md).",
            "  ",
        ),
        filled(
            "- hmmlearn's variational posterior of the three means, standard deviations over those of the reference: "
            + "; ".join(variational_words(found))
            + ".",
            "  ",
        ),
        filled(
            "- BlackJAX: its SGLD, step 0.1 in coordinates whitened at the mode, asks rarehmm for each gradient by "
            "`jax.pure_callback`: windows, control variates and pilot design are ours, the chain is its own. NumPyro: "
            "whitened too, so that NUTS has nothing but a step size to learn; its `lax.scan` reads the series "
            "observation by observation.",
            "  ",
        ),
        filled(f"- Reference: effective points {reference_words(found)}.", "  "),
        "",
        filled(f"Machine: {found['machine']} In all {found['minutes']:.0f} minutes."),
    ]
    return "\n".join(lines) + "\n"


def variational_words(found):
    for T in found["lengths"]:
        row = found["points"]["hmmlearn, variational"][T]
        if row.get("sds"):
            yield f"T = {short(T)} " + ", ".join(f"{r:.2f}" for r in ratios(row, found["gold"][T]))


def reference_words(found):
    return ", ".join(f"{g['effective']:.0f} of {g['size']} at T = {short(T)}" for T, g in found["gold"].items())


def draw(found, path):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.6), sharey=True, layout="constrained")
    for axes, part, key in ((left, "points", "seconds"), (right, "samplers", "needed")):
        for i, (name, rows) in enumerate(found[part].items()):
            done = {T: row[key] for T, row in rows.items() if key in row}
            colour = "black" if name.startswith("rarehmm") else f"C{i}"
            axes.plot(done.keys(), done.values(), "o-", color=colour, lw=2 if colour == "black" else 1.2, label=name)
        axes.axhline(LIMIT, color="grey", lw=0.8, ls=":")
        axes.set(xscale="log", yscale="log", xlabel="T, observations")
        axes.spines[["top", "right"]].set_visible(False)
    printed = {T: rows[-1][1] for T, rows in runtime.PAPER.items()}
    right.plot(printed.keys(), printed.values(), "s--", color="grey", ms=4, lw=1, label=f"{PAPER} (10,000 steps)")
    left.set(ylabel="seconds", title="from an array to a point")
    right.set(title=f"from an array to {WANTED} effective draws")
    for axes in (left, right):
        axes.legend(fontsize=8, frameon=False)
    left.text(LENGTHS[0], LIMIT * 1.1, "ten minutes; beyond, at the rate seen", fontsize=7, color="grey")
    figure.savefig(path, dpi=110)


def promises(found):
    """What a change must not break, in ratios within this run."""
    ours, gibbs = found["samplers"]["rarehmm"], found["samplers"]["Gibbs sampling, ours"]
    mode, peer = found["points"]["rarehmm, the mode"], found["points"]["hmmlearn"]
    million = 1_000_000
    off = max(abs(ratios(row, found["gold"][T]).mean() - 1) for T, row in ours.items())
    return {
        "standard deviations within 5% of the reference": off < 0.05,
        "a posterior of a million five times quicker than by Gibbs sampling": gibbs[million]["needed"]
        > 5 * ours[million]["needed"],
        "the mode of a million no more than twice hmmlearn's time": mode[million]["seconds"]
        < 2 * peer[million]["seconds"],
        "less memory than hmmlearn": mode[million]["memory"] < peer[million]["memory"],
    }


def main():
    ask = argparse.ArgumentParser()
    ask.add_argument("--quick", action="store_true", help="up to T = 1e5, nothing written, to see that it works")
    again = "measure one tool anew, and keep the results of the others"
    ask.add_argument("--again", metavar="TOOL", choices=[*POINTS, *SAMPLERS], help=again)
    ask.add_argument("--one", nargs=3, metavar=("KIND", "NAME", "T"), help="one measurement, in this process")
    use = ask.parse_args()
    if use.one:
        kind, name, T = use.one
        print(json.dumps({"point": point, "sampled": sampled, "gold": gold}[kind](name, int(T)), default=float))
        return
    began = time.perf_counter()
    lengths = LENGTHS[:2] if use.quick else LENGTHS
    there = [name for name in POINTS if name != "pomegranate" or importlib.util.find_spec(name)]
    tools = [("points", "point", name) for name in there] + [("samplers", "sampled", name) for name in SAMPLERS]
    if use.again:
        found = kept(HERE / "results/scaling.json")
        tools = [tool for tool in tools if tool[2] == use.again]
    else:
        apart("sampled", "rarehmm", lengths[0])  # its compiled code is on disk from here on
        found = {"points": {}, "samplers": {}, "gold": measured("gold", "gold", lengths), "minutes": 0.0}
    for part, kind, name in tools:
        found[part][name] = measured(kind, name, lengths)
    found |= {
        "lengths": lengths, "lines": {name: lines_of(sampler) for name, (sampler, _) in SAMPLERS.items()},
        "machine": machine(), "minutes": found["minutes"] + (time.perf_counter() - began) / 60,
    }  # fmt: skip
    folder = pathlib.Path(tempfile.mkdtemp()) if use.quick else HERE / "results"
    (folder / "scaling.json").write_text(json.dumps(found, indent=1, default=float) + "\n")
    (folder / "scaling.md").write_text(report(found))
    draw(found, folder / "scaling.png")
    print(report(found), f"\nwritten to {folder}")
    if not use.quick and (broken := [promise for promise, kept in promises(found).items() if not kept]):
        sys.exit(f"not kept: {'; '.join(broken)}")


if __name__ == "__main__":
    main()
