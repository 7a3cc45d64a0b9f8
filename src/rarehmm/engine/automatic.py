r"""``density_of``: derive the score and the constants of a family from its log density in plain NumPy.

SymPy was tried and would replace only the chain rule, about 60 lines: its symbols do not pass through ``np.log``,
``np.where`` or ``scipy.special``, its common subexpressions mix what depends on the state with what depends on the
observation, and its printer writes ``numpy.select`` and constants to 15 digits.  Importing it takes a second.

The function is run once on *expressions* instead of numbers, which record the operations on them.  The score is the
derivative of the expression by the chain rule, and what depends on parameters alone is computed in ``prepare``, once
per state instead of once per observation:

.. math:: -\tfrac12 (y - \mu)^2 / v \;\to\; c_0 z z, \quad z = y - \mu, \; c_0 = -\tfrac12 / v

The result is written as Python source that looks like a hand-written family, and is compiled and cached like one.  Both
branches of ``np.where`` are differentiated and the choice between them comes last, so that the branch that is not taken
cannot spoil the result.
"""

import inspect
import linecache
import math
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from scipy import special

from rarehmm.engine.contracts.family import hook, log_density, prepare, score
from rarehmm.engine.dispatch import compiled, inner
from rarehmm.engine.lanes import lanewise
from rarehmm.engine.special import log_minus_digamma

F = TypeVar("F", bound=Callable[..., Any])

CONSTANT, STATE, ROW = range(3)  # what a value depends on: nothing, parameters, observations


@inner
def digamma(x: float) -> float:
    return float(math.log(x) - log_minus_digamma(x))


# functions of one argument: their source on a row (None: as on a state), their source on a state, their derivative
UNARY: dict[str, tuple[str | None, str, Callable[[Any, Any], Any]]] = {
    "exp": (None, "np.exp", lambda x, f: f),
    "log": (None, "np.log", lambda x, f: 1.0 / x),
    "sqrt": (None, "np.sqrt", lambda x, f: 0.5 / f),
    "abs": (None, "np.abs", lambda x, f: _where(x > 0.0, 1.0, _where(x < 0.0, -1.0, 0.0))),
    "log1p": (None, "np.log1p", lambda x, f: 1.0 / (1.0 + x)),
    "expm1": (None, "np.expm1", lambda x, f: f + 1.0),
    "cos": ("np.cos", "math.cos", lambda x, f: -_one("sin", x)),
    "sin": ("np.sin", "math.sin", lambda x, f: _one("cos", x)),
    "tanh": ("row_tanh", "math.tanh", lambda x, f: 1.0 - f * f),
    "arctan": ("row_arctan", "math.atan", lambda x, f: 1.0 / (1.0 + x * x)),
    "gammaln": ("row_gammaln", "math.lgamma", lambda x, f: _one("digamma", x)),
    "digamma": ("row_digamma", "digamma", lambda x, f: _refuse("the derivative of digamma")),
    "erf": ("row_erf", "math.erf", lambda x, f: 2.0 / math.sqrt(math.pi) * _one("exp", -x * x)),
}
SPACE = {
    "np": np, "math": math, "digamma": digamma, "row_digamma": lanewise(digamma), "row_gammaln": lanewise(math.lgamma),
    "row_tanh": lanewise(math.tanh),
    "row_arctan": lanewise(math.atan), "row_erf": lanewise(math.erf),
}  # fmt: skip
COMPARISONS = {"gt": ">", "lt": "<", "ge": ">=", "le": "<=", "eq": "==", "ne": "!="}
LOGIC = {"and": "&", "or": "|", "invert": "~"}
CONDITIONS = {*COMPARISONS, *LOGIC}
AVAILABLE = (
    "arithmetic, powers, comparisons, np.where, np.maximum, np.minimum, np.exp, np.log, np.sqrt, np.abs, np.square, "
    "np.sign, np.log1p, np.expm1, np.logaddexp, np.cos, np.sin, np.tanh, np.arctan, scipy.special.gammaln, erf, expit "
    "and xlogy"
)


