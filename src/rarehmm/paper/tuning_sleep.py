"""Appendix B: half-width, buffer and number of windows on the data of the sleep experiment."""

from rarehmm.paper import Outcome, Settings, sleep
from rarehmm.paper.grid import tuning

TITLE = "Appendix B: tuning on sleep cycles"
MINUTES = 4
DATA = sleep.DATA
CHANGE = 0.10  # over the grid, according to the paper


def reproduce(settings: Settings) -> Outcome:
    return tuning(settings, sleep.study(settings), sleep.PAPER, CHANGE, sleep.STAND_IN)
