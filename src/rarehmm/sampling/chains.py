"""Chains: many steps of a sampler on gradients from a pool of windows, with seeds, threads, progress and checkpoints.

Each chain has two streams of random numbers, one for its windows and one for its noise, split off the generator that
is passed in.  Draws do not depend on the number of threads, and a resumed run equals an uninterrupted one bit by bit.
"""

import hashlib
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.linalg import solve_triangular

from rarehmm.common.arrays import Array
from rarehmm.common.checks import check_generator, check_threads, check_whole, warn_interrupted
from rarehmm.data.workers import available_threads, share, submit
from rarehmm.engine.contracts.family import prepare
from rarehmm.engine.contracts.sampler import DivergedError, Divergence, first_memory, noise_rows, validate_sampler
from rarehmm.engine.dispatch import explained
from rarehmm.engine.kernels.chain import Workspace, estimates, run_chain
from rarehmm.engine.kernels.gradient import assembly
from rarehmm.engine.kernels.messages import Point, group, zeros
from rarehmm.exact.batched import empty_point
from rarehmm.exact.statistics import n_summed
from rarehmm.model.model import Model
from rarehmm.model.target import Target
from rarehmm.search.mode import Mode
from rarehmm.windows.pool import Pool

FORMAT = 2  # of checkpoints
WRITERS: dict[Any, str] = {1: "rarehmm 0.1"}  # of other formats
SECONDS = 10.0  # between two of them


