"""Lanes: 16 doubles that travel together, as a numba type that *is* an LLVM vector.

A loop over lanes left to the auto-vectoriser silently falls back to scalar code: a constant trip count of 16 is
unrolled before the vectoriser runs, alias checks fail, or a branch gets in the way.  Here ``y - c[0]`` on a Lanes value
is one vector instruction by construction, on any machine (LLVM splits the vector to fit the CPU).

Families and kernels write ordinary NumPy on Lanes: arithmetic and comparisons are defined here, functions in
``elementary``, and ``lanewise`` adapts any other scalar function.  Without the JIT the same names work on arrays of 16
numbers.
"""

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.typing.templates import ConcreteTemplate, infer_global, signature
from numba.extending import intrinsic, lower_builtin, models, register_model

from rarehmm.engine.dispatch import JIT, inner, specialise

LANES = 16
DOUBLE, INT, SHORT = ir.DoubleType(), ir.IntType(64), ir.IntType(32)
DOUBLES, INTS, SHORTS = (ir.VectorType(t, LANES) for t in (DOUBLE, INT, SHORT))

Array = npt.NDArray[np.float64]


def lane_array(*shape: int) -> Array:
    """Zeros (..., LANES) aligned to cache lines; a 64-byte vector that straddles two lines costs two accesses."""
    size = math.prod(shape) * LANES
    raw = np.zeros(size + 8)
    first = (-raw.__array_interface__["data"][0] % 64) // 8
    return raw[first : first + size].reshape(*shape, LANES)


# ---------------------------------------------------------------- the types and their operators
class LanesType(types.Type):
    """Numba type of LANES doubles."""


class MaskType(types.Type):
    """Numba type of LANES truth values."""


lanes_type, mask_type = LanesType(f"lanes{LANES}"), MaskType(f"mask{LANES}")


@register_model(LanesType)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, DOUBLES)


@register_model(MaskType)
class _MaskModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, ir.VectorType(ir.IntType(1), LANES))


def _wide(builder: Any, value: Any, kind: Any) -> Any:
    """Broadcast a float to all lanes; leave a vector unchanged."""
    if kind is lanes_type:
        return value
    one = builder.insert_element(ir.Constant(DOUBLES, ir.Undefined), value, ir.Constant(SHORT, 0))
    return builder.shuffle_vector(one, ir.Constant(DOUBLES, ir.Undefined), ir.Constant(SHORTS, [0] * LANES))


def _operator(op: Any, emit: Callable[..., Any], cases: list[Any]) -> None:
    """Define ``op`` for the signatures in ``cases``; ``emit`` gets the builder and the widened values."""
    infer_global(op)(type("Lanes" + op.__name__, (ConcreteTemplate,), {"cases": cases}))

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return emit(
            builder, *(v if k is mask_type else _wide(builder, v, k) for v, k in zip(args, sig.args, strict=True))
        )

    for case in cases:
        lower_builtin(op, *case.args)(lower)


def _mixed(result: Any) -> list[Any]:
    pairs = (lanes_type, lanes_type), (lanes_type, types.float64), (types.float64, lanes_type)
    return [signature(result, *pair) for pair in pairs]


for _op, _name in ((operator.add, "fadd"), (operator.sub, "fsub"), (operator.mul, "fmul"), (operator.truediv, "fdiv")):
    _operator(_op, lambda b, u, v, name=_name: getattr(b, name)(u, v), _mixed(lanes_type))
for _op, _sign in (
    (operator.gt, ">"),
    (operator.lt, "<"),
    (operator.ge, ">="),
    (operator.le, "<="),
    (operator.eq, "=="),
):
    _operator(_op, lambda b, u, v, sign=_sign: b.fcmp_ordered(sign, u, v), _mixed(mask_type))
_operator(operator.ne, lambda b, u, v: b.fcmp_unordered("!=", u, v), _mixed(mask_type))
_operator(
    operator.neg, lambda b, u: b.fsub(ir.Constant(DOUBLES, [-0.0] * LANES), u), [signature(lanes_type, lanes_type)]
)
_operator(operator.pos, lambda b, u: u, [signature(lanes_type, lanes_type)])
for _op, _name in ((operator.and_, "and_"), (operator.or_, "or_")):
    _operator(_op, lambda b, u, v, name=_name: getattr(b, name)(u, v), [signature(mask_type, mask_type, mask_type)])
_operator(operator.invert, lambda b, u: b.not_(u), [signature(mask_type, mask_type)])


