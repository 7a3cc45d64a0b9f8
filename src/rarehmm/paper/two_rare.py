"""Section 4.2: two rare states, one on either side of a common one."""

import numpy as np

from rarehmm.paper import Outcome, Settings
from rarehmm.paper.common import TWO_RARE
from rarehmm.paper.synthetic import Case, arrival, compare, draw, numbers

TITLE = "Section 4.2: two rare states"
MINUTES = 8
DATA = None
ASCENDING = [1, 0, 2]  # the paper's states, in the order of their means
CASE = Case(TWO_RARE[np.ix_(ASCENDING, ASCENDING)], [-20.0, 0.0, 20.0], watched=[0, 2], seed=42)


def reproduce(settings: Settings) -> Outcome:
    result = compare(settings, CASE)
    remarks = [
        "States are numbered by their means here: the paper's states 2 and 3 are states 1 and 3.",
        *arrival(result),
        "The true matrix forbids transitions between the two rare states; the chain gives them small probabilities.",
    ]
    return Outcome(result.tables, remarks, draw(result, CASE), numbers(result))
