"""A small simulation-based calibration of the default rule; the large one is benchmarks/simulation_based.py."""

import numpy as np
import pytest
import simulation_based


@pytest.mark.jit
@pytest.mark.nightly
@pytest.mark.parametrize(("kind", "count"), [("plain", 12), ("regimes", 12)])
def test_intervals_cover_what_they_say_on_average_over_the_prior(kind, count):
    fits = [simulation_based.fit(seed, simulation_based.KINDS[kind]) for seed in range(count)]
    good = [f for f in fits if all(c.passed for c in f[-1].checks)]
    assert len(good) >= count * 5 // 6

    def outside(shrink):
        """Share of true values outside of central 90 % intervals, one number for each data set."""
        ranks = np.array([simulation_based.ranks(*f, shrink) for f in good])
        return ((ranks < 5) | (ranks >= 95)).mean(1)

    share = outside(1.0)
    error = max(share.std(), 0.05) / np.sqrt(len(share))
    assert abs(share.mean() - 0.1) < 3.5 * error
    assert outside(0.5).mean() > 0.1 + 3.5 * error  # intervals of half the width would show
