"""How Hypothesis draws, and how often garbage is collected.

Hypothesis draws the same cases in every run, and new ones with HYPOTHESIS_PROFILE=nightly.  The compiler creates many
objects and few cycles: collecting after every 100,000 of them instead of 700 saves a seventh of its time.
"""

import gc
import os

from hypothesis import settings

settings.register_profile("tests", derandomize=True)
settings.register_profile("nightly", print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "tests"))

gc.set_threshold(100_000, 20, 20)