# ---------------------------------------------------------------- memory
def _pointer(context: Any, builder: Any, kind: Any, array: Any, index: Any) -> Any:
    """Address of array[*index, 0] as a pointer to a vector; ``index`` is a list of LLVM integers."""
    view = context.make_array(kind)(context, builder, array)
    pointer = cgutils.get_item_pointer(context, builder, kind, view, [*index, ir.Constant(INT, 0)])
    return builder.bitcast(pointer, DOUBLES.as_pointer())


def _read(context: Any, builder: Any, kind: Any, array: Any, index: Any) -> Any:
    out = builder.load(_pointer(context, builder, kind, array, index))
    out.align = 8
    return out


@intrinsic
def load(context: Any, array: Any, index: Any) -> Any:
    """Load the lanes array[index] of a C-contiguous array whose last axis has LANES elements."""

    def code(c: Any, b: Any, s: Any, a: Any) -> Any:
        return _read(c, b, s.args[0], a[0], cgutils.unpack_tuple(b, a[1]))

    return lanes_type(array, index), code


def load_columns(columns: int) -> Any:
    """Make a function of (array, t) that loads the tuple of lanes array[t, 0], ..., array[t, columns - 1]."""
    kind = types.UniTuple(lanes_type, columns)

    @intrinsic
    def function(context: Any, array: Any, t: Any) -> Any:
        def code(c: Any, b: Any, s: Any, a: Any) -> Any:
            rows = [_read(c, b, s.args[0], a[0], [a[1], ir.Constant(INT, d)]) for d in range(columns)]
            return c.make_tuple(b, kind, rows)

        return kind(array, t), code

    return function


@intrinsic
def store(context: Any, array: Any, index: Any, value: Any) -> Any:
    """Store lanes: array[index] = value."""

    def code(c: Any, b: Any, s: Any, a: Any) -> Any:
        b.store(a[2], _pointer(c, b, s.args[0], a[0], cgutils.unpack_tuple(b, a[1])), align=8)
        return c.get_dummy_value()

    return types.void(array, index, lanes_type), code


@intrinsic
def take(context: Any, template: Any, array: Any, row: Any) -> Any:
    """Read array[row] as a tuple as long as ``template``: values in registers, which no store can alias."""
    kind = types.UniTuple(types.float64, len(template))

    def code(c: Any, b: Any, s: Any, a: Any) -> Any:
        view = c.make_array(s.args[1])(c, b, a[1])
        rows = [[a[2], ir.Constant(INT, i)] for i in range(len(kind))]
        return c.make_tuple(b, kind, [b.load(cgutils.get_item_pointer(c, b, s.args[1], view, i)) for i in rows])

    return kind(template, array, row), code


class RowType(types.Type):
    """Numba type of ``count`` Lanes or numbers that are contiguous in memory, with items and a length.

    For rows too long for a tuple.  A row is a bare address, so its user must keep the array alive: the reference
    counting that numba does for views of arrays would cost more than the arithmetic on a row of eight.
    """

    def __init__(self, count: int, element: Any = lanes_type) -> None:
        self.count, self.element = count, element
        super().__init__(f"row{count}of{element}")


@register_model(RowType)
class _RowModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, (DOUBLES if kind.element is lanes_type else DOUBLE).as_pointer())


def row_of(count: int) -> Any:
    """Make a function of (array, index) that returns the row array[*index, 0], ..., array[*index, count - 1]."""
    kind = RowType(count)

    @intrinsic
    def function(context: Any, array: Any, index: Any) -> Any:
        def code(c: Any, b: Any, s: Any, a: Any) -> Any:
            return _pointer(c, b, s.args[0], a[0], [*cgutils.unpack_tuple(b, a[1]), ir.Constant(INT, 0)])

        return kind(array, index), code

    return function


@intrinsic
def numbers(context: Any, array: Any, k: Any) -> Any:
    """The row array[k] of a C-contiguous array of numbers."""

    def code(c: Any, b: Any, s: Any, a: Any) -> Any:
        view = c.make_array(s.args[0])(c, b, a[0])
        return cgutils.get_item_pointer(c, b, s.args[0], view, [a[1], ir.Constant(INT, 0)])

    return RowType(0, types.float64)(array, types.int64), code


@intrinsic
def _row_get(context: Any, row: Any, i: Any) -> Any:
    def code(c: Any, b: Any, s: Any, a: Any) -> Any:
        out = b.load(b.gep(a[0], [a[1]]))
        out.align = 8
        return out

    return row.element(row, types.int64), code


@intrinsic
def _row_set(context: Any, row: Any, i: Any, value: Any) -> Any:
    def code(c: Any, b: Any, s: Any, a: Any) -> Any:
        b.store(a[2], b.gep(a[0], [a[1]]), align=8)
        return c.get_dummy_value()

    return types.void(row, types.int64, row.element), code


