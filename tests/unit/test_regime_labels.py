"""Labels of states where inputs, lags, phases and known states are part of the model: what may be permuted, and how."""

import itertools
import zlib
from dataclasses import replace

import numpy as np
import pytest
from regime_cases import as_model, covering, label, make_case

import rarehmm as rh
from rarehmm.data.inputs import Columns, Inputs
from rarehmm.model.autoregression import AroundLevel
from rarehmm.model.coordinates import AdditiveLogRatio
from rarehmm.sampling.methods import convert_coordinates
from rarehmm.search.initial import append_state, match_states_to_fixed_values, match_states_to_start, with_order
from rarehmm.search.mode import (
    Mode,
    component_keys,
    find_mode,
    match_states,
    relabel_states,
    vector_of,
    with_ordered_states,
)
from rarehmm.search.regimes import remove_state
from rarehmm.transitions.homogeneous import Homogeneous
from rarehmm.transitions.phases import Phases

CHOICES = covering()


def case_of(choice):
    """Model, parameters and series of a choice, with proper priors."""
    return as_model(make_case(choice, zlib.crc32(label(choice).encode())), "default")


def mode_at(model, parameters, series):
    """A mode that is said to be at these parameters, with a diagonal Hessian that tells components apart."""
    theta = model.pack(parameters)
    hessian = np.diag(100.0 + np.arange(model.size))
    return Mode(model, theta, 0.0, hessian, np.diag(np.diag(hessian) ** -0.5), True, [], series.known_states)


def legal_orders(mode):
    """All permutations of states within groups of exchangeable ones."""
    for parts in itertools.product(*(itertools.permutations(group) for group in mode.exchangeable_groups)):
        order = np.arange(mode.model.n_states)
        for group, part in zip(mode.exchangeable_groups, parts, strict=True):
            order[group] = part
        yield order


def renamed(model, series, order):
    """The model and the series after a permutation of states, whether or not it leaves them the same."""
    place, changes = np.argsort(order), {}
    if model.start is not None:
        changes["start"] = model.start[order]
    if model.fixed is not None:
        changes["fixed"] = {"transition": model.fixed["transition"][np.ix_(order, order)]}
    if isinstance(model.transitions, Phases):
        changes["transitions"] = Phases(tuple(model.transitions.lengths[k] for k in order))
    states = None
    if series.states is not None:
        known = series.states[:, 0].astype(int)
        states = np.where(known < 0, -1, place[known])
    rows = series.read_rows(0, len(series))
    new = rh.Series(rows.y, np.diff(series.bounds), states=states).with_inputs_of(
        series, rows._replace(states=np.array([] if states is None else states))
    )
    new.known_states = tuple(sorted(int(place[k]) for k in series.known_states))
    return replace(model, coordinates=AdditiveLogRatio(), **changes), new


# ---------------------------------------------------------------- permutations
@pytest.mark.parametrize("choice", CHOICES, ids=label)
def test_a_permutation_of_states_in_model_parameters_and_labels_leaves_the_likelihood_unchanged(choice):
    model, parameters, series = case_of(choice)
    value = rh.log_likelihood(model, parameters, series, threads=1)
    for order in itertools.permutations(range(model.n_states)):
        new, data = renamed(model, series, np.array(order))
        found = rh.log_likelihood(new, with_order(new, parameters, np.array(order)), data, threads=1)
        assert found == pytest.approx(value, rel=1e-10)


