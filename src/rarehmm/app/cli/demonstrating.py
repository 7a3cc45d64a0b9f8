"""``rarehmm demo``: a series as in the paper, and a server metric with a season, lags and two kinds of events."""

import time
from pathlib import Path
from typing import Annotated

import numpy as np
import pandas as pd
import typer

import rarehmm as rh
from rarehmm.app import runs
from rarehmm.app.cli.app import UNRELIABLE, app, console, print_step
from rarehmm.app.cli.running import logged, paper_series, prepared, print_result
from rarehmm.app.settings import Settings
from rarehmm.common.arrays import Array, IntArray

DAYS, PER_DAY = 20, 144  # of the metric
SLOT = 60  # rows in which there is at most one event
LEVELS = np.array([40.0, 58.0, 18.0])  # of its states
EVENTS = {1: ("overloads", 9, 6.0), 2: ("outages", 6, 12.0)}  # their name, number and mean length
MEMORY = 0.6  # autocorrelation of the noise


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Output folder.")] = Path("rarehmm-demo"),
    size: Annotated[int, typer.Option(min=10_000, help="Number of observations of the first series.")] = 100_000,
    seed: Annotated[int, typer.Option(min=0, help="Random seed.")] = 0,
) -> int:
    """Simulate the paper's series and a server metric, fit them, and show the results: states, events and reports."""
    passed = [fit_paper_series(out, size, seed), fit_metric(out, seed)]
    return 0 if all(passed) else UNRELIABLE


def fit_paper_series(out: Path, size: int, seed: int) -> bool:
    """Fit a series like those of the paper, with settings that are given; return whether all checks passed."""
    console.rule("1. A series as in the paper")
    started = time.perf_counter()
    model, point = paper_series()
    y, states = rh.simulate(np.random.default_rng(seed), model, point, size)
    out.mkdir(parents=True, exist_ok=True)
    np.save(out / "series.npy", y)
    started = print_step(
        f"simulated {size:,} observations from 3 states, {np.mean(states == 2):.2%} of them in the rare state", started
    )
    console.print("fitting (the first time, kernels are compiled, which takes 10 to 20 s)")
    return fit_and_show(out, Settings(str(out / "series.npy"), seed=seed), started).passed


def fit_metric(out: Path, seed: int) -> bool:
    """Fit a server metric as ``rarehmm fit --auto`` does, and compare its events with those that were simulated."""
    console.rule("2. A server metric, with nothing but the names of its columns")
    started, file = time.perf_counter(), out / "metric.csv"
    table, states = metric(np.random.default_rng(seed))
    runs.write(file, runs.as_csv(table))
    started = print_step(f"simulated {DAYS} days of a metric every {24 * 60 // PER_DAY} minutes: {file}", started)
    console.print(f"rarehmm fit {file} --column cpu --time time --auto --out {out / 'metric'}", soft_wrap=True)
    settings = Settings(str(file), ["cpu"], "time", auto=True, seed=seed)
    result = fit_and_show(out / "metric", settings, started)
    console.print(comparison(table["time"], states, result.events), soft_wrap=True)
    return result.passed


def fit_and_show(folder: Path, settings: Settings, started: float) -> runs.RunResult:
    """Fit a series, and print the results."""
    series = runs.series_of(settings)
    settings = prepared(folder, settings, ("file", "column", "time", "auto", "seed"), series, force=True, shown=True)
    with logged(folder):
        result = runs.fit(folder, settings, series, shown=True)
    print_step("fitted the model, checked it and wrote the report", started)
    print_result(result)
    console.print(f"open in a browser: {folder / 'report.html'}", soft_wrap=True)
    return result


# ---------------------------------------------------------------- the metric
def metric(rng: np.random.Generator) -> tuple[pd.DataFrame, IntArray]:
    """Simulate a metric with times, and return it with the true state of each row: 0, or a key of ``EVENTS``."""
    T = DAYS * PER_DAY
    states, noise = np.zeros(T, dtype=np.int64), np.zeros(T)
    kinds = np.repeat(list(EVENTS), [number for _, number, _ in EVENTS.values()])
    for slot, kind in zip(rng.permutation(T // SLOT), kinds.tolist(), strict=False):
        first = slot * SLOT + rng.integers(SLOT // 3)
        states[first : first + min(rng.geometric(1 / EVENTS[kind][2]), SLOT // 2)] = kind
    for t in range(1, T):
        noise[t] = MEMORY * noise[t - 1] + rng.normal()
    turn: Array = 2 * np.pi * np.arange(T) / PER_DAY  # of the day
    day = 9 * np.sin(turn - 2 * np.pi / 3) + 3 * np.sin(2 * turn - np.pi / 2)
    times = pd.date_range("2026-01-05", periods=T, freq=pd.Timedelta("1D") / PER_DAY)
    return pd.DataFrame({"time": times, "cpu": (LEVELS[states] + day + noise).round(2)}), states


def comparison(times: pd.Series, states: IntArray, events: pd.DataFrame) -> str:
    """Say how many simulated events were found, and how many of those found were not simulated."""
    low, high = times.searchsorted(events["start"]), times.searchsorted(events["end"], "right")
    found = np.zeros(len(states), dtype=bool)
    for first, last in zip(low, high, strict=True):
        found[first:last] = True
    false = sum(not states[first:last].any() for first, last in zip(low, high, strict=True))
    parts = []
    for state, (name, _, _) in EVENTS.items():
        edges = np.flatnonzero(np.diff(states == state, prepend=False, append=False)).reshape(-1, 2)
        hits = sum(bool(found[first:last].any()) for first, last in edges)
        parts.append(f"{hits} of the {len(edges)} simulated {name}")
    return f"The truth: {' and '.join(parts)} were found, and {false or 'none'} of the events found are false."
