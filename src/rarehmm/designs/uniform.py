"""All windows alike (Ma, Foti and Fox 2017)."""

import numpy as np

from rarehmm.engine.contracts.design import Design
from rarehmm.windows.windows import Windows


def uniform(windows: Windows) -> Design:
    """Probability 1 / N for each window."""
    return Design(np.full((1, windows.count), 1 / windows.count))
