"""Kernels as Python calls them: loaded from a cache of machine code, or compiled and kept there.

Compiling takes seconds and needs numba. Loading machine code takes milliseconds and needs llvmlite alone. So numba is
imported only where something is compiled. Machine code is kept in a folder named after a digest of all sources of
kernels, the version of llvmlite and the processor. A file is written under another name first, then renamed: processes
that start together write the same file, and none sees half of it.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib
import logging
import os
import threading
import uuid
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from array import array
    from collections.abc import Callable

logger = logging.getLogger("plmix_dist")
_SOURCES = Path(__file__).parent
# Compiling and loading are done by one thread at a time.
_LOCK = threading.RLock()
# Folders of which a warning has said that they cannot be written.
_warned: set[str] = set()


class MachineCode(NamedTuple):
    """A compiled kernel: an object file, and the name that its function has in there."""

    symbol: str
    object_file: bytes


class Kernel:
    """A compiled function that takes structures and returns nothing; the GIL is released while it runs.

    Parameters
    ----------
    name
        The name of the function, and of its file in `compiled/`.
    structures
        The classes of the structures that it takes.

    Examples
    --------
    >>> from plmix_dist.kernels.pairwise import _count_wins
    >>> _count_wins.name, len(_count_wins.structures)
    ('count_wins', 2)
    """

    # All kernels by name.
    known: dict[str, Kernel] = {}  # noqa: RUF012 - filled as kernels are made

    def __init__(self, name: str, *structures: type[tuple[Any, ...]]) -> None:
        self.name = name
        self.structures = structures
        self._function: Callable[..., None] | None = None
        self.known[name] = self

    def __call__(self, *fields: array[int]) -> None:
        """Run with the fields of each structure, as `pointers` gives them."""
        function = self._function or self.load()
        function(*[each.buffer_info()[0] for each in fields])

    def load(self, *, keep: bool = False) -> Callable[..., None]:
        """Load the kernel, and compile it first if the cache does not have it.

        With `keep` this is also done for a kernel that is loaded, but is not in the cache.
        """
        with _LOCK:
            if self._function is None or (keep and not self.is_kept):
                code = _read(self._path)
                if code is None:
                    code = self._compile()
                    _write(self._path, code)
                self._function = _linked(code, len(self.structures))
            return self._function

    @property
    def is_compiled(self) -> bool:
        """Whether this process or the cache has the kernel."""
        return self._function is not None or self.is_kept

    @property
    def is_kept(self) -> bool:
        """Whether the cache has the kernel."""
        return self._path.exists()

    @property
    def _path(self) -> Path:
        return cache_folder() / f"{self.name}.kernel"

    def _compile(self) -> MachineCode:
        compiler = importlib.import_module("plmix_dist.kernels.compiled.jit")
        code: MachineCode = compiler.compile_kernel(self.name, len(self.structures))
        return code


def cache_folder() -> Path:
    """Where compiled kernels are kept: below PLMIX_CACHE_DIR, or below the user's cache folder.

    Examples
    --------
    >>> cache_folder().name == f"kernels-{_digest()}"
    True
    """
    chosen = os.environ.get("PLMIX_CACHE_DIR")
    return (Path(chosen) if chosen else _user_cache() / "plmix_dist") / f"kernels-{_digest()}"


def _user_cache() -> Path:
    """The user's cache folder; a user without a home has none, and gets a name at which nothing can be written."""
    chosen = os.environ.get("XDG_CACHE_HOME")
    try:
        return Path(chosen) if chosen else Path.home() / ".cache"
    except RuntimeError:
        return Path(os.devnull) / "no-home"


@cache
def _digest() -> str:
    """A digest of everything that decides what kernels compile to. Numba asks for one version of llvmlite."""
    import llvmlite

    name, features = processor()
    digest = hashlib.sha256(f"{llvmlite.__version__} {name} {features}".encode())
    for path in sorted(_SOURCES.rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


@cache
def processor() -> tuple[str, str]:
    """The name and the features of this machine's processor, as LLVM calls them."""
    import llvmlite.binding as llvm

    return llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()


def target_machine() -> Any:
    """What LLVM makes machine code for: this machine's processor. An engine takes its own and disposes of it."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    name, features = processor()
    target = llvm.Target.from_triple(llvm.get_process_triple())
    return target.create_target_machine(
        cpu=name, features=features, opt=3, reloc="default", codemodel="jitdefault", jit=True
    )


def _linked(code: MachineCode, n_arguments: int) -> Callable[..., None]:
    """The function of an object file, ready to be called with addresses."""
    import llvmlite.binding as llvm

    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), target_machine())
    engine.add_object_file(llvm.ObjectFileRef.from_data(code.object_file))
    engine.finalize_object()
    function = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * n_arguments)(
        engine.get_function_address(code.symbol)
    )
    function.engine = engine  # type: ignore[attr-defined] # the machine code lives as long as its engine
    return function


def _write(path: Path, code: MachineCode) -> None:
    """Keep machine code; where that cannot be done, it is compiled again next time, and a warning says so once."""
    body = code.symbol.encode() + b"\n" + code.object_file
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f"{path.name}.{uuid.uuid4().hex}.tmp")
        temporary.write_bytes(hashlib.sha256(body).digest() + body)
        temporary.replace(path)
    except OSError as error:
        _warn_once(str(path.parent), str(error))


def _warn_once(folder: str, reason: str) -> None:
    if folder in _warned:
        return
    _warned.add(folder)
    where = (
        "there is no home folder"
        if folder.startswith(os.devnull)
        else f"{folder} cannot be written ({reason})"
    )
    logger.warning(
        "compiled kernels cannot be kept, so every process compiles them again: %s. Set PLMIX_CACHE_DIR to a folder "
        "that can be written",
        where,
    )


def _read(path: Path) -> MachineCode | None:
    """Machine code that was kept; None if it cannot be read, or is not what was written."""
    try:
        kept = path.read_bytes()
    except OSError:
        return None
    digest, body = kept[:32], kept[32:]
    if hashlib.sha256(body).digest() != digest:
        return None
    symbol, object_file = body.split(b"\n", 1)
    return MachineCode(symbol.decode(), object_file)
