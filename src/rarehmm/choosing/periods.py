"""Candidate periods of seasons: those of the calendar, and peaks of a periodogram."""

import numpy as np

from rarehmm.common.arrays import Array
from rarehmm.data.inputs import duration
from rarehmm.data.series import Series

CALENDAR = ("1h", "1D", "7D", "365.25D")
FEWEST_STEPS = 4  # in a period
FEWEST_CYCLES = 8  # of a period from the periodogram; of one from the calendar, CALENDAR_CYCLES
CALENDAR_CYCLES = 2.5
SURPRISE = 7.0  # nats above what the highest of all peaks of noise is expected to have
MOST_PEAKS = 3
LONGEST = 1 << 17  # rows of a periodogram


def steps_and_span(series: Series) -> tuple[float, float]:
    """Return the length of a step and of the longest sequence, in units of the clock."""
    i = int(np.argmax(np.diff(series.bounds)))
    first, last = int(series.bounds[i]), int(series.bounds[i + 1])
    clock = series.clock.read(first, min(last, first + 1000))
    step = float(np.median(np.diff(clock))) if len(clock) > 1 else 1.0
    return step, float(series.clock.at([last - 1])[0] - clock[0]) + step


def calendar_periods(series: Series) -> list[str]:
    """Return the periods of the calendar that a series with times can have."""
    if not series.has_times:
        return []
    step, span = steps_and_span(series)
    return [p for p in CALENDAR if duration(p) >= FEWEST_STEPS * step and duration(p) * CALENDAR_CYCLES <= span]


def periodogram_periods(residuals: Array) -> list[float]:
    """Return up to three periods, in steps, of clear peaks of the periodogram of white residuals (T,)."""
    x = residuals[:LONGEST] - residuals[:LONGEST].mean()
    n = len(x)
    power = np.abs(np.fft.rfft(x)) ** 2
    low, high = FEWEST_CYCLES, min(n // 3 + 1, len(power))
    if high - low < 20 or not x.any():
        return []
    level = power / (np.median(power[low:high]) / np.log(2))  # exponential with mean 1 under white noise
    needed = np.log(high - low) + SURPRISE
    level[:low], level[high:] = 0.0, 0.0
    found: list[float] = []
    for _ in range(MOST_PEAKS):
        peak = int(np.argmax(level))
        if level[peak] < needed:
            break
        period = refined(x, fundamental(level, peak, low, needed))
        found.append(period)
        around = np.arange(1, int(period * high / n) + 2)[:, None] * n / period + np.arange(-3, 4)
        at = np.clip(np.rint(around).astype(int), 0, len(level) - 1)
        level[at.ravel()] = 0.0
    return found


def fundamental(level: Array, peak: int, low: int, needed: float) -> float:
    """Return the frequency, in cycles of the series, of which a peak is a harmonic: itself, or a part of it."""
    for part in (4, 3, 2):
        at = round(peak / part)
        if at >= low and level[max(at - 1, 0) : at + 2].max() > needed:
            return peak / part
    return float(peak)


def refined(x: Array, cycles: float) -> float:
    """Return the period with the highest power near so many cycles; a whole number of steps if one is as near."""
    n, t = len(x), np.arange(len(x))
    tried = cycles + np.linspace(-1, 1, 41)
    power = [abs(np.exp(-2j * np.pi * f / n * t) @ x) for f in tried]
    best = n / tried[int(np.argmax(power))]
    return float(round(best)) if abs(best - round(best)) <= max(0.5 * best**2 / n, 0.02) else float(best)


def is_multiple(period: float, others: list[float]) -> bool:
    """Whether a period is a whole part of one of the others, or about the same."""
    ratios = np.array([other / period for other in others])
    return bool((np.abs(ratios - np.rint(ratios)) < 0.02 * np.maximum(ratios, 1)).any() and (ratios > 0.5).any())


def orders_of(steps: float, usual: int) -> list[int]:
    """Return the numbers of harmonics that are compared for a season of so many steps."""
    most = min(usual, int(steps / 2))
    return [h for h in (1, 2, 4, 8) if h <= most] or [most]
