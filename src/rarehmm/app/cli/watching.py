"""``rarehmm watch``: alarms on a live stream of observations."""

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

SIMULATED = 200_000  # observations from which the rate of false alarms is estimated


@app.command()
def watch(
    folder: Folder,
    threshold: Annotated[float, typer.Option(help="Probability of a rare state that raises an alarm.")] = 0.9,
    as_json: AsJson = False,
) -> None:
    """Read observations from standard input, one per line, and print when a rare state starts and ends.

    Alarms are causal: later observations never change them.  Separate several columns by commas; an empty line or nan
    is a missing observation.
    """
    _, hmm = runs.load(folder)
    rare = hmm.rare_states_
    if len(rare) == 0:
        raise ValueError(f"no state of {folder} is classified as rare: there is nothing to watch for.")
    errors.print(false_alarms(hmm.posterior_, rare, threshold), soft_wrap=True)
    stream, inside, D = None, False, columns(hmm.posterior_.model.family)
    for number, line in enumerate(sys.stdin, 1):
        stream = hmm.update(stream, parse_line(line, number, D))
        p = float(stream.probability[rare].sum())
        if (p >= threshold) != inside:
            inside = not inside
            change = "alarm" if inside else "over"
            record = json.dumps({"row": number, "what": change, "probability": p})
            print(record if as_json else f"{change} at {number}: P(rare) = {p:.3f}", flush=True)


def parse_line(line: str, number: int, D: int) -> list[float]:
    """Return the observation on a line of input."""
    text = line.strip()
    try:
        values = [float(part) if part.strip() else math.nan for part in text.split(",")] if text else [math.nan] * D
    except ValueError:
        raise ValueError(f"line {number} is {text!r}, which is not a number.") from None
    if len(values) != D:
        raise ValueError(f"line {number} has {len(values)} values; it must have {D}.")
    return values


def false_alarms(posterior: rh.Posterior, rare: np.ndarray, threshold: float) -> str:
    """Describe the rates of false alarms and of detected rare observations, estimated on a simulated series."""
    point = posterior.mean
    y, states = rh.simulate(np.random.default_rng(0), posterior.model, point, SIMULATED)
    alarm = filter_states(posterior.model, point, rh.Series(y))[:, rare].sum(1) >= threshold
    is_rare = np.isin(states, rare)
    false, detected = np.mean(alarm & ~is_rare), np.mean(alarm[is_rare]) if is_rare.any() else math.nan
    return (
        f"if the model is right, {1e5 * false:.3g} of 100,000 observations raise a false alarm, and {detected:.1%} of "
        "the rare ones raise an alarm"
    )
