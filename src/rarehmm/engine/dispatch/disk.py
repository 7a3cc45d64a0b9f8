"""Compiled kernels on disk: a file for each, named by a digest of all that went into it.

Numba's own cache watches nothing but the time stamp of the kernel's file, and keeps an index that two processes can
spoil for each other.
"""

import hashlib
import logging
import os
import pathlib
import pickle
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

from numba import types
from numba.core.caching import FunctionCache
from numba.core.serialize import dumps

from rarehmm.engine.dispatch.fingerprints import PACKAGE, fingerprint
from rarehmm.engine.dispatch.tags import fingerprint_now, tags

logger = logging.getLogger(__name__)


class DigestCache(FunctionCache):
    """Numba's disk cache with files of our own; an entry of another signature than the one asked for is refused."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        self._cache_file = Entries(pathlib.Path(self.cache_path), self._impl.filename_base, function)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        try:
            found = super().load_overload(sig, target_context)
        except Exception as error:
            logger.info("a compiled kernel could not be loaded and is compiled again: %r", error)
            return None
        return found if found is None or found.signature.args == tuple(sig) else None

    def save_overload(self, sig: Any, data: Any) -> None:
        for tag in tags(sig):
            if fingerprint_now(tag.instance_class) != tag.identity[1]:
                logger.warning("%s was changed after its first use, or uses what cannot be looked through: "
                               "its kernels are not saved", tag.identity[0])  # fmt: skip
                return
        try:
            super().save_overload(sig, data)
        except OSError as error:
            logger.warning("a compiled kernel could not be saved: %s", error)


def field_names(kinds: Any) -> Iterator[tuple[str, ...]]:
    """Fields of all named tuples among numba types: a kernel reads them by name, and their types do not show names."""
    for kind in kinds:
        if isinstance(kind, types.BaseTuple):
            yield getattr(kind, "fields", ())
            yield from field_names(kind.types)


class Entries:
    """One file for each compiled kernel, named by the digest of its key, written whole or not at all.

    It begins with a digest of key and content: a file that was damaged or renamed is refused.
    """

    def __init__(self, folder: pathlib.Path, base: str, function: Any) -> None:
        self.folder, self.base, self.function = folder, base, function

    def path(self, key: Any) -> pathlib.Path:
        return self.folder / f"{self.base}-{hashlib.sha256(self.full(key)).hexdigest()[:32]}.nbc"

    def full(self, key: Any) -> bytes:
        mine = PACKAGE if self.function.__module__.startswith("rarehmm.") else PACKAGE + fingerprint(self.function)
        return f"{mine} {key} {list(field_names(key[0]))}".encode()

    def seal(self, key: Any, content: bytes) -> bytes:
        return hashlib.sha256(self.full(key) + content).digest()

    def load(self, key: Any) -> Any:
        try:
            whole = self.path(key).read_bytes()
        except OSError:
            return None
        seal, content = whole[:32], whole[32:]
        return pickle.loads(content) if seal == self.seal(key, content) else None

    def save(self, key: Any, data: Any) -> None:
        content = dumps(data)
        handle, name = tempfile.mkstemp(dir=self.folder, suffix=".tmp")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(self.seal(key, content) + content)
            os.replace(name, self.path(key))
        except BaseException:
            pathlib.Path(name).unlink(missing_ok=True)
            raise

    def flush(self) -> None:
        for path in self.folder.glob(f"{self.base}-*.nbc"):
            path.unlink(missing_ok=True)
