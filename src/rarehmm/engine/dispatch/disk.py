"""Disk cache of compiled kernels: one file each, named by a digest of everything it was compiled from.

Numba's own cache checks only the time stamp of the kernel's source file, and keeps an index that two processes can
corrupt for each other.
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
    """Numba's disk cache on top of ``Entries``; rejects an entry whose signature is not the requested one."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        self._cache_file = Entries(pathlib.Path(self.cache_path), self._impl.filename_base, function)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        try:
            found = super().load_overload(sig, target_context)
        except Exception as error:
            logger.info("recompiling a kernel that could not be loaded from the cache: %r", error)
            return None
        return found if found is None or found.signature.args == tuple(sig) else None

    def save_overload(self, sig: Any, data: Any) -> None:
        for tag in tags(sig):
            if fingerprint_now(tag.instance_class) != tag.identity[1]:
                logger.warning("the kernels of %s are not cached: it was changed after its first use, or refers to "
                               "objects that cannot be fingerprinted", tag.identity[0])  # fmt: skip
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
    """Files of compiled kernels, named by the digest of their key and written atomically.

    Each begins with a digest of its key and content, so that a damaged or renamed file is rejected.
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
