"""``rarehmm watch``: alarms on a live stream of observations."""

import json
import math
import sys
from typing import Annotated, Any, NamedTuple

import numpy as np
import pandas as pd
import typer

import rarehmm as rh
from rarehmm.app import runs
from rarehmm.app.cli.app import app, errors, rich_escape
from rarehmm.app.cli.running import AsJson, Folder, rows_to_simulate
from rarehmm.app.settings import Settings
from rarehmm.data.new_rows import RowFormat
from rarehmm.data.summaries import LARGEST
from rarehmm.engine.contracts.family import domains
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
    season or a trend follows it.  A line of names is left out.  A line that cannot be read counts as a missing
    observation if its inputs and its time can be read; otherwise it is left out, and whether it was a row follows from
    the next time.  Times that go back, repeat or skip rows are an error.
    """
    settings, hmm = runs.load(folder)
    rare = hmm.rare_states_
    if len(rare) == 0:
        raise ValueError(f"no state of {folder} is classified as rare: there is nothing to watch for.")
    errors.print(false_alarms(settings, hmm.posterior_, rare, threshold), soft_wrap=True)
    if change := " and ".join(["logarithm"] * settings.log + ["distance from a baseline"] * bool(settings.knots)):
        errors.print(f"the run models the {change} of the series; lines must have it, too", soft_wrap=True)
    streams: list[Any] = [None]  # after the rows so far, without and with lines that may have been rows
    inside, line_format = False, LineFormat.of(hmm)
    for number, line in enumerate(sys.stdin, 1):
        try:
            stream = followed(hmm, streams, line_format.parse(line, number))
        except ValueError as error:
            row = None if number == 1 and is_header(line) else line_format.missing(line)
            if row is not None:
                stream = followed(hmm, streams, row)
            what = "is left out" if row is None else "counts as missing"
            errors.print(rich_escape(f"line {number} {what}: {error}"), soft_wrap=True)
            if row is None:
                streams += line_format.after_missing(hmm, streams[-1])
                continue
        streams = [stream]
        p = float(stream.probability[rare].sum())
        if (p >= threshold) != inside:
            inside = not inside
            change = "alarm" if inside else "over"
            record = json.dumps({"row": number, "what": change, "probability": p})
            print(record if as_json else f"{change} at {number}: P(rare) = {p:.3f}", flush=True)


class Line(NamedTuple):
    """The observations, the inputs and the time on a line of input."""

    values: list[float]
    inputs: list[float]
    time: str | None


class LineFormat(NamedTuple):
    """What a line of input holds: D observations, inputs of these names, and the time if ``has_time``.

    ``step``: seconds between rows, NaN if they are not known.
    """

    D: int
    inputs: tuple[str, ...]
    has_time: bool
    step: float

    @classmethod
    def of(cls, hmm: rh.RareHMM) -> "LineFormat":
        """Return the format of lines for a fit."""
        model = hmm.posterior_.model
        rows = RowFormat.of(domains(model.family), inputs_of(model), model.n_states)
        names = tuple(hmm.exog_names_in_.tolist())
        return cls(len(rows.domains), names, rows.needs_clock and rows.has_times, rows.step)

    def parse(self, line: str, number: int) -> Line:
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
        return Line(values[:D], values[D:], parts[-1] if self.has_time else None)

    def missing(self, line: str) -> Line | None:
        """Return a line without its observations; None if its inputs or its time cannot be read."""
        parts = [part.strip() for part in line.split(",")]
        if len(parts) != self.D + len(self.inputs) + self.has_time:
            parts = [""] * (self.D + len(self.inputs) + self.has_time)
        given = parts[self.D : self.D + len(self.inputs)]
        if not all(is_number(part) and abs(float(part)) <= LARGEST for part in given):
            return None
        if self.has_time and pd.isna(pd.to_datetime(parts[-1], errors="coerce")):
            return None
        return Line([math.nan] * self.D, list(map(float, given)), parts[-1] if self.has_time else None)

    def after_missing(self, hmm: rh.RareHMM, stream: Any) -> list[Any]:
        """Return the stream after one more row, which is missing; an empty list if its time is not known.

        Where inputs of that row are needed, only its time passes.
        """
        if stream is None or math.isnan(self.step):
            return []
        time = stream.last + pd.to_timedelta(self.step, unit="s")
        return [stream._replace(last=time) if self.inputs else hmm.update(stream, [math.nan] * self.D, times=time)]


def followed(hmm: rh.RareHMM, streams: list[Any], line: Line) -> Any:
    """Return the first of the streams that a line follows in time, after this line; raise what the first one says."""
    refused = []
    for stream in streams:
        try:
            return hmm.update(stream, line.values, exog=line.inputs or None, times=line.time)
        except ValueError as error:
            refused.append(error)
    raise refused[0]


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