def _is_row(implementation: Any) -> Any:
    return lambda row, *rest: implementation if isinstance(row, RowType) else None


def _get_item(row: Any, i: Any) -> Any:
    return _row_get(row, i)


def _set_item(row: Any, i: Any, value: Any) -> Any:
    _row_set(row, i, value)


def _length(row: Any) -> Any:
    count = getattr(row, "count", 0)
    return (lambda row: count) if isinstance(row, RowType) else None


def row(array: Array, k: int) -> Any:
    """The row array[k] of an array of lanes, of any length."""
    return array[k]


_any_row = row_of(0)


def _row(array: Any, k: Any) -> Any:
    return _any_row(array, (k,))


specialise(row, lambda *kinds: _row)
specialise(operator.getitem, _is_row(_get_item))
specialise(operator.setitem, _is_row(_set_item))
specialise(len, _length)


# ---------------------------------------------------------------- from floats and to floats
@intrinsic
def splat(context: Any, x: Any) -> Any:
    """Broadcast a number to every lane; leave Lanes unchanged."""
    kind = lanes_type if x is lanes_type else types.float64
    return lanes_type(kind), lambda c, b, s, a: _wide(b, a[0], kind)


def _library(builder: Any, name: str, result: Any, *args: Any) -> Any:
    """Call an LLVM intrinsic on vectors."""
    kind = ir.FunctionType(result, [a.type for a in args])
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), args)


@intrinsic
def lane_sum(context: Any, x: Any) -> Any:
    """Sum over lanes as a tree, in the same order on every run."""

    def code(c: Any, b: Any, s: Any, a: Any) -> Any:
        kind = ir.FunctionType(DOUBLE, [DOUBLE, DOUBLES])
        f = cgutils.get_or_insert_function(b.module, kind, f"llvm.vector.reduce.fadd.v{LANES}f64")
        return b.call(f, [ir.Constant(DOUBLE, -0.0), a[0]], fastmath=["reassoc"])

    return types.float64(lanes_type), code


def any_lane(mask: Any) -> Any:
    """Whether any element of a mask, or of an array of truth values, is true."""
    return np.any(mask)


@intrinsic
def _any(context: Any, mask: Any) -> Any:
    def code(c: Any, b: Any, s: Any, a: Any) -> Any:
        bits = ir.IntType(LANES)
        return b.icmp_unsigned("!=", b.bitcast(a[0], bits), ir.Constant(bits, 0))

    return types.boolean(mask_type), code


def _any_lane(mask: Any) -> Any:
    return _any(mask)


specialise(any_lane, lambda mask: _any_lane if mask is mask_type else None)


@intrinsic
def select(context: Any, mask: Any, u: Any, v: Any) -> Any:
    kinds = [lanes_type if k is lanes_type else types.float64 for k in (u, v)]

    def code(c: Any, b: Any, s: Any, a: Any) -> Any:
        return b.select(a[0], _wide(b, a[1], s.args[1]), _wide(b, a[2], s.args[2]))

    return lanes_type(mask_type, *kinds), code


def _unary(name: str) -> Any:
    """Make a function of Lanes from an LLVM intrinsic of one vector."""

    @intrinsic
    def function(context: Any, x: Any) -> Any:
        return lanes_type(lanes_type), lambda c, b, s, a: _library(b, f"llvm.{name}.v{LANES}f64", DOUBLES, *a)

    return function


nearest, root, absolute = _unary("rint"), _unary("sqrt"), _unary("fabs")


@intrinsic
def fused(context: Any, x: Any, y: Any, z: Any) -> Any:
    """Fused multiply-add x y + z, rounded once; fast-math options may not rearrange it."""

    def code(c: Any, b: Any, s: Any, a: Any) -> Any:
        return _library(b, f"llvm.fma.v{LANES}f64", DOUBLES, *(_wide(b, v, k) for v, k in zip(a, s.args, strict=True)))

    return lanes_type(*(k if k is lanes_type else types.float64 for k in (x, y, z))), code


@intrinsic
def power_of_two(context: Any, n: Any) -> Any:
    """2^n for integer-valued n, -1022 <= n <= 1023."""

    def code(c: Any, b: Any, s: Any, a: Any) -> Any:
        e = b.sext(b.fptosi(a[0], SHORTS), INTS)
        e = b.shl(b.add(e, ir.Constant(INTS, [1023] * LANES)), ir.Constant(INTS, [52] * LANES))
        return b.bitcast(e, DOUBLES)

    return lanes_type(lanes_type), code


