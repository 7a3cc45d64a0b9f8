"""Lanes compute what NumPy computes, in full precision, on every kind of number."""

import math

import numpy as np
import pytest

from rarehmm.engine.dispatch import inner, kernel
from rarehmm.engine.elementary import positive_log, relative
from rarehmm.engine.lanes import LANES, lane_array, lane_sum, lanewise, load, splat, store

EDGES = [0.0, -0.0, np.nan, np.inf, -np.inf, 1e300, -1e300, 1e-300, 1.0, -1.0, 0.5, 2.0, 708.5, -707.5, 709.9, -800.0]
VALUES = np.concatenate([EDGES, np.linspace(-700, 700, 41 * LANES), np.linspace(-3, 3, 11 * LANES)]).reshape(-1, LANES)

FUNCTIONS = {
    "exp": lambda v: np.exp(v),
    "log": lambda v: np.log(v),
    "sqrt": lambda v: np.sqrt(v),
    "abs": lambda v: np.abs(v),
    "where": lambda v: np.where((v > 1) & (v <= 500) | (v < -2), v, 1),
    "not": lambda v: np.where(~(v >= 0.5), v, 0.0),
    "equal": lambda v: np.where(v == 1.0, 3.0, np.where(v != v, 4.0, 5.0)),
    "maximum": lambda v: np.maximum(v, 0.5),
    "minimum": lambda v: np.minimum(2, v),
    "square": lambda v: 2 * v**2,
    "cube": lambda v: v**3,
    "inverse power": lambda v: v**-2,
    "log1p": lambda v: np.log1p(np.abs(v)),
    "power": lambda v: np.power(v, 2),
    "arithmetic": lambda v: -(3 - +v) * v / 7 + 1,
}


def through_lanes(function, x):
    """The function compiled and applied to rows of lanes."""
    compiled = inner(function)

    @kernel
    def each(x, out):
        for i in range(len(x)):
            store(out, (i,), compiled(load(x, (i,))))

    out = lane_array(len(x))
    each(x, out)
    return out


@pytest.mark.parametrize("name", FUNCTIONS)
def test_numpys_names(name):
    with np.errstate(all="ignore"):
        found, expected = through_lanes(FUNCTIONS[name], VALUES), FUNCTIONS[name](VALUES)
    np.testing.assert_allclose(found, expected, rtol=4e-16, atol=0)


@pytest.mark.parametrize("n", [0.5, 2.5, -1.5, 2.0])
def test_fractional_powers(n):
    x = np.concatenate([[0.0, np.inf, np.nan, 1.0], np.geomspace(1e-9, 1e9, 12)]).reshape(1, LANES)
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(through_lanes(lambda v: v**n, x), x**n, rtol=2e-14)
        np.testing.assert_allclose(
            through_lanes(lambda v: n**v, x % 7) if n > 0 else n, n ** (x % 7) if n > 0 else n, rtol=2e-14
        )


@pytest.mark.parametrize("function", [lambda v: np.sin(v), lambda v: np.cos(v)], ids=["sin", "cos"])
def test_sine_and_cosine(function):
    """Near and far, at multiples of pi/4 and beside them, and where lanes go one by one."""
    turns = np.pi / 4 * np.arange(-40, 40)
    parts = np.linspace(-4, 4, 512), turns, np.nextafter(turns, 9), np.linspace(-1e5, 1e5, 32_000)[1:-1]
    near = np.concatenate(parts)
    mixed = np.concatenate([near[:8], [1e5, -3e7, 1e18, np.nan, 2.0, 1e300, 0.0, -0.5]])
    for values in (np.resize(near, (len(near) // LANES + 1) * LANES), mixed):
        x = values.reshape(-1, LANES)
        np.testing.assert_allclose(through_lanes(function, x), function(x), rtol=0, atol=1e-15)
    missing = np.array([np.nan, 1.0] * 8).reshape(1, LANES)
    np.testing.assert_allclose(through_lanes(function, missing), function(missing), rtol=0, atol=1e-15)


def test_what_kernels_use():
    x = -np.linspace(0, 310, 20 * LANES).reshape(-1, LANES)
    found = through_lanes(lambda v: relative(v), x)
    np.testing.assert_allclose(found, np.exp(np.maximum(x, -300)), rtol=4e-16)
    strange = np.array([np.nan, 5.0, -1e9, 0.0] * 4).reshape(1, LANES)
    np.testing.assert_allclose(
        through_lanes(lambda v: relative(v), strange)[0, :4], [math.exp(-300), 1, math.exp(-300), 1]
    )
    z = np.geomspace(1e-250, 1e250, 20 * LANES).reshape(-1, LANES)
    np.testing.assert_allclose(through_lanes(lambda v: positive_log(v), z), np.log(z), rtol=4e-16, atol=2e-16)


def test_any_scalar_function_lane_by_lane():
    lgamma = lanewise(math.lgamma)
    x = np.linspace(0.5, 20, 2 * LANES).reshape(-1, LANES)
    np.testing.assert_allclose(through_lanes(lambda v: lgamma(v), x), np.vectorize(math.lgamma)(x), rtol=1e-14)


def test_lane_arrays_start_on_a_cache_line():
    for shape in ((3,), (5, 2), ()):
        a = lane_array(*shape)
        assert a.ctypes.data % 64 == 0
        assert a.shape == (*shape, LANES)
        assert not a.any()


@pytest.mark.jit
def test_sum_over_lanes():
    @kernel
    def total(x):
        return lane_sum(load(x, (0,)) + splat(1.0))

    x = np.random.default_rng(0).normal(size=(1, LANES))
    assert total(x) == pytest.approx(x.sum() + LANES, rel=1e-15)