@pytest.mark.parametrize("choice", CHOICES, ids=label)
def test_draws_are_relabelled_like_the_mode_wherever_that_leaves_the_posterior_unchanged(choice):
    model, parameters, series = case_of(choice)
    mode = mode_at(model, parameters, series)
    value = rh.log_posterior(model, mode.theta, series, threads=1)[0]
    for order in legal_orders(mode):
        theta = model.pack(with_order(model, parameters, order))
        assert rh.log_posterior(model, theta, series, threads=1)[0] == pytest.approx(value, rel=1e-10)
        np.testing.assert_array_equal(match_states(mode, theta[None])[0], np.argsort(order))
        np.testing.assert_allclose(relabel_states(mode, theta[None])[0], mode.theta, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("choice", CHOICES, ids=label)
def test_modes_with_ordered_states_are_the_same_posterior(choice):
    model, parameters, series = case_of(choice)
    mode = mode_at(model, parameters, series)
    new = with_ordered_states(mode)
    assert new.known == mode.known
    values = new.model.unpack(new.theta).phi
    for group in mode.exchangeable_groups:
        assert any((np.diff(column[group]) >= 0).all() for column in values.T)
    from_old = np.diag(new.hessian).astype(int) - 100
    step = 0.1 * np.random.default_rng(0).standard_normal(model.size)
    one = rh.log_posterior(model, mode.theta + step, series, threads=1)[0]
    other = rh.log_posterior(new.model, new.theta + step[from_old], series, threads=1)[0]
    assert other == pytest.approx(one, rel=1e-10)


def test_the_choices_permute_most_kinds_of_coefficients():
    """Of the cases above, some move coefficients that switch, lags and slopes to another state."""
    moves = set()
    for choice in CHOICES:
        model, parameters, series = case_of(choice)
        mode = mode_at(model, parameters, series)
        for order in legal_orders(mode):
            if (order != np.arange(model.n_states)).any():
                moves |= {name for name, _, states in component_keys(model) if states}
    assert {"switching", "lags", "slopes", "transition", "mean", "variance"} <= moves


# ---------------------------------------------------------------- what keeps its place
def two_columns(T=60):
    rng = np.random.default_rng(1)
    return rng.normal(size=T), rng.normal(size=(T, 1))


def test_known_states_keep_their_places_and_the_others_are_exchangeable():
    y, _ = two_columns()
    states = np.full(60, -1)
    states[[3, 20]] = 2
    series = rh.Series(y, states=states)
    assert series.known_states == (2,)
    model = rh.Model(rh.Gaussian(), 3, rh.default_priors(rh.Gaussian(), 3, series))
    start = model.natural([[2.0, 1.0], [1.0, 1.0], [0.0, 1.0]], np.full((3, 3), 1 / 3))
    mode = find_mode(model, series, start, steps=2)
    assert mode.known == (2,)
    assert [group.tolist() for group in mode.exchangeable_groups] == [[0, 1], [2]]
    order = np.array([2, 1, 0])
    theta = model.pack(with_order(model, start, order))
    assert match_states(mode_at(model, start, series), theta[None])[0, 2] == 2


def test_states_of_different_numbers_of_phases_keep_their_places():
    y, _ = two_columns()
    series = rh.Series(y)
    model = rh.Model(
        rh.Gaussian(), 3, rh.default_priors(rh.Gaussian(), 3, series), transitions=Phases((2, 1, 2))
    )  # fmt: skip
    parameters = model.natural([[2.0, 1.0], [1.0, 1.0], [0.0, 1.0]], np.full((3, 3), 1 / 3))
    mode = mode_at(model, parameters, series)
    found = with_ordered_states(mode)
    np.testing.assert_array_equal(found.model.unpack(found.theta).phi[:, 0], [0.0, 1.0, 2.0])
    mode = mode_at(model, with_order(model, parameters, np.array([1, 0, 2])), series)
    found = with_ordered_states(mode)
    np.testing.assert_array_equal(found.model.unpack(found.theta).phi[:, 0], [0.0, 2.0, 1.0])


def test_states_that_differ_in_switching_coefficients_alone_are_told_apart():
    y, x = two_columns()
    series = rh.Series(y, exog=x)
    switching = Inputs.of(series, [Columns()])
    priors = rh.default_priors(rh.Gaussian(), 2, series)
    model = rh.Model(rh.Gaussian(), 2, priors, switching=switching, tied=("mean", "variance"))
    parameters = model.natural([[0.0, 1.0]] * 2, [[0.8, 0.2], [0.3, 0.7]], [-1.0, 2.0])
    theta = model.pack(with_order(model, parameters, np.array([1, 0])))
    found = relabel_states(mode_at(model, parameters, series), theta[None])[0]
    np.testing.assert_allclose(found, model.pack(parameters))


# ---------------------------------------------------------------- parameters made from others
def full_model(K=3, **more):
    """A model with coefficients of all kinds that switch, parameters of it, and its series."""
    y, x = two_columns()
    series = rh.Series(y, exog=x)
    inputs = Inputs.of(series, [Columns()])
    model = rh.Model(
        rh.Gaussian(), K, rh.default_priors(rh.Gaussian(), K, series), inputs=inputs, switching=inputs, scale=inputs,
        autoregression=AroundLevel(2, switching=True), transitions=rh.Regression(inputs), **more,
    )  # fmt: skip
    rng = np.random.default_rng(2)
    slopes = rng.normal(size=(K, K))
    slopes -= slopes.mean(1, keepdims=True)
    coefficients = np.concatenate([rng.normal(size=1 + K + 1), 0.2 * rng.normal(size=2 * K), slopes.ravel()])
    phi = np.column_stack([3.0 * np.arange(K), np.ones(K)])
    return model, model.natural(phi, rng.dirichlet(np.full(K, 5.0), K), coefficients), series


def test_vectors_and_other_coordinates_keep_coefficients():
    model, parameters, _ = full_model()
    theta = vector_of(model, parameters)
    np.testing.assert_allclose(model.unpack(theta).coefficients, parameters.coefficients, rtol=1e-12)
    other = model.with_reference(parameters.transition[:, ::-1])
    found = other.unpack(convert_coordinates(other, model, np.array([theta, theta]))[1])
    for one, two in zip(found, parameters, strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-10)


def test_states_are_matched_to_what_a_model_fixes_or_gives():
    model, parameters, series = full_model()
    slopes = model.every_effect.slices["slopes"]
    model = replace(model, transitions=Homogeneous())  # in which states are found
    parameters = model.natural(parameters.phi, parameters.transition, parameters.coefficients[: slopes.start])
    mixed = with_order(model, parameters, np.array([2, 0, 1]))
    fixed = replace(model, fixed={"mean": [0.0, 3.0, None]})
    found = match_states_to_fixed_values(fixed, mixed, series, 1)
    every = [with_order(fixed, mixed, np.array(order)) for order in itertools.permutations(range(3))]
    best = max(every, key=lambda p: rh.log_likelihood(fixed, p, series))
    np.testing.assert_array_equal(found.coefficients, best.coefficients)
    given, mixed = replace(model, start=np.array([0.98, 0.01, 0.01])), with_order(model, parameters, np.arange(3))
    first = rh.smooth(model, mixed, series)[0]
    found = match_states_to_start(given, mixed, series, 1)
    state = int(np.flatnonzero(found.phi[:, 0] == mixed.phi[first.argmax(), 0])[0])
    assert state == 0
    shapes = model.every_effect
    np.testing.assert_array_equal(
        shapes.block("lags", found.coefficients)[..., 0],
        shapes.block("lags", mixed.coefficients)[..., first.argmax()],
    )  # fmt: skip


def test_a_state_more_or_less_keeps_the_coefficients_of_the_others():
    model, parameters, series = full_model()
    fewer, found = remove_state(model, parameters, 1)
    kept = np.array([0, 2])
    old, new = model.every_effect, fewer.every_effect
    for name in ("location", "scale"):
        np.testing.assert_array_equal(new.block(name, found.coefficients), old.block(name, parameters.coefficients))
    for name in ("switching", "lags"):
        np.testing.assert_array_equal(
            new.block(name, found.coefficients), old.block(name, parameters.coefficients)[..., kept]
        )
    np.testing.assert_array_equal(
        new.block("slopes", found.coefficients), old.block("slopes", parameters.coefficients)[:, kept][..., kept]
    )
    again = append_state(model, found, series.read(0, 10), 60).coefficients
    np.testing.assert_array_equal(old.block("location", again), old.block("location", parameters.coefficients))
    lags = new.block("lags", found.coefficients)
    np.testing.assert_array_equal(old.block("lags", again)[..., :2], lags)
    np.testing.assert_array_equal(old.block("lags", again)[..., 2], lags.mean(-1))
    assert not old.block("slopes", again)[:, 2].any()
