"""Inputs of observations and of transitions, side by side in a series."""

import numpy as np
import pandas as pd
import pytest

import rarehmm as rh
from rarehmm.data.input_columns import are_default

pytestmark = pytest.mark.plain

Y = np.arange(6.0)
TEMP = pd.DataFrame({"temp": Y + 1})
LOAD = pd.DataFrame({"load": Y**2, "wind": -Y})


def test_columns_of_both_kinds_keep_their_names_and_roles():
    series = rh.Series(Y, exog=TEMP, exog_transition=LOAD)
    assert series.exog_names == ("temp", "load", "wind")
    assert series.observation_names == ("temp",)
    assert series.transition_names == ("load", "wind")
    np.testing.assert_array_equal(series.read_rows(0, 6).exog, np.column_stack([TEMP, LOAD]))
    only = rh.Series(Y, exog_transition=LOAD["load"])
    assert (only.exog_names, only.observation_names, only.transition_names) == (("load",), (), ("load",))
    bare = rh.Series(Y, exog=TEMP.to_numpy(), exog_transition=LOAD.to_numpy())
    assert bare.exog_names == ("x0", "z0", "z1")


def test_a_column_of_both_is_kept_once():
    series = rh.Series(Y, exog=TEMP, exog_transition=pd.concat([TEMP, LOAD], axis=1))
    assert series.exog_names == ("temp", "load", "wind")
    assert series.observation_names == ("temp",)
    assert series.transition_names == ("temp", "load", "wind")
    with pytest.raises(ValueError, match=r"a column 'temp' each, and they differ or are not in memory. Rename one"):
        rh.Series(Y, exog=TEMP, exog_transition=TEMP + 1)


def test_sequences_and_files(tmp_path):
    two = rh.Series([Y, Y], exog=[TEMP, TEMP + 1], exog_transition=[LOAD, LOAD + 1])
    np.testing.assert_array_equal(two.read_rows(6, 12).exog, np.column_stack([TEMP, LOAD]) + 1)
    load = LOAD[["load"]]
    np.save(tmp_path / "temp.npy", TEMP.to_numpy())
    np.save(tmp_path / "load.npy", load.to_numpy())
    for exog, transition in (
        (tmp_path / "temp.npy", load),
        (TEMP, tmp_path / "load.npy"),
        (tmp_path / "temp.npy", tmp_path / "load.npy"),
    ):
        series = rh.Series(Y, exog=exog, exog_transition=transition)
        np.testing.assert_array_equal(series.read_rows(2, 5).exog, np.column_stack([TEMP, load])[2:5])
        assert series.exog_parts[0].where(3) != ""


def test_a_missing_input_is_named_as_it_was_given():
    gone = LOAD.copy()
    gone.loc[3, "wind"] = np.nan
    with pytest.raises(ValueError, match=r"exog_transition\[3, 'wind'\] is nan; an input is needed in every row"):
        rh.Series(Y, exog=TEMP, exog_transition=gone)
    with pytest.raises(ValueError, match="exog_transition has 5 rows and y has 6"):
        rh.Series(Y, exog_transition=LOAD[:5])


def test_columns_without_names_are_found_by_their_number():
    assert are_default(("x0", "x1"))
    assert are_default(("x0", "z0"))
    assert not are_default(("z0", "x0"))
    assert not are_default(("x1",))
    rng = np.random.default_rng(0)
    y, x, z = rng.normal(size=(3, 40))
    series = rh.Series(y, exog=x, exog_transition=z)
    inputs = rh.Inputs.of(series, [rh.Columns("z0")])
    other = rh.Series(y, exog=pd.DataFrame({"a": x}), exog_transition=pd.DataFrame({"b": z}))
    found = inputs.check(other)
    np.testing.assert_allclose(found.design(other.read_rows(0, 40)), inputs.design(series.read_rows(0, 40)))


def test_known_states_can_be_left_out():
    series = rh.Series(Y, states=[-1, 0, 1, -1, -1, -1])
    free = series.without_states()
    assert (free.n_known, free.known_states, free.states) == (0, (), None)
    assert series.n_known == 2
