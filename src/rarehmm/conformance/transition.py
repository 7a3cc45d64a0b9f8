"""The contract of a transition: ``check_transition`` tests any transition against ``engine.contracts.transition``.

The tests run the same checks on every transition of the library.  Each check is a function of a ``Case``; it raises
``ValueError`` with the numbers.
"""

import pickle
from typing import Any, NamedTuple

import numpy as np

from rarehmm.common.arrays import Array, IntArray
from rarehmm.common.checks import check_whole
from rarehmm.conformance.requirements import Checked, check_all, must

ROWS = 7  # rows of inputs
STEP = 1e-6
FORBIDDEN = {"all transitions": 0.0, "a forbidden transition": 1.0}  # probability of state 1 after 0 that is taken away


class Case(NamedTuple):
    """A transition, the number of states K in which it is looked at, and a seed."""

    transition: Any
    n_states: int
    seed: int

    @property
    def name(self) -> str:
        return type(self.transition).__name__.split("#")[0]  # without the number of a class that was defined again

    @property
    def n_inputs(self) -> int:
        return 0 if self.transition.inputs is None else int(self.transition.inputs.size)

    @property
    def has_matrices(self) -> bool:
        """Whether matrices are its own: without inputs it may leave them out."""
        return self.transition.inputs is not None or hasattr(self.transition, "matrices")

    def point(self, share: float) -> tuple[Array, Array, Array]:
        """A matrix (K, K) without a ``share`` of its transition from 0 to 1, slopes (q, K, K), and inputs (n, q)."""
        rng, K, q = np.random.default_rng(self.seed), self.n_states, self.n_inputs
        transition = rng.dirichlet(np.full(K, 2.0), K) + 0.05
        if K > 2:
            transition[0, 1] *= 1 - share
        transition /= transition.sum(1, keepdims=True)
        there = transition > 0
        slopes = np.where(there, rng.normal(size=(q, K, K)), 0.0)
        slopes -= np.where(there, slopes.sum(-1, keepdims=True) / there.sum(1)[:, None], 0.0)
        return transition, slopes, rng.normal(size=(ROWS, q))

    def matrices(self, transition: Array, slopes: Array, z: Array) -> Array:
        """Its matrices (n, K, K), of the right shape."""
        found = np.asarray(self.transition.matrices(transition, slopes, z))
        wanted = (len(z), self.n_states, self.n_states)
        self.must(found.shape == wanted, f"matrices has shape {found.shape} for {len(z)} rows; {wanted} is needed")
        return found

    def must(self, condition: Any, message: str) -> None:
        must(np.all(condition), self.name, message)

    def close(self, what: str, found: Array, wanted: Array, reference: str, tolerance: float) -> None:
        """Raise an error that shows the worst mismatch if ``found`` and ``wanted`` differ."""
        off = np.where(np.isfinite(found), np.abs(found - wanted), np.inf)
        if off.size and not off.max() <= tolerance:
            at = np.unravel_index(np.argmax(off), off.shape)
            place = ", ".join(map(str, at))
            self.must(False, f"{what}[{place}] is {found[at]:.10g}; {reference} is {wanted[at]:.10g}")


def a_copy_is_equal(case: Case) -> None:
    """Also in another process, where workers unpack it."""
    try:
        copy = pickle.loads(pickle.dumps(case.transition))
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise ValueError(
            f"{case.name}: it cannot be pickled ({error}); define its class at the top of a module."
        ) from None
    case.must(copy == case.transition, "a pickled copy is not equal to it; use a NamedTuple or a frozen dataclass")
    try:
        hash(case.transition)
    except TypeError:
        case.must(False, "it has no hash; use a NamedTuple or a frozen dataclass, of tuples rather than lists")


def states_have_phases(case: Case) -> None:
    found = np.asarray(case.transition.phases(case.n_states))
    wanted = f"{case.n_states} whole numbers"
    case.must(found.shape == (case.n_states,), f"phases has shape {found.shape}; {wanted} are needed")
    case.must(found.dtype.kind in "iu", f"phases are of type {found.dtype}; {wanted} are needed")
    case.must(found >= 1, f"phases are {found.tolist()}; every state has at least one")


def rows_of_matrices_sum_to_one(case: Case) -> None:
    """Also where inputs are far from their means."""
    for share in FORBIDDEN.values():
        transition, slopes, z = case.point(share)
        for factor in (1.0, 1000.0):
            found = case.matrices(transition, slopes, factor * z)
            case.must(np.isfinite(found) & (found >= 0), f"a probability is {found.min()}, for inputs {factor:g} * z")
            sums = found.sum(-1)
            case.close(f"the sum of row t, j of matrices, for inputs {factor:g} * z, ", sums, 1 + 0 * sums, "it", 1e-12)


def the_matrix_holds_where_inputs_are_at_their_means(case: Case) -> None:
    for share in FORBIDDEN.values():
        transition, slopes, z = case.point(share)
        wanted = np.broadcast_to(transition, (ROWS, *transition.shape))
        for what, matrices in (
            ("matrices with inputs of 0", case.matrices(transition, slopes, 0 * z)),
            ("matrices with slopes of 0", case.matrices(transition, 0 * slopes, z)),
        ):
            case.close(what, matrices, wanted, "the transition matrix", 1e-12)


def forbidden_transitions_stay_forbidden(case: Case) -> None:
    for name, share in FORBIDDEN.items():
        transition, slopes, z = case.point(share)
        wrong = (case.matrices(transition, slopes, z) > 0) != (transition > 0)
        t, j, k = np.argwhere(wrong)[0] if wrong.any() else (0, 0, 0)
        case.must(
            not wrong.any(),
            f"with {name}, matrices[{t}, {j}, {k}] is {case.matrices(transition, slopes, z)[t, j, k]:.6g} where the "
            f"transition matrix has {transition[j, k]:.6g}; zeros stay, and nothing else becomes one",
        )


