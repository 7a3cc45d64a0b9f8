r"""Several families side by side, each for its own columns, independent given the state.

.. math:: \log p(y \mid \phi_k) = \sum_i \log p_i(y_{(i)} \mid \phi_{ki}), \quad \text{over the columns present}

Parameters, constants and columns of the product are those of its parts, in order.  The statistics of a part are
preceded by a 1 where its columns are present, whose sum is the number of observations that this part has seen.
"""

import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from rarehmm.common.arrays import Array, IntArray
from rarehmm.data.domains import Domain
from rarehmm.emissions import rivals
from rarehmm.emissions._sized import Sized
from rarehmm.engine.contracts.family import (
    Family,
    Parameter,
    Prior,
    check_family,
    columns,
    complete_score,
    constant,
    domains,
    has,
    hook,
    log_density,
    prepare,
    returns_to,
    score,
    statistics,
    with_log_scale,
    with_predictor,
)
from rarehmm.engine.dispatch import compiled, inner, provides
from rarehmm.engine.lanes import tuple_of

Labelled = tuple[str | None, Any]  # a part with the label it was given, if any


class Place(NamedTuple):
    """Place of a part in the product: (start, stop) of its columns, parameters, constants and statistics."""

    columns: tuple[int, int]
    phi: tuple[int, int]
    constants: tuple[int, int]
    statistics: tuple[int, int]


class Product(Sized):
    """Several families side by side, one for each column (or group of columns), independent given the state.

    Arguments are the families in the order of their columns, or pairs of a label and a family; keywords are more
    families with their labels.  A row in which some columns are missing (NaN) contributes the others.

    Notes
    -----
    The names of parameters begin with the label of their part: ``speed_mean``.  A part without a label is called ``y``
    and the number of its first column: ``y0_mean``.

    Examples
    --------
    >>> import numpy as np
    >>> from rarehmm import Bernoulli, Categorical, Gaussian, Product
    >>> family = Product(speed=Gaussian(), accuracy=Bernoulli())
    >>> [p.name for p in family.parameters]
    ['speed_mean', 'speed_variance', 'accuracy_log_odds']
    >>> phi = np.array([[5.5, 0.1, 0.0], [6.4, 0.1, 3.0]])
    >>> family.draw(np.random.default_rng(0), np.array([0, 0, 1]), phi).round(1)
    array([[5.5, 1. ],
           [5.5, 0. ],
           [6.6, 1. ]])
    >>> Product(Gaussian(), ("choice", Categorical(3)))
    Product(Gaussian(), ('choice', Categorical(3)))
    """

    accepts_partial_rows = True
    columns: int
    places: tuple[Place, ...]
    given: tuple[str | None, ...]

    def __new__(cls, *families: Any, **labelled_families: Any) -> "Product":
        given: list[Any] = [*families, *labelled_families.items()]
        if not given:
            raise ValueError(
                "Product has no families; give one for each column, such as Product(Gaussian(), Poisson())."
            )
        labelled = [part for one in given for part in flattened(one)]
        parts = [part for _, part in labelled]
        made: Product = tuple.__new__(sized(tuple(map(type, parts)), placed(parts), abilities(parts)), parts)
        made.given = tuple(label for label, _ in labelled)
        names = [p.name for p in made.parameters]
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise ValueError(f"two parameters of {made!r} are called {twice!r}; give its parts different labels.")
        return made

    @property
    def arguments(self) -> tuple[Labelled, ...]:
        return tuple(zip(self.given, self, strict=True))

    def __repr__(self) -> str:
        if all(label is not None and label.isidentifier() for label in self.given):
            return f"Product({', '.join(f'{label}={part!r}' for label, part in self.arguments)})"
        return f"Product({', '.join(repr(p) if p[0] is not None else repr(p[1]) for p in self.arguments)})"

    @property
    def labels(self) -> tuple[str, ...]:
        """Label of each part; without a given one, ``y`` and the number of its first column."""
        return tuple(
            f"y{place.columns[0]}" if label is None else label
            for label, place in zip(self.given, self.places, strict=True)
        )

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        every = zip(self.labels, self, self.places, strict=True)
        return tuple(shifted(p, label, place.columns[0]) for label, part, place in every for p in part.parameters)

    @property
    def levels(self) -> list[int]:
        """Indices of the parameters that are the levels of the columns: the first ones of each part, one per column."""
        return [place.phi[0] + i for place in self.places for i in range(place.columns[1] - place.columns[0])]

    @property
    def domain(self) -> tuple[Domain, ...]:
        return tuple(domain for part in self for domain in domains(part))

    def each(self, array: Array, what: str) -> Iterator[tuple[Any, Array]]:
        """Each part with its share of an array, whose last axis is that of ``what``: columns, phi or statistics."""
        for part, place in zip(self, self.places, strict=True):
            yield part, array[..., slice(*getattr(place, what))]

    def draw(self, rng: np.random.Generator, states: IntArray, phi: Array) -> Array:
        drawn = [part.draw(rng, states, mine) for part, mine in self.each(phi, "phi")]
        return np.asarray(drawn[0] if self.columns == 1 else np.column_stack(drawn))


