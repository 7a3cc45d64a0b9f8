"""What a mode, a posterior and an effective draw cost with season and autocorrelated noise, as the series grows.

Times are from an array in memory, with all threads, nothing else running and warm caches; each is the smallest of
several repeats.  An effective draw is one of the worst parameter; what it costs is measured on more of them, apart from
what precedes them.  The longest series lies in a .npy file (``--folder`` needs 1 GB), and its fit is a process of its
own.  Writes results/regime_cost.*.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
import time
import warnings

import numpy as np
from cost import timed
from machine import made_by, peak_memory
from regime_configurations import CASES, around, model_of, simulated

import rarehmm as rh
from rarehmm.sampling.importance import Roots, laplace_importance
from rarehmm.sampling.methods import Job
from rarehmm.sampling.rule import infer
from rarehmm.sampling.stand_in import stand_in
from rarehmm.search.long_series import find_long_mode, is_long

RESULTS = pathlib.Path(__file__).parent / "results"
SIZES, WANTED, POINTS = (100_000, 1_000_000, 10_000_000), 1000, 20_000
COSTED = {
    "AR(1) .6, season of 24 columns": CASES["season of 24 columns, AR(1) .6"],
    "AR(1) .6": around([-5, 0, 10], 0.6),
    "AR(1) .95, levels -2, 0, 4": CASES["AR(1) .95, levels -2, 0, 4"],
}
SEASON, ALONE, HARD = COSTED
LIMITS = [  # of a figure, at T = 1e6 or at every length
    (SEASON, "mode", 1_000_000, 8), (SEASON, "draws", 1_000_000, 20), (SEASON, "us", None, 300),
    (ALONE, "us", None, 100), (HARD, "draws", 1_000_000, 90),
]  # fmt: skip
WORDS = {"mode": "s from array to mode", "draws": f"s to {WANTED:,} effective draws", "us": "µs an effective draw"}
GROWTH = 1.5  # of an effective draw, from the shortest series to the longest

PART, PARTS = 1_008_000, 100  # rows, weeks by the minute, and how many times that are in a file
FROM_FILE = 300, 1.5e3  # seconds and MB that a fit of the file may take


def fresh(case, y):
    """Model and series from an array, as a user makes them."""
    series = rh.Series(y)
    return model_of(case, series, rh.default_priors(case.family, len(case.transition), series)), series


def from_array(case, y, method):
    model, series = fresh(case, y)
    return infer(np.random.default_rng(0), model, series, wanted=WANTED, method=method)


def draws_alone(case, y):
    """Seconds to prepare weighted points around a mode, and seconds and effective size of ``POINTS`` of them."""
    rng, (model, series) = np.random.default_rng(0), fresh(case, y)
    if is_long(model, series):
        mode, data = find_long_mode(rng, model, series)
    else:
        mode, data = rh.find_mode(model, series), series
    (sample, _), before = timed(stand_in, Job(rng, mode, data, whole=series))
    roots, building = timed(Roots, mode, sample, None)
    laplace_importance(rng, roots, (400,), limit=None)
    rows = [timed(laplace_importance, rng, roots, (POINTS,), limit=None) for _ in range(3)]
    weighted, seconds = min(rows, key=lambda row: row[1])
    return before + building, seconds, weighted.effective


def measured(name, T, repeats):
    """All figures of one configuration at one length."""
    case = COSTED[name]
    _, series, _, _ = simulated(case, 0, T)
    y = np.array(series.read(0, T)[:, 0])
    out = {"name": name, "T": T, "d": fresh(case, y)[0].size}
    for figure, method in (("mode", "map"), ("draws", "auto")):
        runs = [timed(from_array, case, y, method) for _ in range(repeats)]
        out[figure], found = min(seconds for _, seconds in runs), runs[-1][0]
    before, seconds, effective = draws_alone(case, y)
    return out | {
        "method": found.method, "why": found.why, "effective": found.effective, "verdict": found.verdict,
        "prepare": before, "us": 1e6 * seconds / effective, "share": effective / POINTS,
    }  # fmt: skip


def write_file(path):
    """A long series with season and autocorrelated noise, which begins anew after each part."""
    y = np.lib.format.open_memmap(path, "w+", float, (PART * PARTS,))
    for i in range(PARTS):
        series = simulated(COSTED[SEASON], 1 + i, PART)[1]
        y[i * PART : (i + 1) * PART] = series.read(0, PART)[:, 0]


def fit_file(path):
    """Seconds, peak memory and the verdict of a fit of a file."""
    began = time.perf_counter()
    found = from_array(COSTED[SEASON], np.load(path, mmap_mode="r"), "auto")
    return {
        "T": PART * PARTS, "seconds": time.perf_counter() - began, "MB": peak_memory(), "method": found.method,
        "effective": found.effective, "verdict": found.verdict,
    }  # fmt: skip


def of_file(folder):
    """The figures of a fit of the file, in a process of its own."""
    with tempfile.TemporaryDirectory(dir=folder) as place:
        path = pathlib.Path(place) / "y.npy"
        write_file(path)
        words = [sys.executable, __file__, "--fit-file", path]
        return json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)


# ---------------------------------------------------------------- report
def kept(found):
    """A line for each limit, and whether it is kept."""
    for name, figure, T, limit in LIMITS:
        values = [r[figure] for r in found if r["name"] == name and T in (None, r["T"])]
        if values:
            where = "" if T is None else f" at T = {T:,}"
            yield f"{name}{where}: {max(values):.3g} {WORDS[figure]} (limit {limit})", max(values) <= limit
    for name in (SEASON, ALONE):
        values = [r["us"] for r in found if r["name"] == name]
        if len(values) > 1:
            growth = max(values) / min(values)
            yield (
                f"{name}: an effective draw costs {growth:.2f} times as much at one length as at another (limit "
                + (f"{GROWTH})"),
                growth <= GROWTH,
            )


def report(made, found, file):
    lines = [
        "# The cost of a posterior with season and autocorrelated noise",
        "",
        made,
        "K = 3, 1.2 % in the rare state, from an array in memory, warm caches, all threads. Mode: from array to",
        f"mode, with its checks. Draws: from array to {WANTED:,} effective draws of the worst parameter by the default",
        f"rule, with all checks. µs: of an effective draw, over {POINTS:,} weighted points. Prepare: what precedes",
        "these, after the mode.",
        "",
        "| model | d | T | mode, s | draws, s | method | effective | prepare, s | µs an effective draw | share |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for r in found:
        lines.append(
            f"| {r['name']} | {r['d']} | {r['T']:.0e} | {r['mode']:.1f} | {r['draws']:.1f} | {r['method']} "
            f"| {r['effective']:.0f} | {r['prepare']:.1f} | {r['us']:.0f} | {r['share']:.0%} |"
        )
    lines += ["", *(f"- {text}: {'yes' if reached else '**no**'}" for text, reached in kept(found))]
    if file:
        seconds, memory = FROM_FILE
        small = file["seconds"] <= seconds and file["MB"] <= memory
        lines.append(
            f"- {SEASON}, T = {file['T']:,} from a .npy file: {file['seconds']:.0f} s to {file['effective']:.0f} "
            f"effective draws, at most {file['MB']:,.0f} MB (limits {seconds} s, {memory:,.0f} MB): "
            f"{'yes' if small else '**no**'}; {file['verdict']}"
        )
    lines += [
        f"- {r['name']}, T = {r['T']:.0e}: {r['verdict']}" for r in found if not r["verdict"].startswith("All checks")
    ]
    return "\n".join(lines) + "\n"


def main():
    ask = argparse.ArgumentParser()
    ask.add_argument("--cases", nargs="*", default=list(COSTED))
    ask.add_argument("--sizes", nargs="*", type=int, default=list(SIZES))
    ask.add_argument("--repeats", type=int, default=3, help="at lengths below 1e7, where there is one less")
    ask.add_argument("--quick", action="store_true", help="write nothing")
    ask.add_argument("--folder", default=None, help="where the file lies; by default, where temporary files are")
    ask.add_argument("--fit-file", help="fit this file and print what it took")
    use, made, path = ask.parse_args(), made_by("regime-cost"), RESULTS / "regime_cost.json"
    warnings.simplefilter("ignore", RuntimeWarning)
    if use.fit_file:
        print(json.dumps(fit_file(use.fit_file), default=float))
        return
    found, file = [], None
    jobs = [(name, T) for name in use.cases for T in use.sizes]
    for name, T in [*jobs, (None, None)]:
        if name is None:
            file = of_file(use.folder)
        else:
            if use.sizes[0] == T:
                measured(name, 30_000, 1)  # warms caches
            found.append(measured(name, T, max(1, use.repeats - (SIZES[-1] <= T))))
        print(json.dumps(found[-1] if name else file, default=float), flush=True)
        if not use.quick:
            path.write_text(json.dumps({"made": made, "rows": found, "file": file}, indent=1, default=float) + "\n")
            (RESULTS / "regime_cost.md").write_text(report(made, found, file))
    print(report(made, found, file))


if __name__ == "__main__":
    main()
