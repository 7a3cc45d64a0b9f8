"""What a fit found, in a sentence or two for a reader who knows no statistics."""

from typing import Any

import numpy as np

from rarehmm.data.series import Series
from rarehmm.data.stamps import PIECE, usual_step
from rarehmm.estimator import RareHMM
from rarehmm.search.regimes import nearest_to_rare

DAY = 86_400.0
UNITS = (
    ("year", 365.25 * DAY), ("day", DAY), ("hour", 3600.0), ("minute", 60.0), ("second", 1.0), ("millisecond", 1e-3),
    ("microsecond", 1e-6),
)  # fmt: skip
NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
NOT_RARE = {  # what a state of each kind is if it is not rare, and what may be done
    "common": "too much to be called rare; with --rare-share {share:.2g} it would be asked whether it stands out",
    "tail": "but may just be the extremes of what is usual; --emission student_t would tell more",
    "drift": "but may just be slow ups and downs; --ar 1 would tell more",
    "unsupported": "but may just be chance; a fit with fewer --states would tell more",
    "outlier": "no more than an outlier; look at the observation",
}


def headline(subject: str, series: Series, hmm: RareHMM, events: Any) -> str:
    """Say how many rare events there are in a series, how long they last, and when the first and the strongest was.

    Parameters
    ----------
    subject : str
        What was observed.
    series : Series
        The observations.
    hmm : RareHMM
        A fit to them.
    events : pandas.DataFrame
        Its events, with their evidence.

    Returns
    -------
    str
        If there are no events, with the reason and what would include some.
    """
    step = step_of(series)
    text = f"In {extent(len(series), step)} of {subject}, "
    text += with_events(events, step) if len(events) > 0 else f"no rare events were found: {reason(hmm, events)}."
    failed = not all(c.passed for c in hmm.posterior_.checks)
    return text + (" Do not rely on this: a check of the calculation has failed." if failed else "")


def step_of(series: Series) -> float | None:
    """Return the usual step between rows in seconds; None if rows are not evenly spaced in time."""
    if not (series.has_times and series.is_regular) or isinstance(series.index, list) or len(series) < 2:
        return None
    return usual_step(series.index[: min(len(series), PIECE)])


def extent(rows: float, step: float | None) -> str:
    """Describe a number of rows as a length of time: in the largest unit of which there are two, or just one."""
    if step is None:
        return f"{rows:,.0f} observation{'s' * (rows != 1)}"
    seconds = rows * step
    large = (one for one in UNITS if seconds >= 1.95 * one[1] or abs(seconds / one[1] - 1) < 0.05)
    unit, size = next(large, UNITS[-1])
    count = round(seconds / size, 1 if seconds < 9.95 * size else 0)
    return f"{count:,g} {unit}{'s' * (count != 1)}"


def when(stamp: Any, step: float | None) -> str:
    """Describe when a row was."""
    if not hasattr(stamp, "tzinfo"):
        return f"at row {stamp:,}" if isinstance(stamp, int | np.integer) else f"at {stamp}"
    clock = "" if step is not None and step > 0.9 * DAY else f" at {stamp:%H:%M}"
    return f"on {stamp.day} {stamp:%B %Y}{clock}"


def with_events(events: Any, step: float | None) -> str:
    """Describe a table of one or more events."""
    first, strongest = events["start"].iloc[0], events["start"].loc[events["rank"].idxmin()]
    about = "" if step is None else "about "
    every = [(len(own), about + extent(float(own["duration"].median()), step)) for _, own in events.groupby("state")]
    if len(events) == 1:
        return f"one rare event of {every[0][1]} was found, {when(first, step)}."
    found = f"{spelt(len(events))} rare events of {every[0][1]} were found"
    if len(every) > 1:
        each = [f"{spelt(count)} of {length}" for count, length in every]
        found = f"{spelt(len(events))} rare events of {spelt(len(each))} kinds were found, "
        found += f"{', '.join(each[:-1])} and {each[-1]}"
    if strongest == first:
        return f"{found}; the first is the strongest, {when(first, step)}."
    return f"{found}; the first {when(first, step)}, the strongest {when(strongest, step)}."


def spelt(count: int) -> str:
    return NUMBERS[count] if count < len(NUMBERS) else f"{count:,}"


def reason(hmm: RareHMM, events: Any) -> str:
    """Say why there are no events, and what would include some."""
    if len(hmm.rare_states_) > 0:
        return str(events.attrs["reason"]).removeprefix("there are no events: ").removesuffix(".")
    if len(hmm.regimes_) == 1:
        return "the model has a single state; fit with --states 2 or more"
    plain = "nothing in it is both rare and clearly different from the rest"
    near = nearest_to_rare(hmm.regimes_, hmm.rare_share)
    if not near or near[0].share >= 0.5:
        return f"{plain}; fit with {'more' if near else 'fewer'} --states"
    way = NOT_RARE[near[0].kind].format(share=np.ceil(near[0].share * 100) / 100)
    return f"{plain}. What comes closest takes up {100 * near[0].share:.2g} % of the time, {way}"