def shifted(parameter: Parameter, label: str, by: int) -> Parameter:
    """Parameter of a part as a parameter of the product, with its label and ``by`` columns further to the right."""
    own = parameter.column
    column = own + by if isinstance(own, int) else tuple(i + by for i in own)
    return parameter._replace(name=f"{label}_{parameter.name}", column=column)


def flattened(given: Any) -> list[Labelled]:
    """Labelled parts from a family, a pair of a label and a family, or a Product."""
    pair = type(given) is tuple and len(given) == 2 and isinstance(given[0], str | None)
    label, family = given if pair else (None, given)
    if isinstance(family, Product) and type(family) is not Product:
        labels = family.given if label is None else [f"{label}_{own}" for own in family.labels]
        return list(zip(labels, family, strict=True))
    if not isinstance(family, type) and not hasattr(family, "parameters"):
        raise TypeError(f"{family!r} is not a family; Product takes instances, such as Product(Gaussian(), Poisson()).")
    check_family(family)
    return [(label, family)]


def placed(parts: list[Any]) -> tuple[Place, ...]:
    """Place of each part in the product."""
    found, at = [], np.zeros(4, dtype=int)
    for part in parts:
        D = columns(part)
        c = prepare(part, np.array([0.5 if p.support == "real" else 1.5 for p in part.parameters]))
        own = statistics(part, np.ones(1) if D == 1 else (np.ones(1),) * D, c)
        after = at + np.array([D, len(part.parameters), len(c), 1 + len(own)])
        found.append(Place(*zip(at.tolist(), after.tolist(), strict=True)))
        at = after
    return tuple(found)


# ---------------------------------------------------------------- hooks that the product has if its parts have them
def abilities(parts: list[Any]) -> tuple[str, ...]:
    """Names of the optional methods and functions that a product of these parts has."""
    summed = all(provides(statistics, part) for part in parts)
    having = {
        "statistics": summed,
        "complete_score": summed and all(provides(complete_score, part) for part in parts),
        "maximise": summed and all(has(part, "maximise") for part in parts),
        "conditional": summed and all(has(part, "conditional") for part in parts),
        "complete": any(has(part, "complete") for part in parts),
        "estimate": all(has(part, "estimate") for part in parts),
        "constant": any(has(part, "constant") for part in parts),
        "heavier": any(has(part, "heavier") for part in parts),
        "cdfs": all(has(part, "cdf") or has(part, "cdfs") for part in parts),
        "moments": all(has(part, "moments") or "variance" in names(part) for part in parts),
        "linear_predictor": any(hook(part, "linear_predictor") for part in parts),
        "returns_to": any(hook(part, "linear_predictor") for part in parts),
        "log_scale": any(hook(part, "log_scale") for part in parts),
    }
    return tuple(name for name, there in having.items() if there)


