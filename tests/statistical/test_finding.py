"""A few of the series on which states are found; all of them are in benchmarks/finding.py."""

import finding
import numpy as np
import pytest
from small_models import DATA


@pytest.mark.jit
@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("16 cells", "5 %, 3 sd"),
        ("16 cells", "0.05 %, 4 sd"),
        ("16 cells", "interior, 0.05 %"),
        ("Poisson", "rates 1, 3, 9; 0.05 %"),
        ("Student-t", "0.05 %, 6 scales"),
        ("two rare", "3 sd apart, 0.5 % each"),
        ("variance only", "variance x 9, 1 %"),
        ("two columns", "correlation of the other sign, 0.5 %"),
    ],
)
def test_rare_states_are_found(kind, name):
    (case,) = [c for c in finding.cases() if (c.kind, c.name) == (kind, name)]
    found = finding.one(case, 0, peers=())
    assert found["truth"] > 0.7
    assert found["found"] > 0.7
    assert found["reached"] > -3


@pytest.mark.jit
def test_kmeans_and_em_lose_a_rare_state_that_is_found():
    (case,) = [c for c in finding.cases() if c.name == "0.05 %, 6 sd"]
    found = finding.one(case, 1, peers=("kmeans",))
    assert found["found"] > 0.9
    assert found["kmeans"] < 0.5
    assert found["kmeans_em"] < 0.5


def test_how_well_a_rare_state_is_held():
    truth = np.array([0, 0, 1, 1, 1, 0]) == 1
    assert finding.f1(np.array([0, 0, 2, 2, 2, 0]), [truth]) == 1.0
    assert finding.f1(np.array([0, 0, 0, 2, 2, 0]), [truth]) == pytest.approx(0.8)
    assert finding.f1(np.zeros(6, dtype=int), [truth]) == pytest.approx(2 / 3)


@pytest.mark.nightly
@pytest.mark.jit
@pytest.mark.skipif(not (DATA / "japan_earthquakes").exists(), reason="RAREHMM_DATA has no japan_earthquakes")
def test_the_hours_after_the_great_earthquake_are_a_state_of_their_own():
    message = finding.earthquakes(DATA / "japan_earthquakes")
    assert "48 of the 48 after" in message
