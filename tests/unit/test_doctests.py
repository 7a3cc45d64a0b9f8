"""The examples in docstrings give what they say."""

import doctest
import importlib
import pkgutil

import pytest

import rarehmm

pytestmark = pytest.mark.jit
MODULES = [m.name for m in pkgutil.walk_packages(rarehmm.__path__, "rarehmm.") if not m.name.endswith("__main__")]
SHOWN = {
    "data.series", "estimator", "model.model", "model.simulation", "model.stationary", "plots", "posterior.posterior",
    "sampling.rule", "choosing.selection",
}  # fmt: skip


@pytest.mark.parametrize("name", MODULES)
def test_examples_of_a_module(name):
    found = doctest.testmod(importlib.import_module(name), optionflags=doctest.NORMALIZE_WHITESPACE)
    assert found.failed == 0
    assert found.attempted > 0 or name.removeprefix("rarehmm.") not in SHOWN