def names(family: Family) -> list[str]:
    return [p.name for p in family.parameters]


def maximise(self: Product, phi: Array, counts: Array, sums: Array, priors: tuple[Prior, ...]) -> Array:
    """M-steps of the parts, each with the number of observations that it has seen."""
    return by_parts(self, phi, sums, priors, lambda part, *given: part.maximise(*given))


def conditional(
    self: Product, rng: np.random.Generator, phi: Array, counts: Array, sums: Array, priors: tuple[Prior, ...]
) -> Array:
    """Draw the parameters of each part."""
    return by_parts(self, phi, sums, priors, lambda part, *given: part.conditional(rng, *given))


def by_parts(family: Product, phi: Array, sums: Array, priors: tuple[Prior, ...], step: Callable[..., Array]) -> Array:
    """New parameters (K, P) from a ``step`` of each part with its own parameters, counts, sums and priors."""
    out = np.empty_like(phi)
    for part, place in zip(family, family.places, strict=True):
        (low, high), (start, stop) = place.phi, place.statistics
        out[:, low:high] = step(part, phi[:, low:high], sums[:, start], sums[:, start + 1 : stop], priors[low:high])
    return out


def complete(self: Product, rng: np.random.Generator, y: Array, phi: Array) -> Array:
    """Rows y (n, D) of one state, with missing entries drawn in the parts that need them."""
    out = y.copy()
    for (part, mine), place in zip(self.each(y, "columns"), self.places, strict=True):
        if has(part, "complete"):
            out[:, slice(*place.columns)] = part.complete(rng, mine, phi[slice(*place.phi)])
    return out


def estimate(self: Product, y: Array, weight: Array) -> Array:
    """Parameters of each part from the rows in which its columns are present; NaN if there are none."""
    found = []
    for part, mine in self.each(y.reshape(len(y), -1), "columns"):
        there = ~np.isnan(mine).any(1)
        rows = mine[there, 0] if columns(part) == 1 else mine[there]
        found.append(part.estimate(rows, weight[there]) if there.any() else np.full(len(part.parameters), np.nan))
    return np.concatenate(found)


def constants_of(self: Product, y: Array) -> Array:
    """Terms (n,) that the densities of the parts leave out, over the columns that are present."""
    terms = [constant(part, mine) for part, mine in self.each(y.reshape(len(y), -1), "columns")]
    return np.asarray(np.sum(terms, axis=0))


def heavier(self: Product, phi: Array) -> list[tuple[Any, Array]]:
    """Products with heavier tails in every part that names rivals, and parameters (K, P) of them."""
    options = [rivals(part, mine) or [(part, mine)] for part, mine in self.each(phi, "phi")]
    found = []
    for m in range(max(map(len, options))):
        chosen = [option[min(m, len(option) - 1)] for option in options]
        family = Product(*zip(self.given, (part for part, _ in chosen), strict=True))
        found.append((family, np.column_stack([mine for _, mine in chosen])))
    return found


def cdfs(self: Product, y: Array, phi: Array) -> Array:
    """P(Y_i <= y_i) of each column (n, D), in a state with parameters phi (P,)."""
    found = []
    for part, place in zip(self, self.places, strict=True):
        own, mine = phi[slice(*place.phi)], y[:, slice(*place.columns)]
        found.append(part.cdfs(mine, own) if has(part, "cdfs") else part.cdf(mine[:, 0], own))
    return np.column_stack(found)


