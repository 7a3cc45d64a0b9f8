"""``rarehmm watch``: alarms on a live stream of observations."""

import json
import math
import sys
from typing import Annotated, NamedTuple

import numpy as np
import typer

import rarehmm as rh
from rarehmm.app import runs
from rarehmm.app.cli.app import app, errors, rich_escape
from rarehmm.app.cli.running import AsJson, Folder, rows_to_simulate
from rarehmm.app.settings import Settings
from rarehmm.engine.contracts.family import columns
from rarehmm.exact.passes import filter_states
from rarehmm.specification.restored import inputs_of
from rarehmm.specification.terms import is_number

SIMULATED = 200_000  # observations from which the rate of false alarms is estimated


@app.command()
def watch(
    folder: Folder,
    threshold: Annotated[float, typer.Option(help="Probability of a rare state that raises an alarm.")] = 0.9,
    as_json: AsJson = False,
) -> None:
    """Read observations from standard input, one per line, and print when a rare state starts and ends.

    Alarms are causal: later observations never change them.  Separate several columns by commas; an empty line or nan
    is a missing observation.  Inputs follow, in the order of --exog and --exog-transition, and then the time, if a
    season or a trend follows it.  A line of names is left out, and so is a line that cannot be read; where there are
    neither inputs nor times, it counts as a missing observation.
    """
    settings, hmm = runs.load(folder)
    rare = hmm.rare_states_
    if len(rare) == 0:
        raise ValueError(f"no state of {folder} is classified as rare: there is nothing to watch for.")
    errors.print(false_alarms(settings, hmm.posterior_, rare, threshold), soft_wrap=True)
    if change := " and ".join(["logarithm"] * settings.log + ["distance from a baseline"] * bool(settings.knots)):
        errors.print(f"the run models the {change} of the series; lines must have it, too", soft_wrap=True)
    stream, inside, line_format = None, False, LineFormat.of(hmm)
    for number, line in enumerate(sys.stdin, 1):
        try:
            values, inputs, time = line_format.parse(line, number)
            stream = hmm.update(stream, values, exog=inputs or None, times=time)
        except ValueError as error:
            missing = line_format.has_nothing_else and not (number == 1 and is_header(line))
            what = "counts as missing" if missing else "is left out"
            errors.print(rich_escape(f"line {number} {what}: {error}"), soft_wrap=True)
            if not missing:
                continue
            stream = hmm.update(stream, [math.nan] * line_format.D)
        p = float(stream.probability[rare].sum())
        if (p >= threshold) != inside:
            inside = not inside
            change = "alarm" if inside else "over"
            record = json.dumps({"row": number, "what": change, "probability": p})
            print(record if as_json else f"{change} at {number}: P(rare) = {p:.3f}", flush=True)


class LineFormat(NamedTuple):
    """What a line of input holds: D observations, inputs of these names, and the time if ``has_time``."""

    D: int
    inputs: tuple[str, ...]
    has_time: bool

    @property
    def has_nothing_else(self) -> bool:
        """Whether a line has observations alone."""
        return not self.inputs and not self.has_time

    @classmethod
    def of(cls, hmm: rh.RareHMM) -> "LineFormat":
        """Return the format of lines for a fit."""
        model = hmm.posterior_.model
        has_time = any(part.has_times and (part.seasons or part.trends) for part in inputs_of(model))
        return cls(columns(model.family), tuple(hmm.exog_names_in_.tolist()), has_time)

    def parse(self, line: str, number: int) -> tuple[list[float], list[float], str | None]:
        """Return the observations, the inputs and the time on a line."""
        text, D, m = line.strip(), self.D, len(self.inputs)
        parts = [part.strip() for part in text.split(",")] if text else [""] * D
        if len(parts) != D + m + self.has_time:
            names = [f"{D} observed", *self.inputs, *(["time"] if self.has_time else [])]
            more = f": {', '.join(names)}" if len(names) > 1 else ""
            raise ValueError(f"line {number} has {len(parts)} values; it must have {D + m + self.has_time}{more}.")
        try:
            values = [float(part) if part else math.nan for part in parts[: D + m]]
        except ValueError:
            raise ValueError(f"line {number} is {text!r}, which is not a number.") from None
        return values[:D], values[D:], parts[-1] if self.has_time else None


def is_header(line: str) -> bool:
    """Return whether a line has names rather than numbers."""
    return not any(is_number(part) for part in line.split(","))


def false_alarms(settings: Settings, posterior: rh.Posterior, rare: np.ndarray, threshold: float) -> str:
    """Describe the rates of false alarms and of detected rare observations, estimated on a simulated series."""
    model, point = posterior.model, posterior.mean
    rows = rows_to_simulate(settings, model, None)
    rows = SIMULATED if isinstance(rows, int) else rows.part(0, min(SIMULATED, len(rows)))
    y, states = rh.simulate(np.random.default_rng(0), model, point, rows)
    series = rh.Series(y)
    if isinstance(rows, rh.Series):
        series = series.with_inputs_of(rows, rows.read_rows(0, len(rows)))
    alarm = filter_states(model, point, series)[:, rare].sum(1) >= threshold
    is_rare = np.isin(states, rare)
    false, detected = np.mean(alarm & ~is_rare), np.mean(alarm[is_rare]) if is_rare.any() else math.nan
    return (
        f"if the model is right, {1e5 * false:.3g} of 100,000 observations raise a false alarm, and {detected:.1%} of "
        "the rare ones raise an alarm"
    )
