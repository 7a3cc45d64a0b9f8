"""The contract of a transition: how the matrix of each step follows from parameters and inputs, and how long states
last.

A transition is a NamedTuple or a frozen dataclass, in a file of ``rarehmm/transitions`` or in a user's own code.  Its
parameters are a matrix (K, K), which is that of every step if there are no inputs, and ``slopes`` (q, K, K), one matrix
for each of the q inputs it reads, with rows that sum to zero.  It must have

* ``inputs``: the ``Inputs`` that it reads, a field; None if every step has the same matrix;
* ``phases(K)``: the number of phases (K,) of each state, 1 each unless a visit has a minimum length;
* ``matrices(transition, slopes, z)``: the matrices (n, K, K) of the steps into n rows with inputs ``z`` (n, q);
* ``gradient(matrices, counts, z)``: derivatives of sum_t counts_t log matrices_t in the logits (K, K) of the transition
  matrix, and in ``slopes`` (q, K, K), for expected transitions ``counts`` (n, K, K).

Each matrix depends on the inputs of its own row alone, and is the transition matrix where these are 0, their mean.
Transitions of probability 0 keep it, and no others get it.  Rows may stand for many: where inputs are seasons, ``z``
are those of the positions in a period, and ``counts`` are sums over all rows at each.

A transition without inputs needs neither of the last two.  ``is_softmax``, which may be missing, says that each row of
the matrices is a softmax, as those of ``Regression`` are: kernels then compute matrices and derivatives themselves.
``check_transition`` tests a transition against this contract.
"""

import dataclasses
from typing import Any, Protocol

from rarehmm.common.arrays import Array, IntArray


class Transition(Protocol):
    """What every transition must have; the docstring of this module has the whole contract."""

    @property
    def inputs(self) -> Any: ...
    def phases(self, K: int) -> IntArray: ...
    def matrices(self, transition: Array, slopes: Array, z: Array) -> Array: ...
    def gradient(self, matrices: Array, counts: Array, z: Array) -> tuple[Array, Array]: ...


def reading(transition: Any, inputs: Any) -> Any:
    """Return a copy of a transition that reads other inputs."""
    if isinstance(transition, tuple):
        fields: Any = transition
        return fields._replace(inputs=inputs)
    return dataclasses.replace(transition, inputs=inputs)
