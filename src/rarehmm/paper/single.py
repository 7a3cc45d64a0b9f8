"""Section 4.1: one rare state.  Distance to the truth, and the log predictive density of held-out rare observations."""

from rarehmm.paper import Outcome, Settings
from rarehmm.paper.common import SINGLE_RARE
from rarehmm.paper.synthetic import Case, arrival, compare, draw, numbers

TITLE = "Section 4.1: a single rare state"
MINUTES = 3
DATA = None
CASE = Case(SINGLE_RARE, [-20.0, 0.0, 20.0], watched=[2], seed=41)


def reproduce(settings: Settings) -> Outcome:
    found = compare(settings, CASE)
    remarks = [
        *arrival(found),
        "TASS knows the clusters. A chain that starts at their estimate is at the truth from the first iteration; what "
        "is left to see is how far it strays (fourth column) and what it predicts (last column).",
    ]
    return Outcome([found.table], remarks, draw(found, CASE, variances=True), numbers(found))