def run(
    rng: np.random.Generator,
    sampler: Any,
    model: Model,
    pool: Pool,
    start: Array,
    steps: int,
    *,
    mode: Mode | None = None,
    thin: int = 1,
    threads: int | None = None,
    on_progress: Callable[[int, int], None] | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    executor: Any = None,
) -> Array:
    """Draws of theta (chains, steps // thin, d) by the steps of a sampler on gradients from windows.

    Parameters
    ----------
    rng : Generator
    sampler : sampler
        Settings of a step, such as ``Baoab()``.
    model : Model
    pool : Pool
        Where the windows of each step come from.
    start : array (chains, d) or (d,)
        One start for each chain.
    steps : int
        Steps of each chain.
    mode : Mode, optional
        The sampler then moves in coordinates that are whitened there, and a step uses more windows the farther it is
        from the mode, up to 100 times as many: in proportion to the mean square of its whitened coordinates, rounded.
    thin : int, default 1
        Keep every ``thin``-th draw.
    threads : int, optional
        Number of threads; draws do not depend on it.
    on_progress : callable, optional
        Called with the steps that all chains together have done, and their total.
    checkpoint : path, optional
        File to which the state of the run is written now and then; called again with the same arguments, the run goes
        on from there.
    executor : executor or Dask client, optional
        Its workers run the chains, without checkpoints.

    Returns
    -------
    array (chains, steps // thin, d)
        Ctrl-C returns the draws so far, with a warning.

    Raises
    ------
    DivergedError
        If a chain leaves the support of a component.
    """
    check_generator(rng)
    check_threads(threads)
    if check_whole("thin", thin) > check_whole("steps", steps):
        raise ValueError(f"thin is {thin} and there are {steps} steps: no draw would be kept.")
    validate_sampler(sampler, model.powers, model.component_names)
    pool.check_model(model)
    theta = starts(model, start)
    target, begin = target_of(model, pool, mode), theta
    if mode is not None:
        begin = solve_triangular(mode.factor, (theta - mode.theta).T, lower=True).T
    states = [State(child.spawn(2), row, sampler) for child, row in zip(rng.spawn(len(theta)), begin, strict=True)]
    draws = np.full((len(theta), steps // thin, model.size), np.nan)
    saved = None
    if checkpoint:
        saved = Checkpoint(Path(checkpoint), settings(sampler, model, pool, mode, states, steps, thin))
        saved.resume(states, draws, thin)
    parts = [refills(state, sampler, model, target, pool, steps) for state in states]
    if executor is not None and not saved:
        sent = share(executor, pool)
        away = [submit(executor, by_itself, state, sampler, model, target, sent, steps) for state in states]
        parts = [fetched(state, result) for state, result in zip(states, away, strict=True)]
    return Chains(states, draws, steps, thin, on_progress, saved).follow(parts, threads)


class Chains:
    """Chains of one run, followed part by part: every ``thin``-th draw is kept, progress reported, checkpoints written.

    ``draws`` (chains, steps // thin, d) is filled as the chains go on.
    """

    def __init__(
        self,
        states: "list[State]",
        draws: Array,
        steps: int,
        thin: int,
        on_progress: Callable[[int, int], None] | None,
        saved: "Checkpoint | None",
    ) -> None:
        self.states, self.draws, self.steps, self.thin = states, draws, steps, thin
        self.on_progress, self.saved = on_progress, saved
        self.lock, self.stop = threading.Lock(), threading.Event()

    def follow(self, parts: list[Iterator[tuple[int, Array]]], threads: int | None) -> Array:
        """All draws once every chain is at its end, or those that all chains have if Ctrl-C is pressed."""
        kept = self.draws
        try:
            self.in_threads(parts, min(threads or available_threads(), len(parts)))
        except KeyboardInterrupt:
            done = min(s.done for s in self.states) // self.thin
            warn_interrupted(done * len(self.states), kept[:, :, 0].size)
            kept = kept[:, :done]
        finally:
            if self.saved:
                self.saved.write(self.states, self.draws)
        found = [Divergence(s.diverged, s.done // self.thin, i) for i, s in enumerate(self.states) if s.diverged]
        if found:
            raise DivergedError(found, kept)
        return kept

    def in_threads(self, parts: list[Iterator[tuple[int, Array]]], threads: int) -> None:
        """Follow all chains at once; if one of them fails, the others stop at their next part."""
        with ThreadPoolExecutor(threads) as workers:
            running = [workers.submit(self.keep, chain, part) for chain, part in enumerate(parts)]
            try:
                for result in running:
                    result.result()
            finally:
                self.stop.set()

    def keep(self, chain: int, parts: Iterator[tuple[int, Array]]) -> None:
        """Keep the draws of one chain, and report each part."""
        state, draws, thin = self.states[chain], self.draws[chain], self.thin
        for good, part in parts:
            with self.lock:
                numbers = np.arange(state.done + 1, state.done + good + 1)  # of the steps, from 1
                stored = numbers % thin == 0
                draws[numbers[stored] // thin - 1] = part[stored]
                state.commit(good)
                self.report()
            if self.stop.is_set():
                return

    def report(self) -> None:
        """Say how many steps are done, and write a checkpoint if it is time."""
        if self.on_progress:
            self.on_progress(sum(s.done for s in self.states), self.steps * len(self.states))
        if self.saved:
            self.saved.write_if_due(self.states, self.draws)


def starts(model: Model, start: Any) -> Array:
    """Starts (chains, d), one for each chain, checked."""
    try:
        theta = np.atleast_2d(np.array(start, dtype=float))
    except (TypeError, ValueError):
        raise TypeError(
            f"start is a {type(start).__name__}; one theta (d,), or one for each chain, is needed: see model.pack."
        ) from None
    if theta.ndim != 2 or len(theta) == 0 or theta.shape[1] != model.size:
        raise ValueError(f"start has shape {np.shape(start)}; it must be ({model.size},) or (chains, {model.size}).")
    model.unpack_all(theta)
    return theta


class State:
    """Where a chain stands: its ``position`` (d,), the sampler's ``memory``, steps ``done``, and its random streams.

    ``saved`` is a copy from the end of the last refill, from which a run can be resumed.
    """

    def __init__(self, streams: list[np.random.Generator], position: Array, sampler: Any) -> None:
        self.windows, self.noise = streams
        self.position, self.memory = position.copy(), first_memory(sampler, position)
        self.done, self.diverged = 0, ""
        self.commit(0)

    def commit(self, steps: int) -> None:
        self.done += steps
        streams = [s.bit_generator.state for s in (self.windows, self.noise)]
        self.saved = {
            "position": self.position.copy(), "memory": self.memory.copy(), "done": np.array(self.done),
            "diverged": np.array(self.diverged), "streams": np.array(json.dumps(streams)),
        }  # fmt: skip

    def restore(self, saved: dict[str, npt.NDArray[Any]]) -> None:
        for name in ("position", "memory"):
            now, then = self.saved[name], saved[name]
            if now.shape != then.shape or now.dtype != then.dtype or not np.isfinite(then).all():
                raise ValueError(f"{name} {then.shape} of {then.dtype}, or not finite")
        self.position, self.memory = saved["position"].copy(), saved["memory"].copy()  # chains move them in place
        self.done, self.diverged = int(saved["done"]), str(saved["diverged"])
        if self.done < 0 or saved["diverged"].ndim > 0:
            raise ValueError(f"{self.done} steps done, {self.diverged} diverged")
        states = json.loads(str(saved["streams"]))
        for stream, state in zip((self.windows, self.noise), states, strict=True):
            stream.bit_generator.state = state
        self.saved = saved


def refills(
    state: State, sampler: Any, model: Model, target: Target, pool: Pool, steps: int
) -> Iterator[tuple[int, Array]]:
    """Run a chain one refill of the pool at a time: how many steps were good, and their draws (m, d)."""
    spare = int(target.growth) if target.growth > 1 else 0  # steps far from the mode use several sets
    gathered, work = pool.allocate(steps + steps // 4 + spare), workspace(model, pool)
    kept, rows = np.empty((min(pool.capacity, steps), model.size)), noise_rows(sampler)
    while state.done < steps and not state.diverged:
        m = min(pool.capacity, steps - state.done)
        sets = min(pool.capacity, m + m // 4 + spare) if spare else m
        pool.fill(state.windows, sets, gathered)
        normals = state.noise.standard_normal((m, rows, model.size))
        with explained(f"{model.name} or {type(sampler).__name__}"):
            good, well = run_chain(
                sampler, model.family, target, gathered, sets, normals, state.position, state.memory, *work, kept[:m]
            )
        if not well:
            low, high = model.bounds
            theta = work[2].vectors[0][model.free]
            state.diverged = model.component_names[int(np.argmin((theta >= low) & (theta <= high)))]
        yield good, kept[:good]


def by_itself(
    state: State, sampler: Any, model: Model, target: Target, pool: Pool, steps: int
) -> tuple[list[tuple[int, Array]], str]:
    """All parts of a chain, and the component that diverged, if any; run by a worker."""
    parts, state = [], deepcopy(state)  # a worker may be a thread
    for good, kept in refills(state, sampler, model, target, pool, steps):
        parts.append((good, kept.copy()))
        state.commit(good)
    return parts, state.diverged


def fetched(state: State, result: Any) -> Iterator[tuple[int, Array]]:
    """The parts of a chain that a worker ran, once they are here."""
    parts, state.diverged = result.result()
    yield from parts


# ---------------------------------------------------------------- checkpoints
def settings(
    sampler: Any, model: Model, pool: Pool, mode: Mode | None, states: list[State], steps: int, thin: int
) -> dict[str, str]:
    """Digests of all that a run depends on, by name: a checkpoint of another run is refused."""
    W, s, frozen = pool.windows, pool.series, pool.frozen
    sample = [s.read(low, min(len(s), low + 10_000)) for low in np.linspace(0, max(0, len(s) - 10_000), 100, dtype=int)]
    kept = (frozen.phi, frozen.statistics, *frozen.messages) if frozen else ()
    return {
        "sampler": digest(type(sampler).__name__, *sampler),
        "model": digest(
            type(model.family).__name__, model.family, model.priors, model.start, model.component_names, model.vector
        ),
        "series": digest(len(s), s.bounds, s.summaries, *sample),
        "windows": digest(W.half_width, W.buffer, pool.size, pool.capacity, pool.owner),
        "design": digest(pool.probabilities, pool.row),
        "mode": digest(*((mode.theta, mode.factor) if mode else ())),
        "frozen statistics": digest(*kept),
        "start or seed": digest(*(value for state in states for _, value in sorted(state.saved.items()))),
        "steps": digest(steps, thin),
    }


def digest(*values: Any) -> str:
    """Digest of arrays, all their digits, and of other values as text."""
    total = hashlib.sha256()
    for value in values:
        array = isinstance(value, np.ndarray)
        total.update(repr((value.shape, str(value.dtype))).encode() if array else repr(value).encode())
        total.update(np.ascontiguousarray(value).tobytes() if array else b"")
    return total.hexdigest()


class Checkpoint:
    """A file with the state of a run, replaced as a whole; it holds arrays and text, nothing that can be executed."""

    def __init__(self, path: Path, described: dict[str, str]) -> None:
        if not path.parent.is_dir():
            raise ValueError(f"checkpoint is {path}, but there is no folder {path.parent}; make it first.")
        self.path, self.described, self.last = path, described, time.monotonic()

    def write_if_due(self, states: list[State], draws: Array) -> None:
        if time.monotonic() - self.last >= SECONDS:
            self.write(states, draws)

    def write(self, states: list[State], draws: Array) -> None:
        parts: dict[str, Any] = {
            f"{key}_{i}": value for i, state in enumerate(states) for key, value in state.saved.items()
        }
        parts |= {"about": np.array(json.dumps({"format": FORMAT, **self.described})), "draws": draws}
        partial = self.path.with_name(f"{self.path.name}.partial")
        with partial.open("wb") as file:
            np.savez(file, **parts)
        partial.replace(self.path)
        self.last = time.monotonic()

    def resume(self, states: list[State], draws: Array, thin: int) -> None:
        """Resume the run in the file, if there is one."""
        if not self.path.exists():
            return
        try:
            with self.path.open("rb") as file:
                loaded = np.load(file, allow_pickle=False)
                if not hasattr(loaded, "files"):
                    raise ValueError("one array")
                parts = dict(loaded)
            about = json.loads(str(parts.pop("about")))
            if not isinstance(about, dict):
                raise ValueError("it does not say of what")
            kept = parts.pop("draws")
            restored = [{key: parts[f"{key}_{i}"] for key in state.saved} for i, state in enumerate(states)]
        except Exception as error:  # archives that are damaged raise what they like
            raise ValueError(f"{self.path} is no checkpoint of a run ({error}); remove it to start again.") from error
        if (written := about.get("format")) != FORMAT:
            writer = WRITERS.get(written, "another version of rarehmm")
            raise ValueError(
                f"{self.path} was written by {writer}, whose chains this version does not continue. Finish it with "
                "that version, or remove the file to start again."
            )
        differs = [key for key, value in self.described.items() if about.get(key) != value]
        if differs:
            raise ValueError(
                f"{self.path} is the checkpoint of another run: {', '.join(differs)} differ. Remove it to start again, "
                "or use another file."
            )
        try:
            if kept.shape != draws.shape or kept.dtype != draws.dtype:
                raise ValueError(f"draws {kept.shape} of {kept.dtype}")
            for state, saved, rows in zip(states, restored, kept, strict=True):
                state.restore(saved)
                if not np.isfinite(rows[: state.done // thin]).all():
                    raise ValueError("draws that are not finite")
        except (AttributeError, LookupError, OverflowError, TypeError, ValueError) as error:
            raise ValueError(f"{self.path} is damaged ({error}); remove it to start again.") from error
        draws[:] = kept


# ---------------------------------------------------------------- gradients alone
def gradient_estimates(rng: np.random.Generator, model: Model, pool: Pool, theta: Array, count: int) -> Array:
    """Stochastic gradients (count, d) of the log posterior at one theta (d,), as a chain would see them."""
    check_generator(rng)
    check_whole("count", count)
    pool.check_model(model)
    (theta,) = starts(model, theta)
    gathered, target, (point, sums, room) = pool.allocate(count), target_of(model, pool), workspace(model, pool)
    theta = model.with_fixed(theta)
    out = np.empty((count, len(theta)))
    for low in range(0, count, pool.capacity):
        part = out[low : low + pool.capacity]
        pool.fill(rng, len(part), gathered)
        with explained(model.name):
            estimates(model.family, target, gathered, theta, point, sums, room, part)
    return out[:, model.free]


def target_of(model: Model, pool: Pool, mode: Mode | None = None) -> Target:
    """The posterior as a chain over the windows of a pool samples it, whitened at a mode, if any."""
    frozen, target = pool.frozen, model.target
    if frozen is not None:
        hat = np.zeros((0, 0)) if frozen.by_gradient else np.array([prepare(model.family, phi) for phi in frozen.phi])
        target = target.controlled(frozen.total, hat)
    if mode is None:
        return target
    return target.whitened_at(mode.theta, mode.factor, min(100.0, pool.capacity))


def workspace(model: Model, pool: Pool) -> tuple[Point, Any, Workspace]:
    """Work space of a chain over the windows of a pool."""
    K, P = model.n_states, len(model.family.parameters)
    *_, p, a, scale, top, b, pb = group(pool.n, 1, K)
    frozen, vectors = np.empty(pool.statistics.shape[1]), np.empty((2, len(model.vector)))
    room = Workspace(p, a, scale, top, b, pb, *assembly(K, P), frozen, vectors)
    return empty_point(model), zeros(K, P, n_summed(model.family))[1], room
