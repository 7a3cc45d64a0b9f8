"""How Hypothesis draws: the same cases each time in tests, others each night (HYPOTHESIS_PROFILE=nightly)."""

import os

from hypothesis import settings

settings.register_profile("tests", derandomize=True)
settings.register_profile("nightly", print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "tests"))
