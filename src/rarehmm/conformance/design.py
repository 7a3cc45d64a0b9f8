"""The contract of a design: ``check_design`` tests any function against the requirements of ``rarehmm.designs``.

The tests run the same checks on every design of the library.  Each check is a function of a ``Case``; it raises
``ValueError`` with the model, the window and the numbers.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from rarehmm.common.arrays import Array
from rarehmm.conformance.requirements import Checked, check_all, must
from rarehmm.data.series import Series
from rarehmm.emissions.gaussian import Gaussian
from rarehmm.emissions.poisson import Poisson
from rarehmm.engine.contracts.design import Design, check_positive
from rarehmm.model.model import Model
from rarehmm.model.named_priors import no_priors
from rarehmm.model.simulation import simulate
from rarehmm.windows.information import WindowInformation
from rarehmm.windows.windows import Windows

TRANSITION = [[0.90, 0.08, 0.02], [0.05, 0.90, 0.05], [0.10, 0.20, 0.70]]
MODELS: dict[str, tuple[Any, dict[str, Any], dict[str, Any] | None]] = {  # family, parameters, fixed values
    "Gaussian": (Gaussian(), {"mean": [-4, 0, 4], "variance": 1}, None),
    "Poisson": (Poisson(), {"rate": [1, 5, 20]}, None),
    "Gaussian with a fixed mean": (Gaussian(), {"mean": [-4, 0, 4], "variance": 1}, {"mean": [None, 0, None]}),
}


class Case(NamedTuple):
    """A design, its name, and a seed of the series on which it is looked at."""

    design: Callable[[WindowInformation], Design]
    name: str
    seed: int

    def information(self, name: str) -> WindowInformation:
        """What windows say in one of the models: two sequences, a tenth of the observations missing."""
        family, parameters, fixed = MODELS[name]
        rng, model = np.random.default_rng(self.seed), Model(family, 3, no_priors(family), fixed=fixed)
        truth = model.parameters(TRANSITION, **parameters)
        y, _ = simulate(rng, model, truth, 203)
        y[rng.random(len(y)) < 0.1] = np.nan
        series, theta = Series(y, lengths=[80, 123]), model.pack(truth)
        factor = 0.1 * np.eye(model.size)
        points = theta + rng.standard_normal((3, model.size)) @ factor
        return WindowInformation(model, theta, series, Windows(series, 2, 5), factor=factor, points=points)

    def made(self) -> Iterator[tuple[str, WindowInformation, Array]]:
        """The probabilities (rows, N) of the design in each model."""
        for name in MODELS:
            info = self.information(name)
            found: Any = self.design(info)
            must(isinstance(found, Design), self.name, f"it returned a {type(found).__name__}; return a Design")
            yield name, info, np.asarray(found.probabilities)


def there_is_one_row_or_one_for_each_component(case: Case) -> None:
    for name, info, found in case.made():
        wanted = f"(1, {info.count}) or ({info.model.size}, {info.count})"
        good = found.shape in ((1, info.count), (info.model.size, info.count))
        must(good, case.name, f"probabilities of {name} have shape {found.shape}; {wanted} is needed")


def rows_are_probabilities_and_no_window_is_left_out(case: Case) -> None:
    for name, _, found in case.made():
        try:
            check_positive(Design(found))
        except ValueError as error:
            raise ValueError(f"{case.name}: in {name}, {error}") from None


def the_same_information_gives_the_same_design(case: Case) -> None:
    for (name, _, first), (_, _, second) in zip(case.made(), case.made(), strict=True):
        same = np.array_equal(first, second)
        must(same, case.name, f"two designs of {name} differ; points at which windows are looked at are given in info")


def information_is_left_as_it_is(case: Case) -> None:
    for name in MODELS:
        info, fresh = case.information(name), case.information(name)
        case.design(info)
        same = np.array_equal(info.theta, fresh.theta) and np.array_equal(info.points, fresh.points)
        same = same and all(np.array_equal(a, b) for a, b in zip(info.sums, fresh.sums, strict=True))
        must(same, case.name, f"it changes the information about windows of {name}; copy arrays first")


REQUIREMENTS = (
    there_is_one_row_or_one_for_each_component,
    rows_are_probabilities_and_no_window_is_left_out,
    the_same_information_gives_the_same_design,
    information_is_left_as_it_is,
)


def check_design(design: Callable[[WindowInformation], Design], *, seed: int = 0) -> Checked:
    """Check numerically that a design satisfies the contract of ``rarehmm.designs``.

    Parameters
    ----------
    design : callable
        A function from ``WindowInformation`` to a ``Design``; ``functools.partial`` sets its settings.
    seed : int, default 0
        Seed of the series on which it is looked at.

    Returns
    -------
    Checked
        The requirements that hold; print it to read them.

    Raises
    ------
    ValueError
        For the first requirement that is violated, with the model, the window and the numbers.

    Examples
    --------
    >>> from rarehmm import check_design
    >>> from rarehmm.designs.targeted import targeted
    >>> print(check_design(targeted))  # doctest: +ELLIPSIS
    targeted satisfies the contract:
      there is one row or one for each component
    ...
    """
    if not callable(design):
        raise TypeError(f"design is {design!r}; a function from WindowInformation to a Design is needed.")
    name = str(getattr(getattr(design, "func", design), "__name__", design))  # of a partial its function
    return check_all(name, Case(design, name, seed), REQUIREMENTS)
