"""From an array to a list of events, in six lines.

A year of hourly readings: two levels of ordinary life, and a rare one, six hours of trouble a dozen times.
"""

import numpy as np
import pandas as pd

from rarehmm import RareHMM

rng = np.random.default_rng(1)
hours = pd.date_range("2026-01-01", periods=8760, freq="h")
level = np.where(np.arange(8760) // 24 % 7 < 5, 20.0, 12.0)  # weekdays and weekends
trouble = np.sort(rng.choice(8700, 12, replace=False))
for begin in trouble:
    level[begin : begin + 6] = 45.0
y = pd.Series(level + rng.normal(0, 2, 8760), index=hours, name="load")

hmm = RareHMM(n_components=3).fit(y)
print(hmm.verdict_)
print(hmm.summary().loc[["mean[2]", "occupancy[2]", "sojourn[2]", "return_time[2]"]])
events = hmm.rare_events(y)
print(events[["start", "end", "duration", "peak", "probability"]])
ahead = hmm.forecast(y, horizon=24 * 7)
print(f"P(trouble within a week) = {ahead.event[-1]:.2f} ({ahead.low[-1]:.2f} to {ahead.high[-1]:.2f})")

assert hmm.rare_states_.tolist() == [2]
assert hmm.verdict_.startswith("All checks passed.")
found = {hours.get_loc(start) for start in events["start"]}
assert all(any(abs(begin - other) <= 1 for other in found) for begin in trouble if begin not in found)
assert 0.05 < ahead.low[-1] < ahead.event[-1] < ahead.high[-1] < 0.6