def _refuse(what: str) -> Any:
    raise TypeError(f"{what} is not available in density_of; use {AVAILABLE}. Otherwise write score by hand.")


# ---------------------------------------------------------------- expressions
class Expression:
    """Symbolic value: an operation on other values.  Equal expressions are one object (see ``Trace.make``)."""

    def __init__(self, trace: "Trace", op: str, args: tuple[Any, ...], level: int, number: int) -> None:
        self.trace, self.op, self.args, self.level, self.number = trace, op, args, level, number

    __hash__ = object.__hash__

    def __bool__(self) -> bool:
        raise TypeError(
            "the density branches on an observation or a parameter; use np.where instead of if, and & | ~ on conditions"
        )

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        if method != "__call__" or options or ufunc not in UFUNCS:
            return _refuse(f"{ufunc.__name__}{'' if method == '__call__' else '.' + method}")
        return UFUNCS[ufunc](*inputs)

    def __array_function__(self, function: Any, kinds: Any, args: Any, options: Any) -> Any:
        if function is np.where and len(args) == 3 and not options:
            return _where(*args)
        return _refuse(f"np.{function.__name__}")

    def __neg__(self) -> Any:
        return _product(-1.0, self)

    def __pos__(self) -> Any:
        return self

    def __abs__(self) -> Any:
        return _one("abs", self)

    def __invert__(self) -> Any:
        return _make("invert", self)


def _trace_of(*values: Any) -> "Trace":
    return next(v.trace for v in values if isinstance(v, Expression))


def _make(op: str, *args: Any) -> Any:
    trace = _trace_of(*args)
    return trace.make(op, *(trace.lift(a) for a in args))


def _is(value: Any, number: float) -> bool:
    return bool(value.op == "number" and value.args[0] == number)


def _sum(*terms: Any) -> Any:
    """Sum with constants and state terms first, and terms with the same row part collected."""
    trace = _trace_of(*terms)
    parts: dict[Expression, Expression] = {}  # row part -> coefficient
    rest: list[Expression] = []
    for term in terms:
        lifted = trace.lift(term)
        for one in lifted.args if lifted.op == "sum" else (lifted,):
            if one.level < ROW:
                rest.append(one)
                continue
            coefficient, row = one.args if one.op == "scaled" else (trace.lift(1.0), one)
            parts[row] = trace.plain("add", parts[row], coefficient) if row in parts else coefficient
    first = trace.total("add", rest)
    each = [trace.scaled(c, row) for row, c in parts.items() if not _is(c, 0.0)]
    if not each:
        return first
    if len(each) == 1 and _is(first, 0.0):
        return each[0]
    return trace.make("sum", *([] if _is(first, 0.0) else [first]), *each)


def _product(*factors: Any) -> Any:
    """Product of one coefficient per state and the row factors, in their order of creation."""
    trace = _trace_of(*factors)
    coefficients: list[Expression] = []
    rows: list[Expression] = []
    for factor in factors:
        one = trace.lift(factor)
        if one.op == "scaled":
            coefficients.append(one.args[0])
            one = one.args[1]
        if one.level < ROW:
            coefficients.append(one)
        else:
            rows += _factors(one)
    coefficient = trace.total("multiply", coefficients)
    rows = _cancelled(rows)
    if not rows or _is(coefficient, 0.0):
        return coefficient
    rows.sort(key=lambda e: e.number)
    out = rows[0]
    for row in rows[1:]:  # one by one, so that products share their beginnings
        out = trace.make("times", out, row)
    return trace.scaled(coefficient, out)


def _cancelled(factors: list[Expression]) -> list[Expression]:
    """Factors without the pairs z and 1 / z that cancel."""
    times: dict[Expression, int] = {}
    for e in factors:
        times[e] = times.get(e, 0) + 1
    for e in factors:
        if e.op == "divide" and e.args[1] in times:
            pairs = min(times[e], times[e.args[1]])
            times[e] -= pairs
            times[e.args[1]] -= pairs
    return [e for e, n in times.items() for _ in range(n)]


def _factors(e: Expression) -> list[Expression]:
    return [*_factors(e.args[0]), e.args[1]] if e.op == "times" else [e]