@intrinsic
def split(context: Any, x: Any) -> Any:
    """(e, m) with x = 2^e m and m in [sqrt(1/2), sqrt(2)); x positive and normal."""

    def code(c: Any, b: Any, s: Any, a: Any) -> Any:
        bits = b.bitcast(a[0], INTS)
        shift = ir.Constant(INTS, [52] * LANES)
        e = b.ashr(b.sub(bits, ir.Constant(INTS, [0x3FE6A09E667F3BCD] * LANES)), shift)
        m = b.bitcast(b.sub(bits, b.shl(e, shift)), DOUBLES)
        return c.make_tuple(b, s.return_type, [b.sitofp(b.trunc(e, SHORTS), DOUBLES), m])

    return types.UniTuple(lanes_type, 2)(lanes_type), code


@intrinsic
def lane(context: Any, x: Any, i: Any) -> Any:
    """Lane i of x, or x itself if it is a number."""
    if x is lanes_type:
        return types.float64(lanes_type, types.int64), lambda c, b, s, a: b.extract_element(a[0], a[1])
    return types.float64(types.float64, types.int64), lambda c, b, s, a: a[0]


@intrinsic
def with_lane(context: Any, x: Any, i: Any, value: Any) -> Any:
    """Copy of x with lane i replaced by ``value``."""
    return lanes_type(lanes_type, types.int64, types.float64), lambda c, b, s, a: b.insert_element(a[0], a[2], a[1])


def lanewise(scalar: Callable[[float], float]) -> Any:
    """Function of Lanes that calls a compiled scalar function for each lane in turn: slow, but always available."""
    vectorized = np.vectorize(scalar, otypes=[float])

    def plain(x: Any) -> Any:
        return vectorized(x)

    def one(x: Any) -> Any:
        return scalar(x)

    def each(x: Any) -> Any:
        out = x
        for i in range(LANES):
            out = with_lane(out, i, scalar(lane(x, i)))
        return out

    specialise(plain, lambda kind: each if kind is lanes_type else one)
    return plain


def on_lanes(function: Any) -> Any:
    """Decorator: the implementation of ``function`` inside kernels when any argument is Lanes or a mask."""

    def attach(implementation: Any) -> Any:
        def choose(*kinds: Any) -> Any:
            return implementation if any(k is lanes_type or k is mask_type for k in kinds) else None

        specialise(function, choose)
        return implementation

    return attach


def tuple_of(count: int, entry: Callable[..., Any]) -> Any:
    """Make a function that returns the tuple (entry(0, ...), ..., entry(count - 1, ...)), unrolled in kernels."""
    part = inner(entry)

    @intrinsic
    def unrolled(context: Any, args: Any) -> Any:
        function = types.Dispatcher(part)
        one = context.resolve_function_type(function, (types.int64, *args), {})
        kind = types.UniTuple(one.return_type, count)

        def code(c: Any, b: Any, s: Any, a: Any) -> Any:
            call, given = c.get_function(function, one), cgutils.unpack_tuple(b, a[0])
            for library in getattr(call, "libs", ()):
                c.active_code_library.add_linking_library(library)
            return c.make_tuple(b, kind, [call(b, [ir.Constant(INT, i), *given]) for i in range(count)])

        return kind(args), code

    def plain(*args: Any) -> Any:
        return tuple(entry(i, *args) for i in range(count))

    specialise(plain, lambda *args: lambda *args: unrolled(args))
    return plain


def blank(count: int) -> Any:
    """Workspace for ``count`` values: a list, which holds values of any kind, or an array inside kernels."""
    return [0.0] * count


def _blank(count: int) -> Any:
    return np.empty(count)


specialise(blank, lambda count: _blank)


# ---------------------------------------------------------------- without the JIT: the same names on arrays
def _plain_load(array: Array, index: Any) -> Any:
    return array[index].copy()


def _plain_store(array: Array, index: Any, value: Any) -> None:
    array[index] = value


def _plain_take(template: tuple[float, ...], array: Array, row: int) -> tuple[float, ...]:
    return tuple(array[row, : len(template)])


def _plain_splat(x: float) -> Array:
    return np.full(LANES, x)


def _plain_row_of(count: int) -> Any:
    return lambda array, index: array[index]


def _plain_lane(x: Any, i: int) -> Any:
    return x[i] if np.ndim(x) else x


def _plain_with_lane(x: Array, i: int, value: float) -> Array:
    out = x.copy()
    out[i] = value
    return out


if not JIT:
    load, store, take, splat, lane_sum = _plain_load, _plain_store, _plain_take, _plain_splat, np.sum
    row_of, lane, with_lane = _plain_row_of, _plain_lane, _plain_with_lane
