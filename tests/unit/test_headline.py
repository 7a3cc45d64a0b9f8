"""What was found, in plain words: lengths of time, dates, kinds of events, and why there are none."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import rarehmm as rh
from rarehmm.app.report.headline import extent, headline, step_of, when
from rarehmm.search.regimes import Regime

pytestmark = pytest.mark.plain

TIMES = pd.date_range("2026-01-05", periods=2880, freq="10min")
SERIES = rh.Series(pd.Series(np.arange(2880.0), TIMES))
NUMBERED = rh.Series(np.arange(2880.0))


def fit_of(*regimes, passed=True):
    """What a headline needs to know of a fit."""
    states = [Regime(k, share, 1000.0, 10.0, kind, "why") for k, (share, kind) in enumerate(regimes)]
    rare = np.array([one.state for one in states if one.kind == "rare"])
    checks = SimpleNamespace(checks=[SimpleNamespace(passed=passed)])
    return SimpleNamespace(regimes_=states, rare_states_=rare, rare_share=0.05, posterior_=checks)


RARE = fit_of((0.97, "common"), (0.02, "rare"), (0.01, "rare"))


def events_of(*rows, index=TIMES):
    """A table of events from their first rows, lengths, states and ranks."""
    table = pd.DataFrame(rows, columns=["start", "duration", "state", "rank"])
    return table.assign(start=[index[row] for row in table["start"]])


@pytest.mark.parametrize(
    ("rows", "step", "words"),
    [
        (2880, 600.0, "20 days"), (4, 600.0, "40 minutes"), (9, 600.0, "90 minutes"), (15, 600.0, "2.5 hours"),
        (1, 600.0, "10 minutes"), (2880, 86_400.0, "7.9 years"), (36, 3600.0, "36 hours"), (1, 1.0, "1 second"),
        (2.5, 1.0, "2.5 seconds"), (1, 1e-3, "1 millisecond"), (1, 86_400.0, "1 day"),
        (2_000_000, None, "2,000,000 observations"),
        (1, None, "1 observation"), (3, 60.04, "3 minutes"),
    ],
)  # fmt: skip
def test_lengths_of_time(rows, step, words):
    assert extent(rows, step) == words


def test_steps():
    assert step_of(SERIES) == 600
    assert step_of(NUMBERED) is None
    holes = pd.Series(np.arange(2880.0), TIMES).drop(TIMES[[3, 4]])
    assert step_of(rh.Series(holes, regular=False)) is None
    assert step_of(rh.Series(holes, regular="fill")) == 600


def test_dates():
    stamp = pd.Timestamp("2026-01-05 16:40")
    assert when(stamp, 600.0) == "on 5 January 2026 at 16:40"
    assert when(stamp.normalize(), 86_400.0) == "on 5 January 2026"
    assert when(1234, None) == "at row 1,234"
    assert when(pd.Period("2026-01", "M"), None) == "at 2026-01"


def test_events():
    found = headline("cpu", SERIES, RARE, events_of((100, 4, 1, 2), (200, 6, 1, 1), (300, 3, 1, 3)))
    assert found == (
        "In 20 days of cpu, three rare events of about 40 minutes were found; the first on 5 January 2026 at 16:40, "
        "the strongest on 6 January 2026 at 09:20."
    )
    found = headline("cpu", SERIES, RARE, events_of((100, 4, 1, 1), (200, 12, 2, 2)))
    assert "two rare events of two kinds were found, one of about 40 minutes and one of about 2 hours; the" in found
    assert found.endswith("the first is the strongest, on 5 January 2026 at 16:40.")
    found = headline("cpu", NUMBERED, RARE, events_of((100, 4, 1, 1), index=range(2880)))
    assert found == "In 2,880 observations of cpu, one rare event of 4 observations was found, at row 100."


def test_results_of_a_failed_check_come_with_a_warning():
    failed = fit_of((0.9, "common"), (0.02, "rare"), passed=False)
    found = headline("cpu", SERIES, failed, events_of((100, 4, 1, 1)))
    assert found.endswith(" Do not rely on this: a check of the calculation has failed.")


@pytest.mark.parametrize(
    ("fit", "reason"),
    [
        (fit_of((0.88, "common"), (0.12, "common")), "closest takes up 12 % of the time, too much to be called rare; "
         "with --rare-share 0.12 it would"),
        (fit_of((0.98, "common"), (0.02, "drift")), "up 2 % of the time, but may just be slow ups and downs; "
         "--ar 1 would tell more"),
        (fit_of((1.0, "common"), (0.0, "empty")), "different from the rest; fit with more --states"),
        (fit_of((1.0, "twin"), (0.0, "empty")), "different from the rest; fit with fewer --states"),
        (fit_of((1.0, "common")), "found: the model has a single state; fit with --states 2 or more."),
    ],
)  # fmt: skip
def test_no_events_come_with_a_reason(fit, reason):
    found = headline("cpu", SERIES, fit, events_of())
    assert found.startswith("In 20 days of cpu, no rare events were found: ")
    assert reason in found


def test_a_rare_state_without_events_has_a_reason():
    none = events_of()
    none.attrs["reason"] = (
        "there are no events: the probability of the rare states is 0.3 at most, and threshold is 0.5."
    )
    found = headline("cpu", SERIES, RARE, none)
    assert (
        "no rare events were found: the probability of the rare states is 0.3 at most, and threshold is 0.5." in found
    )
