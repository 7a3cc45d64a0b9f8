"""All windows alike (Ma, Foti and Fox 2017)."""

import numpy as np

from rarehmm.engine.contracts.design import Design
from rarehmm.windows.information import WindowInformation
from rarehmm.windows.windows import Windows


def uniform(info: WindowInformation | Windows) -> Design:
    """Probability 1 / N for each window; their number is all that is asked for, so that ``Windows`` will do."""
    return Design(np.full((1, info.count), 1 / info.count))
