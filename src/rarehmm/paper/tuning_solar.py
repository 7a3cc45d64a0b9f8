"""Appendix B: half-width, buffer and number of windows on the data of the solar experiment."""

from rarehmm.paper import Outcome, Settings, solar
from rarehmm.paper.grid import tuning

TITLE = "Appendix B: tuning on solar flares"
MINUTES = 4
DATA = solar.DATA
CHANGE = 0.02  # over the grid, according to the paper


def reproduce(settings: Settings) -> Outcome:
    return tuning(settings, solar.study(settings), solar.PAPER, CHANGE, solar.STAND_IN)