def _divide(x: Any, y: Any) -> Any:
    trace = _trace_of(x, y)
    x, y = trace.lift(x), trace.lift(y)
    if max(x.level, y.level) < ROW:
        return trace.plain("divide", x, y)
    if y.op == "scaled":
        return _product(x, _divide(trace.lift(1.0), y.args[0]), _divide(trace.lift(1.0), y.args[1]))
    inverse = trace.plain("divide", trace.lift(1.0), y)
    return _product(x, inverse)


def _power(x: Any, n: Any) -> Any:
    trace = _trace_of(x, n)
    x, n = trace.lift(x), trace.lift(n)
    if n.op == "number" and float(n.args[0]).is_integer() and abs(n.args[0]) <= 8:
        whole = int(n.args[0])
        out = _product(*[x] * abs(whole)) if whole else trace.lift(1.0)
        return out if whole >= 0 else _divide(1.0, out)
    if n.op == "number" and n.args[0] == 0.5:
        return _one("sqrt", x)
    return trace.make("power", x, n)


def _where(condition: Any, x: Any, y: Any) -> Any:
    if isinstance(condition, Expression):
        trace = condition.trace
        x, y = trace.lift(x), trace.lift(y)
        return x if x is y else trace.make("where", condition, x, y)
    return x if condition else y


def _one(name: str, x: Any) -> Any:
    return _make(name, x)


def _logaddexp(x: Any, y: Any) -> Any:
    return _larger(x, y) + _one("log1p", _one("exp", -abs(x - y)))


def _larger(x: Any, y: Any) -> Any:
    return _make("maximum", x, y)


UFUNCS: dict[Any, Callable[..., Any]] = {
    np.add: _sum,
    np.subtract: lambda x, y: _sum(x, -y),
    np.multiply: _product,
    np.true_divide: _divide,
    np.power: _power,
    np.negative: lambda x: -x,
    np.positive: lambda x: x,
    np.square: lambda x: _product(x, x),
    np.reciprocal: lambda x: _divide(1.0, x),
    np.sign: lambda x: _where(x > 0.0, 1.0, _where(x < 0.0, -1.0, 0.0)),
    np.maximum: _larger,
    np.minimum: lambda x, y: _make("minimum", x, y),
    np.logaddexp: _logaddexp,
    np.absolute: lambda x: _one("abs", x),
    special.gammaln: lambda x: _one("gammaln", x),
    special.erf: lambda x: _one("erf", x),
    special.expit: lambda x: 1.0 / (1.0 + _one("exp", -x)),
    special.xlogy: lambda x, y: _where(x == 0.0, 0.0, x * _one("log", y)),
    np.logical_and: lambda x, y: _make("and", x, y),
    np.logical_or: lambda x, y: _make("or", x, y),
    np.logical_not: lambda x: _make("invert", x),
    np.bitwise_and: lambda x, y: _make("and", x, y),
    np.bitwise_or: lambda x, y: _make("or", x, y),
    np.greater: lambda x, y: _make("gt", x, y),
    np.less: lambda x, y: _make("lt", x, y),
    np.greater_equal: lambda x, y: _make("ge", x, y),
    np.less_equal: lambda x, y: _make("le", x, y),
    np.equal: lambda x, y: _make("eq", x, y),
    np.not_equal: lambda x, y: _make("ne", x, y),
}
for _name in ("exp", "log", "sqrt", "log1p", "expm1", "cos", "sin", "tanh", "arctan"):
    UFUNCS[getattr(np, _name)] = lambda x, name=_name: _one(name, x)


def _operator(function: Callable[..., Any], swapped: bool = False) -> Callable[[Any, Any], Any]:
    return (lambda self, other: function(other, self)) if swapped else (lambda self, other: function(self, other))