def moments(self: Product, phi: Array) -> tuple[Array, Array]:
    """Means (..., D) and covariances (..., D, D) from parameters (..., P); covariances between parts are 0."""
    D = self.columns
    mean, covariance = np.zeros((*phi.shape[:-1], D)), np.zeros((*phi.shape[:-1], D, D))
    for (part, own), place in zip(self.each(phi, "phi"), self.places, strict=True):
        mine = slice(*place.columns)
        if has(part, "moments"):
            mean[..., mine], covariance[..., mine, mine] = part.moments(own)
        else:
            mean[..., mine] = own[..., :1]
            covariance[..., mine, mine] = own[..., [[names(part).index("variance")]]]
    return mean, covariance


def linear_predictor(self: Product) -> tuple[str, ...]:
    """Parameters that inputs move: those of the parts that take inputs."""
    every = zip(self.labels, self, strict=True)
    return tuple(f"{label}_{name}" for label, part in every for name in hook(part, "linear_predictor"))


def returns_to_of(self: Product) -> tuple[str, ...]:
    """Parameters that are levels to which observations return: those of the parts."""
    return tuple(f"{label}_{name}" for label, part in zip(self.labels, self, strict=True) for name in returns_to(part))


def log_scale(self: Product) -> tuple[tuple[str, float], ...]:
    """Parameters that inputs on the log scale multiply, and the powers."""
    every = zip(self.labels, self, strict=True)
    return tuple((f"{label}_{name}", power) for label, part in every for name, power in hook(part, "log_scale"))


OPTIONAL: dict[str, Any] = {
    "maximise": maximise, "conditional": conditional, "complete": complete, "estimate": estimate,
    "constant": constants_of, "heavier": heavier, "cdfs": cdfs, "moments": moments,
    "linear_predictor": property(linear_predictor), "returns_to": property(returns_to_of),
    "log_scale": property(log_scale),
}  # fmt: skip


# ---------------------------------------------------------------- compiled functions, for each list of kinds of parts
@functools.cache
def sized(kinds: tuple[type, ...], places: tuple[Place, ...], able: tuple[str, ...]) -> Any:
    """Class of products of families of these classes, at these places; kernels unroll over the parts.

    The parts are the fields of an instance, so that their settings are arguments of kernels rather than compiled in.
    """
    D = places[-1].columns[1]
    space = {"columns": D, "places": places, "_fields": tuple(f"part{i}" for i in range(len(kinds)))}
    space |= {name: OPTIONAL[name] for name in able if name in OPTIONAL} | {"__module__": __name__}
    cls: Any = type(f"Product({', '.join(kind.__name__ for kind in kinds)})", (Product,), space)
    links = Links(no_values, no_statistics, no_values, no_values, no_scores)
    predictor, scale = no_moves, no_moves
    for i, (kind, place) in reversed(list(enumerate(zip(kinds, places, strict=True)))):
        links = linked(i, place, D == 1, bool(hook(kind, "accepts_partial_rows")), links)
        predictor = mover(i, kind, place, D == 1, with_predictor, predictor)
        scale = mover(i, kind, place, D == 1, with_log_scale, scale)
    attached: list[tuple[Any, Any]] = [(prepare, links.prepare), (log_density, links.log_density), (score, links.score)]
    attached += [(statistics, links.statistics)] if "statistics" in able else []
    attached += [(complete_score, links.complete_score)] if "complete_score" in able else []
    attached += [(with_predictor, predictor)] if "linear_predictor" in able else []
    attached += [(with_log_scale, scale)] if "log_scale" in able else []
    for generic, function in attached:
        compiled(generic, cls)(function)
    return cls


class Links(NamedTuple):
    """Functions of a part and of all parts after it."""

    prepare: Any
    log_density: Any
    score: Any
    statistics: Any
    complete_score: Any


@inner
def no_statistics(family: Any, y: Any, c: Any) -> Any:
    return 0.0


@inner
def no_values(family: Any, y: Any, c: Any = None) -> Any:
    return ()


@inner
def no_moves(family: Any, y: Any, c: Any, shift: Any) -> Any:
    return (), ()


@inner
def no_scores(family: Any, count: Any, sums: Any, hat: Any, c: Any) -> Any:
    return ()


