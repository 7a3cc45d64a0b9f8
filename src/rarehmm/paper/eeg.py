"""Sleep EEG (Ou et al., section 5.2): excerpts of the DREAMS spindle database in place of the paper's recording."""

import pathlib
from collections.abc import Sequence

import numpy as np

from rarehmm.common.arrays import Array, IntArray

TRAIN, TEST = (2, 4, 5), (6, 7, 8)  # six people at 200 Hz, a million samples each
STEP = 0.01  # microvolt: the recorder's step
SHARE = 0.0025  # of the samples are rare spikes


def load(folder: str | pathlib.Path, excerpts: Sequence[int] = TRAIN) -> list[Array]:
    """Microvolts of the excerpts, one array for each: other people, so other sequences.

    A file ``excerpt2.npz`` holds ``uV_x1e4`` (microvolts times 10,000, whole numbers) and ``fs`` (samples a second).
    """
    sequences, rates = [], {}
    for number in excerpts:
        path = pathlib.Path(folder) / f"excerpt{number}.npz"
        if not path.is_file():
            raise FileNotFoundError(f"{path} is not there; pass the folder of excerpt1.npz to excerpt8.npz.")
        with np.load(path, allow_pickle=False) as file:
            sequences.append(file["uV_x1e4"] * 1e-4)
            rates[number] = int(file["fs"])
    if len(set(rates.values())) > 1:
        raise ValueError(f"samples a second of excerpts are {rates}; one model needs one rate. Leave some out.")
    return sequences


def transform(x: Array, offset: float = STEP) -> Array:
    """``log(|x| + offset)``, natural, with ``x`` and ``offset`` in microvolts.

    The recorder's steps are 0.01 microvolt, laid a little beside zero.  No sample of the six excerpts at 200 Hz is
    exactly 0, but how near to it one comes, and so how far down ``log|x|`` reaches, is an accident of rounding: -9.2
    in excerpts 5 and 7, -5.4 in excerpt 4.  An offset of one step ends the tail between -4.6 and -4.2 in all six and
    moves the 1 % quantile by at most 0.08 and the median by 0.001.
    """
    if offset < 0:
        raise ValueError(
            f"offset is {offset:g}; it must be 0 or more, such as the recorder's step of {STEP} microvolt."
        )
    with np.errstate(divide="ignore"):
        y = np.log(np.abs(x) + offset)
    if np.isneginf(y).any():
        i = int(np.argmax(np.isneginf(y)))
        raise ValueError(f"x[{i}] is 0, whose logarithm is infinite; pass a positive offset.")
    return np.asarray(y, dtype=np.float64)


def spikes(y: Array, quantile: float = SHARE) -> IntArray:
    """Where a transformed sequence is at or below its own quantile, equal values included: the rare spikes.

    The lower tail, as in the paper, whose spikes are values <= 3.8 on the log of nanovolts.  That logarithm must be
    natural: e^3.8 = 45 nanovolt holds for 0.18 to 0.35 % of the samples of each excerpt (0.25 % of all, hence the
    default), 10^3.8 = 6.3 microvolt for 24 to 45 %.  These spikes are passages through zero: of 2,790 runs in the
    excerpts for training 2,742 are a single sample.  Head motion, which the paper thinks of too, is the upper tail.
    """
    if not 0 < quantile < 1:
        raise ValueError(f"quantile is {quantile:g}; it must be between 0 and 1, such as {SHARE}.")
    return np.flatnonzero(y <= np.nanquantile(y, quantile))