ARITHMETIC: dict[str, Callable[..., Any]] = {
    "add": _sum, "sub": lambda x, y: _sum(x, _product(-1.0, y) if isinstance(y, Expression) else -y),
    "mul": _product, "truediv": _divide, "pow": _power, "and": UFUNCS[np.bitwise_and], "or": UFUNCS[np.bitwise_or],
}  # fmt: skip
for _name, _function in ARITHMETIC.items():
    setattr(Expression, f"__{_name}__", _operator(_function))
    setattr(Expression, f"__r{_name}__", _operator(_function, swapped=True))
for _name in COMPARISONS:
    setattr(Expression, f"__{_name}__", lambda self, other, name=_name: _make(name, self, other))


class Trace:
    """All expressions of one family, in the order of their creation."""

    def __init__(self) -> None:
        self.fixed_values: dict[Any, Expression] = {}

    def make(self, op: str, *args: Any) -> Expression:
        key = op, *(a.number if isinstance(a, Expression) else repr(a) for a in args)
        if key not in self.fixed_values:
            leaf = {"number": CONSTANT, "state": STATE, "row": ROW}.get(op)
            level = max(a.level for a in args) if leaf is None else leaf
            if level == CONSTANT and leaf is None:
                return self.lift(_computed(op, *(a.args[0] for a in args)))
            self.fixed_values[key] = Expression(self, op, args, level, len(self.fixed_values))
        return self.fixed_values[key]

    def lift(self, value: Any) -> Expression:
        if isinstance(value, Expression):
            return value
        if np.ndim(value) or not np.isscalar(value) or isinstance(value, str | complex):
            _refuse(f"the value {value!r}")
        return self.make("number", bool(value) if isinstance(value, bool | np.bool_) else float(value))

    def plain(self, op: str, x: Expression, y: Expression) -> Expression:
        """Apply an operation to two values, leaving out neutral elements."""
        neutral = 1.0 if op in ("multiply", "divide") else 0.0
        if _is(y, neutral):
            return x
        if _is(x, neutral) and op != "divide":
            return y
        if (op != "add" and _is(x, 0.0)) or (op == "multiply" and _is(y, 0.0)):
            return self.lift(0.0)
        return self.make(op, x, y)

    def total(self, op: str, values: list[Expression]) -> Expression:
        """Sum or product of values per state, constants first."""
        out = self.lift(1.0 if op == "multiply" else 0.0)
        for value in sorted(values, key=lambda v: v.level):
            out = self.plain(op, out, value)
        return out

    def scaled(self, coefficient: Expression, row: Expression) -> Expression:
        return row if _is(coefficient, 1.0) else self.make("scaled", coefficient, row)

    # ------------------------------------------------------------ derivatives
    def slope(self, e: Expression, leaf: Expression, memory: dict[Expression, Expression]) -> Expression:
        """Derivative of an expression with respect to a leaf."""
        if e not in memory:
            memory[e] = self.lift(1.0 if e is leaf else self._chain(e, lambda x: self.slope(x, leaf, memory)))
        return memory[e]

    def _chain(self, e: Expression, d: Callable[[Expression], Expression]) -> Any:
        if e.op in ("number", "state", "row", *CONDITIONS):
            return 0.0
        if e.op in ("sum", "add"):
            return _sum(*(d(a) for a in e.args))
        if e.op in ("scaled", "times", "multiply"):
            return _sum(*(_product(*e.args[:i], d(a), *e.args[i + 1 :]) for i, a in enumerate(e.args)))
        if e.op == "where":
            return _where(e.args[0], d(e.args[1]), d(e.args[2]))
        if e.op in ("maximum", "minimum"):
            return _where(_make("ge" if e.op == "maximum" else "le", *e.args), *map(d, e.args))
        if e.op == "divide":
            x, y = e.args
            return _sum(_divide(d(x), y), _product(-1.0, e, _divide(d(y), y)))
        if e.op == "power":
            x, n = e.args
            by_exponent = 0.0 if _is(d(n), 0.0) else _product(e, _one("log", x), d(n))
            by_base = 0.0 if _is(d(x), 0.0) else _product(n, e, _divide(d(x), x))
            return _sum(self.lift(by_exponent), by_base)
        return 0.0 if _is(d(e.args[0]), 0.0) else _product(UNARY[e.op][2](e.args[0], e), d(e.args[0]))