def each_row_follows_from_its_own_inputs(case: Case) -> None:
    transition, slopes, z = case.point(0.0)
    together = case.matrices(transition, slopes, z)
    alone = np.concatenate([case.matrices(transition, slopes, z[t : t + 1]) for t in range(ROWS)])
    case.close("matrices", together, alone, "that of this row alone", 1e-12)
    order: IntArray = np.arange(ROWS)[::-1]
    case.close("matrices of rows in reverse", case.matrices(transition, slopes, z[order]), together[order], "it", 1e-12)


def gradient_is_the_slope(case: Case) -> None:
    """By central differences of the sum of counts times log matrices, for counts of either sign."""
    rng = np.random.default_rng([case.seed, 1])
    for name, share in FORBIDDEN.items():
        transition, slopes, z = case.point(share)
        there = transition > 0
        counts = np.where(there, rng.normal(1.0, 1.0, (ROWS, *transition.shape)), 0.0)

        def value(transition: Array, slopes: Array, z: Array = z, c: Array = counts, there: Any = there) -> float:
            return float((c * np.log(np.where(there, case.matrices(transition, slopes, z), 1.0))).sum())

        logits, own = case.transition.gradient(case.matrices(transition, slopes, z), counts.copy(), z)
        for what, found, wanted in (("of logits", logits, transition.shape), ("of slopes", own, slopes.shape)):
            case.must(
                found.shape == wanted,
                f"gradient returned derivatives {what} of shape {found.shape}; {wanted} is needed",
            )
        for j, k in np.argwhere(there):
            one = np.zeros(transition.shape)
            one[j, k] = STEP
            up, down = (softened(transition, sign * one) for sign in (1, -1))
            slope = (value(up, slopes) - value(down, slopes)) / (2 * STEP)
            what = f"with {name}, the derivative in logit {j}, {k}"
            case.must(abs(slope - logits[j, k]) < 1e-6, f"{what} is {logits[j, k]:.9g}; the slope is {slope:.9g}")
            for i in range(case.n_inputs):
                more = np.zeros(slopes.shape)
                more[i] = one - np.where(there[j], STEP / there[j].sum(), 0.0) * (np.arange(len(there)) == j)[:, None]
                slope = (value(transition, slopes + more) - value(transition, slopes - more)) / (2 * STEP)
                found = own[i, j, k] - own[i, j][there[j]].mean()
                what = f"with {name}, the derivative in slopes[{i}, {j}, {k}], less the mean of its row,"
                case.must(abs(slope - found) < 1e-6, f"{what} is {found:.9g}; the slope is {slope:.9g}")


def softened(transition: Array, logits: Array) -> Array:
    """A matrix after its logits have moved."""
    out = transition * np.exp(logits)
    return np.asarray(out / out.sum(-1, keepdims=True))


def arguments_are_left_as_they_are(case: Case) -> None:
    given = case.point(0.0)
    copies = [part.copy() for part in given]
    matrices = case.matrices(*given)
    counts = np.ones(matrices.shape)
    before = matrices.copy()
    case.transition.gradient(matrices, counts, given[2])
    arrays = {"transition": (given[0], copies[0]), "slopes": (given[1], copies[1]), "z": (given[2], copies[2]),
              "counts": (counts, np.ones(counts.shape)), "matrices": (matrices, before)}  # fmt: skip
    for name, (after, wanted) in arrays.items():
        case.must(np.array_equal(after, wanted), f"it changes {name}; copy arrays first")


ALWAYS = (a_copy_is_equal, states_have_phases)
WITH_MATRICES = (
    rows_of_matrices_sum_to_one,
    the_matrix_holds_where_inputs_are_at_their_means,
    forbidden_transitions_stay_forbidden,
    each_row_follows_from_its_own_inputs,
    gradient_is_the_slope,
    arguments_are_left_as_they_are,
)


def check_transition(transition: Any, *, n_states: int = 3, seed: int = 0) -> Checked:
    """Check numerically that a transition satisfies the contract of ``rarehmm.transitions``.

    Parameters
    ----------
    transition : transition
        An instance, such as ``Homogeneous()``.
    n_states : int, default 3
        Number of states, if its settings ask for a certain one.
    seed : int, default 0
        Seed of the matrices, slopes and inputs at which it is looked at.

    Returns
    -------
    Checked
        The requirements that hold, and what the transition does without; print it to read them.

    Raises
    ------
    TypeError
        If it is not an instance of a transition.
    ValueError
        For the first requirement that is violated, with the numbers.

    Examples
    --------
    >>> from rarehmm import Phases, check_transition
    >>> print(check_transition(Phases((1, 2, 4))))  # doctest: +ELLIPSIS
    Phases satisfies the contract:
      a copy is equal
    ...
    """
    needed = ("inputs", "phases") if getattr(transition, "inputs", None) is None else CONTRACT
    if isinstance(transition, type) or not all(hasattr(transition, name) for name in needed):
        raise TypeError(f"transition is {transition!r}; an instance of a class with {', '.join(CONTRACT)} is needed.")
    check_whole("n_states", n_states)
    case = Case(transition, n_states, seed)
    without = {} if case.has_matrices else {"matrices": "every step has the transition matrix"}
    return check_all(case.name, case, ALWAYS + WITH_MATRICES * case.has_matrices, without)


CONTRACT = ("inputs", "phases", "matrices", "gradient")
