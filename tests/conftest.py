"""How Hypothesis draws, and how often garbage is collected.

Hypothesis draws the same cases each time in tests, others each night (HYPOTHESIS_PROFILE=nightly).  The compiler makes
many objects and few cycles: a collection after every 100,000 new ones instead of 700 saves a tenth of its time.
"""

import gc
import os

from hypothesis import settings

settings.register_profile("tests", derandomize=True)
settings.register_profile("nightly", print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "tests"))

gc.set_threshold(100_000, 20, 20)