def _computed(op: str, *values: Any) -> Any:
    """Value of an operation on numbers."""
    names = {"add": "add", "multiply": "multiply", "divide": "divide", "power": "power", "abs": "abs",
             "and": "logical_and", "or": "logical_or", "invert": "logical_not", "gt": "greater", "lt": "less",
             "ge": "greater_equal", "le": "less_equal", "eq": "equal", "ne": "not_equal"}  # fmt: skip
    where = special if op in ("gammaln", "digamma", "erf") else np
    return getattr(where, names.get(op, op))(*values).item()


# ---------------------------------------------------------------- source
class Writer:
    """Writes expressions as the lines of a function body; an expression used twice gets a name."""

    def __init__(self, given: dict[Expression, str], wanted: list[Expression]) -> None:
        self.names, self.lines = dict(given), list[str]()
        self.uses: dict[Expression, int] = {}
        for e in wanted:
            self._count(e)

    def _count(self, e: Expression) -> None:
        self.uses[e] = self.uses.get(e, 0) + 1
        if self.uses[e] == 1 and e not in self.names and e.op not in ("number", "state", "row"):
            for a in e.args:
                self._count(a)

    def text(self, e: Expression) -> str:
        if e in self.names:
            return self.names[e]
        if e.op == "number":
            text = repr(e.args[0]).replace("inf", "np.inf").replace("nan", "np.nan")
            return f"({text})" if text[0] == "-" else text
        written = self._operation(e)
        if self.uses.get(e, 0) < 2:
            return written
        name = f"v{len(self.lines)}"
        self.lines.append(f"{name} = {written}")
        self.names[e] = name
        return name

    def _operation(self, e: Expression) -> str:
        args = [self.text(a) for a in e.args]
        signs = {"sum": "+", "add": "+", "times": "*", "scaled": "*", "multiply": "*", "divide": "/", "power": "**",
                 **COMPARISONS, "and": "&", "or": "|"}  # fmt: skip
        if e.op in signs:
            return f"({f' {signs[e.op]} '.join(args)})"
        if e.op == "invert":
            return f"(~{args[0]})" if e.level == ROW else f"np.logical_not({args[0]})"
        if e.op in ("where", "maximum", "minimum"):
            return f"np.{e.op}({', '.join(args)})"
        row, state, _ = UNARY[e.op]
        return f"{(row or state) if e.level == ROW else state}({args[0]})"


def constants_of(wanted: list[Expression]) -> list[Expression]:
    """Expressions of the state alone that rows read, or that are wanted themselves, in order of creation."""
    found: set[Expression] = set()
    seen: set[Expression] = set()

    def look(e: Expression) -> None:
        if e.level == STATE:
            found.add(e)
        elif e not in seen and e.op not in ("number", "row"):
            seen.add(e)
            for a in e.args:
                look(a)

    for e in wanted:
        look(e)
    return sorted(found, key=lambda e: e.number)


class Stand:
    """Stand-in for a family while its density is traced: its settings are expressions."""

    def __init__(self, trace: Trace, cls: Any) -> None:
        for name in getattr(cls, "_fields", ()):
            setattr(self, name, trace.make("state", f"family.{name}"))


