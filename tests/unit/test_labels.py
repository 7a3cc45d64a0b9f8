"""Labels: k-means is exact in one dimension, and labels taken for the truth give the estimates one expects."""

import itertools

import numpy as np
import pytest
from small_models import Pair, model_of, paper_series

import rarehmm as rh
from rarehmm.search.labels import clusters, from_labels, kmeans_centres, kmeans_labels, segmental_labels

pytestmark = pytest.mark.plain


def sum_of_squares(y, cuts):
    return sum(((part - part.mean()) ** 2).sum() for part in np.split(np.sort(y), cuts))


@pytest.mark.parametrize("K", [1, 2, 3, 4])
def test_kmeans_is_the_best_of_all_partitions(K):
    y = np.random.default_rng(K).normal(size=14) ** 3
    cuts = min(itertools.combinations(range(1, 14), K - 1), key=lambda c: sum_of_squares(y, list(c)))
    expected = [part.mean() for part in np.split(np.sort(y), list(cuts))]
    np.testing.assert_allclose(kmeans_centres(y, K), expected)


def test_kmeans_of_many_values_and_of_ties():
    rng = np.random.default_rng(0)
    y = np.concatenate([rng.normal(-20, 1, 5000), rng.normal(0, 1, 5000), rng.normal(20, 1, 50)])
    np.testing.assert_allclose(kmeans_centres(y, 3), [-20, 0, 20], atol=0.5)
    np.testing.assert_allclose(kmeans_centres(np.array([0, 0, 0, 1, 1, 9.0]), 2), [0.4, 9.0])
    with pytest.raises(ValueError, match="2 different values, too few for 3 states"):
        kmeans_centres(np.array([0, 0, 1.0]), 3)


def test_labels_are_ordered_and_carried_through_gaps():
    y = np.array([np.nan, 5.0, np.nan, 0.1, 0.0, 5.1, np.nan])
    np.testing.assert_array_equal(kmeans_labels(rh.Series(y), 2), [1, 1, 1, 0, 0, 1, 1])


def test_clusters_in_several_columns_do_not_depend_on_their_units():
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 3, 600)
    y = np.array([[0, 0], [8, 0], [0, 8]])[truth] + rng.normal(size=(600, 2))
    for units in ([1, 1], [1e6, 1e-6]):
        found = clusters(y * units, 3)
        counts = np.zeros((3, 3))
        np.add.at(counts, (truth, found), 1)
        assert counts.max(1).sum() > 595
        assert sorted(counts.argmax(1)) == [0, 1, 2]
    with pytest.raises(ValueError, match="1 different values, too few for 2 states"):
        clusters(np.array([[1.0, 2.0], [1.0, 2.0]]), 2)


def test_estimates_from_the_true_states():
    model, truth, y, states = paper_series(np.random.default_rng(1), 20_000)
    found = from_labels(model, rh.Series(y, lengths=[7000, 13_000]), states)
    for k in range(3):
        np.testing.assert_allclose(found.phi[k], [y[states == k].mean(), y[states == k].var()])
    assert np.abs(found.transition - truth.transition).max() < 0.1


def test_segmental_kmeans_repairs_labels():
    model = model_of(rh.Gaussian(), 2)
    sticky = model.parameters([[0.98, 0.02], [0.02, 0.98]], mean=[0, 2], variance=1)
    y, states = rh.simulate(np.random.default_rng(2), model, sticky, 3000)
    rough = kmeans_labels(rh.Series(y), 2)
    better = segmental_labels(model, rh.Series(y), rough)
    assert np.mean(rough == states) < 0.87
    assert np.mean(better == states) > 0.95


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([0, 1], r"shape \(2,\)"),
        ([0.0, 1.0, 1.0, 0.0], "dtype float64"),
        ([0, 1, 2, 0], r"labels\[2\] is 2"),
        ([0, 0, 0, 0], "no observation has label 1; each of the 2 states needs at least one"),
    ],
)
def test_bad_labels_are_refused(labels, message):
    model = model_of(rh.Gaussian(), 2)
    with pytest.raises(ValueError, match=message):
        from_labels(model, rh.Series([0.0, 1.0, 2.0, 3.0]), np.array(labels))


def test_a_family_without_estimates_has_modes_under_its_priors():
    """Of two Gaussian columns of unit variance, these are known."""
    model = rh.Model(Pair(), 1, rh.Priors((rh.Normal(1.0, 4.0), rh.Flat())))
    y = np.random.default_rng(0).normal([3.0, -2.0], 1.0, (50, 2))
    found = from_labels(model, rh.Series(y), np.zeros(50, dtype=int)).phi[0]
    np.testing.assert_allclose(found, [(y[:, 0].sum() + 1 / 4) / (50 + 1 / 4), y[:, 1].mean()], atol=1e-5)