def linked(i: int, place: Place, alone: bool, accepts_partial_rows: bool, after: Links) -> Links:
    """Functions of part ``i`` and of all parts ``after`` it.

    Tuples are sliced by constants, so that numba knows the lengths.  If the part is ``alone``, y is a single value
    instead of a tuple.
    """
    (first, last), (low, high), (begin, end), (start, stop) = place
    width = last - first
    later_prepare, later_density, later_score, later_statistics, later_complete = after
    slopes = tuple_of(high - low, lambda n, there, values: np.where(there, values[n], 0.0))
    marks = tuple_of(stop - start - 1, lambda n, there, values: np.where(there, values[n], 0.0))

    mine = share(first, last, alone)
    seen = mask(width, accepts_partial_rows)
    prepared, scored = (tuple_of(count, lambda n, values: values[n]) for count in (end - begin, high - low))

    @inner
    def constants(family: Any, phi: Any) -> Any:
        return prepared(prepare(family[i], phi[low:high])) + later_prepare(family, phi)

    @inner
    def density(family: Any, y: Any, c: Any) -> Any:
        x = mine(y)
        return np.where(seen(x), log_density(family[i], x, c[begin:end]), 0.0) + later_density(family, y, c)

    @inner
    def all_slopes(family: Any, y: Any, c: Any) -> Any:
        x = mine(y)
        return slopes(seen(x), score(family[i], x, c[begin:end])) + later_score(family, y, c)

    @inner
    def all_statistics(family: Any, y: Any, c: Any) -> Any:
        x = mine(y)
        there = seen(x)
        mark = (np.where(there, 1.0, 0.0),)
        return mark + marks(there, statistics(family[i], x, c[begin:end])) + later_statistics(family, y, c)

    @inner
    def complete(family: Any, count: Any, sums: Any, hat: Any, c: Any) -> Any:
        own = complete_score(family[i], sums[start], sums[start + 1 : stop], hat[begin:end], c[begin:end])
        return scored(own) + later_complete(family, count, sums, hat, c)

    return Links(constants, density, all_slopes, all_statistics, complete)


def share(first: int, last: int, alone: bool) -> Any:
    """Function of a row: the columns [first, last) of a part, or the value itself if the part is ``alone``."""
    one = last - first == 1
    return inner((lambda y: y) if alone else (lambda y: y[first]) if one else (lambda y: y[first:last]))


def mover(i: int, kind: type, place: Place, alone: bool, move: Any, later: Any) -> Any:
    """Function ``move`` (``with_predictor`` or ``with_log_scale``) of part ``i`` and of all parts after it.

    Parts that lack it keep their columns and constants.
    """
    (first, last), (begin, end) = place.columns, place.constants
    mine, one = share(first, last, alone), last - first == 1
    before: Any = inner(
        (lambda x, rest: x) if alone else (lambda x, rest: (x, *rest)) if one else (lambda x, rest: x + rest)
    )

    @inner
    def kept(part: Any, y: Any, c: Any, shift: Any) -> Any:
        return y, c

    own = move if kind in move.registry else kept

    @inner
    def moved_row(family: Any, y: Any, c: Any, shift: Any) -> Any:
        x, constants = own(family[i], mine(y), c[begin:end], mine(shift))
        rest = later(family, y, c, shift)
        return before(x, rest[0]), constants + rest[1]

    return moved_row


def mask(width: int, accepts_partial_rows: bool) -> Any:
    """Function of an observation of a part of ``width`` columns: whether the part uses it."""

    def one(y: Any) -> Any:
        return y == y

    def any_of(y: Any) -> Any:
        there = y[0] == y[0]
        for j in range(1, width):
            there = there | (y[j] == y[j])
        return there

    def all_of(y: Any) -> Any:
        there = y[0] == y[0]
        for j in range(1, width):
            there = there & (y[j] == y[j])
        return there

    return inner(one if width == 1 else any_of if accepts_partial_rows else all_of)