def source_of(cls: Any, function: Callable[..., Any]) -> str:
    """Source of prepare, log_density and score of a family with this log density."""
    _, _, *names = inspect.signature(function).parameters
    columns = hook(cls, "columns")
    trace = Trace()
    phi = [trace.make("state", f"phi[{i}]") for i in range(len(names))]
    rows = [trace.make("row", "y" if columns == 1 else f"y[{d}]") for d in range(columns)]
    density = trace.lift(function(Stand(trace, cls), rows[0] if columns == 1 else tuple(rows), *phi))
    slopes = [trace.slope(density, leaf, {}) for leaf in phi]
    constants = constants_of([density, *slopes])
    leaves = {e: e.args[0] for e in trace.fixed_values.values() if e.op in ("state", "row")}
    nothing = " + 0.0 * " + ("y" if columns == 1 else "y[0]")  # broadcasts a value without y to the length of y
    space = {e: text for e, text in leaves.items() if e.op == "row"}
    for i, e in enumerate(constants):  # conditions are kept as 1 and 0
        space[e] = f"((c[{i}]{nothing}) > 0.5)" if e.op in CONDITIONS else f"c[{i}]"

    def kept(writer: Writer, e: Expression) -> str:
        return f"np.where({writer.text(e)}, 1.0, 0.0)" if e.op in CONDITIONS else writer.text(e)

    def full(writer: Writer, e: Expression) -> str:
        return writer.text(e) + (nothing if e.level < ROW else "")

    parts = []
    for name, args, given, wanted in (
        ("prepare", "family, phi", leaves, constants),
        ("log_density", "family, y, c", space, [density]),
        ("score", "family, y, c", space, slopes),
    ):
        writer = Writer(given, wanted)
        texts = [kept(writer, e) if name == "prepare" else full(writer, e) for e in wanted]
        out = texts[0] if name == "log_density" else f"({''.join(t + ', ' for t in texts).rstrip()})"
        parts.append("\n    ".join([f"def {name}({args}):", *writer.lines, f"return {out}"]))
    return "\n\n\n".join(parts) + "\n"


WRITTEN: dict[type, str] = {}


def density_of(cls: type) -> Callable[[F], F]:
    """Decorator: derive ``prepare``, ``log_density`` and ``score`` of a family from its log density.

    The decorated function takes the family (for its settings), an observation (or a tuple of columns) and the
    parameters by name, and is written in ordinary NumPy.

    Parameters
    ----------
    cls : type
        Class of the family, a NamedTuple with ``parameters``.

    Returns
    -------
    callable
        Decorator that returns the log density unchanged.

    Raises
    ------
    TypeError
        If the arguments are not those of the family, or the density uses a function that cannot be differentiated here.

    Examples
    --------
    >>> from typing import NamedTuple
    >>> import numpy as np
    >>> import rarehmm as rh
    >>> from rarehmm.engine.contracts.family import Parameter
    >>> from rarehmm.data.domains import POSITIVE
    >>> class Rayleigh(NamedTuple):
    ...     parameters = (Parameter("scale", support="positive", prior=rh.InverseGamma(2.0, 2.0)),)
    ...     domain = POSITIVE
    ...     def draw(self, rng, states, phi):
    ...         return rng.rayleigh(phi[states, 0])
    >>> @rh.density_of(Rayleigh)
    ... def _(family, y, scale):
    ...     return np.log(y) - 2 * np.log(scale) - 0.5 * (y / scale) ** 2
    >>> from rarehmm.engine.contracts.family import prepare, score
    >>> float(score(Rayleigh(), 3.0, prepare(Rayleigh(), np.array([2.0])))[0])  # y^2 / scale^3 - 2 / scale
    0.125
    """

    def attach(function: F) -> F:
        check_signature(cls, function)
        source = source_of(cls, function)
        file = f"<density of {cls.__module__}.{cls.__qualname__}>"
        space: dict[str, Any] = {**SPACE, "__name__": cls.__module__}
        exec(compile(source, file, "exec"), space)
        linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)  # for tracebacks
        for generic in (prepare, log_density, score):
            compiled(generic, cls)(space[generic.__name__])
        WRITTEN[cls] = source
        return function

    return attach


def check_signature(cls: Any, function: Any) -> None:
    """Raise unless the arguments of a density are the family, the observation and the parameters by name."""
    found = list(inspect.signature(function).parameters)
    parameters = getattr(cls, "parameters", None)
    if not isinstance(cls, type) or parameters is None:
        raise TypeError(f"density_of takes the class of a family, which has parameters, not {cls!r}.")
    if not isinstance(parameters, tuple):
        try:
            parameters = cls().parameters
        except TypeError:  # settings without defaults: Model counts them
            return
    wanted = [p.name for p in parameters]
    if found[2:] != wanted:
        raise TypeError(
            f"the density of {cls.__name__} has the arguments ({', '.join(found)}); they must be the family, an "
            f"observation and then the parameters by name: {', '.join(wanted)}."
        )
