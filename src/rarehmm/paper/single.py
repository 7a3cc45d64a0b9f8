"""Section 4.1: one rare state.  Distance from the truth, and log predictive density of held-out rare observations."""

from rarehmm.paper import Outcome, Settings
from rarehmm.paper.common import SINGLE_RARE
from rarehmm.paper.synthetic import Case, arrival, compare, draw, numbers

TITLE = "Section 4.1: a single rare state"
MINUTES = 8
DATA = None
CASE = Case(SINGLE_RARE, [-20.0, 0.0, 20.0], watched=[2], seed=41)


def reproduce(settings: Settings) -> Outcome:
    result = compare(settings, CASE)
    remarks = [
        *arrival(result),
        "TASS uses the clusters. A chain that starts from their estimate is at the truth from the first iteration; "
        "what remains to be seen is how far it strays (distance) and how well it predicts (density).",
    ]
    return Outcome(result.tables, remarks, draw(result, CASE, variances=True), numbers(result))
