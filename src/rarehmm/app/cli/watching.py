"""``rarehmm watch``: alarms while observations come in."""

import json
import math
import sys
from typing import Annotated

import numpy as np
import typer

import rarehmm as rh
from rarehmm.app import runs
from rarehmm.app.cli.app import app, errors
from rarehmm.app.cli.running import AsJson, Folder
from rarehmm.engine.contracts.family import columns
from rarehmm.exact.passes import filter_states

SIMULATED = 200_000  # observations from which the rate of false alarms is told


@app.command()
def watch(
    folder: Folder,
    threshold: Annotated[float, typer.Option(help="Probability of a rare state at which there is an alarm.")] = 0.9,
    as_json: AsJson = False,
) -> None:
    """Read observations from standard input, a line each, and tell when a rare state begins and ends.

    Causal: nothing that comes later changes what was told.  Several columns are separated by commas; an empty line, or
    nan, is a missing observation.
    """
    _, hmm = runs.load(folder)
    rare = hmm.rare_states_
    if len(rare) == 0:
        raise ValueError(f"no state of {folder} is called rare: there is nothing to watch for.")
    errors.print(false_alarms(hmm.posterior_, rare, threshold), soft_wrap=True)
    stream, inside, D = None, False, columns(hmm.posterior_.model.family)
    for number, line in enumerate(sys.stdin, 1):
        stream = hmm.update(stream, parsed(line, number, D))
        p = float(stream.probability[rare].sum())
        if (p >= threshold) != inside:
            inside = not inside
            word = "alarm" if inside else "over"
            given = json.dumps({"row": number, "what": word, "probability": p})
            print(given if as_json else f"{word} at {number}: P(rare) = {p:.3f}", flush=True)


def parsed(line: str, number: int, D: int) -> list[float]:
    """The observation of a line."""
    text = line.strip()
    try:
        values = [float(part) if part.strip() else math.nan for part in text.split(",")] if text else [math.nan] * D
    except ValueError:
        raise ValueError(f"line {number} is {text!r}, which is no number.") from None
    if len(values) != D:
        raise ValueError(f"line {number} has {len(values)} values; {D} are needed.")
    return values


def false_alarms(posterior: rh.Posterior, rare: np.ndarray, threshold: float) -> str:
    """How often there would be an alarm without reason, and how often none with one, in a series of the model."""
    point = posterior.mean
    y, states = rh.simulate(np.random.default_rng(0), posterior.model, point, SIMULATED)
    alarm = filter_states(posterior.model, point, rh.Series(y))[:, rare].sum(1) >= threshold
    truly = np.isin(states, rare)
    false, seen = np.mean(alarm & ~truly), np.mean(alarm[truly]) if truly.any() else math.nan
    return (
        f"if the model is right, {1e5 * false:.3g} of 100,000 observations raise an alarm without reason, and "
        f"{seen:.1%} of the rare ones raise one"
    )
