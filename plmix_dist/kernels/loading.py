"""Kernels as Python calls them: loaded from a cache of machine code, or compiled and kept there.

Compiling takes seconds and needs numba. Loading machine code takes milliseconds and needs llvmlite alone. So numba is
imported only where something is compiled. Machine code is kept in a folder named after a digest of all sources of
kernels, the version of llvmlite and the processor. A file is written under another name first, then renamed: processes
that start together write the same file, and none sees half of it. Machine code is run, so a folder or file that another
user owns or may write is not used.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib
import logging
import os
import stat
import struct
import sys
import threading
import time
import uuid
from array import array
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

logger = logging.getLogger("plmix_dist")
_SOURCES = Path(__file__).parent
# Compiling and loading are done by one thread at a time.
_LOCK = threading.RLock()
# The header of an ELF file, the entry of a section, and the kind of section that takes no room in the file.
_ELF_HEADER, _SECTION, _NO_BITS = 64, struct.Struct("<IIQQQQIIQQ"), 8
# Folders of which a warning has said that they cannot be written.
_warned: set[str] = set()


class MachineCode(NamedTuple):
    """A compiled kernel: an object file, and the name that its function has in there."""

    symbol: str
    object_file: bytes


class Kernel:
    """A compiled function, named as in `compiled/kernels.py`, that takes structures. It releases the GIL."""

    # All kernels by name. The package imports every module that makes one, so all of them are known.
    known: dict[str, Kernel] = {}  # noqa: RUF012 - filled as kernels are made

    def __init__(self, name: str, *structures: type[tuple[Any, ...]]) -> None:
        self.name = name
        self.structures = structures
        self._function: Callable[..., None] | None = None
        self.known[name] = self

    def __call__(self, *fields: array[int]) -> None:
        """Run with the fields of each structure, as `pointers` gives them."""
        (self._function or self.load())(*[each.buffer_info()[0] for each in fields])

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
        return self._path.exists() and fault_of_cache(self._path) is None

    @property
    def _path(self) -> Path:
        return cache_folder() / f"{self.name}.kernel"

    def _compile(self) -> MachineCode:
        compiler = importlib.import_module("plmix_dist.kernels.compiled.jit")
        return compiler.compile_kernel(self.name, len(self.structures))


def cache_folder() -> Path:
    """Where compiled kernels are kept: below PLMIX_CACHE_DIR, or below the user's cache folder."""
    chosen = os.environ.get("PLMIX_CACHE_DIR")
    return (Path(chosen) if chosen else _user_cache() / "plmix_dist") / f"kernels-{_digest()}"


def _user_cache() -> Path:
    """The user's cache folder; a user without a home has none, and gets a name at which nothing can be written."""
    chosen = os.environ.get("XDG_CACHE_HOME")
    try:
        return Path(chosen) if chosen else Path.home() / ".cache"
    except RuntimeError:
        return Path(os.devnull) / "no-home"


def fault_of_cache(path: Path) -> str | None:
    """Why the folder of the cache, or a file in it, must not be used; None if this user and root alone may write it."""
    for one in (path.parent, path):
        try:
            found = one.stat()
        except OSError:
            return None  # it is not there
        if found.st_uid not in (0, os.getuid()):
            return f"{one} belongs to another user (number {found.st_uid})"
        if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            return f"others may write to {one}"
    return None


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
    function = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * n_arguments)(engine.get_function_address(code.symbol))
    function.engine = engine  # type: ignore[attr-defined] # the machine code lives as long as its engine
    return function


def _write(path: Path, code: MachineCode) -> None:
    """Keep machine code; where that cannot be done, it is compiled again next time, with one warning."""
    body = code.symbol.encode() + b"\n" + code.object_file
    try:
        path.parent.parent.mkdir(parents=True, exist_ok=True)
        path.parent.mkdir(mode=0o755, exist_ok=True)  # whatever the umask, nobody else writes here
        if (fault := fault_of_cache(path)) is not None:
            _warn_once(str(path.parent), f"{fault}, so it is not used")
            return
        temporary = path.with_name(f"{path.name}.{uuid.uuid4().hex}.tmp")
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644), "wb") as file:
            file.write(hashlib.sha256(body).digest() + body)
        temporary.replace(path)
    except OSError as error:
        _warn_once(str(path.parent), f"{path.parent} cannot be written ({error})")


def _warn_once(folder: str, reason: str) -> None:
    if folder in _warned:
        return
    _warned.add(folder)
    logger.warning(
        "compiled kernels cannot be kept, so every process compiles them again: %s. Set PLMIX_CACHE_DIR to a folder "
        "that can be written, and by you alone",
        "no home folder" if folder.startswith(os.devnull) else reason,
    )


def _read(path: Path) -> MachineCode | None:
    """Machine code that was kept; None if it cannot be read, or is not what was written, or others may write it."""
    try:
        kept = None if fault_of_cache(path) else path.read_bytes()
    except OSError:
        kept = None
    if kept is None or hashlib.sha256(kept[32:]).digest() != kept[:32]:
        return None
    symbol, _, object_file = kept[32:].partition(b"\n")
    whole = symbol.isascii() and _is_whole(object_file) and b"\0" + symbol + b"\0" in object_file
    return MachineCode(symbol.decode(), object_file) if whole else None


def _is_whole(object_file: bytes) -> bool:
    """Whether all sections of an ELF file are in it: LLVM does not look, and reads beyond the end of one cut short."""
    if object_file[:7] != b"\x7fELF\x02\x01\x01" or len(object_file) < _ELF_HEADER:
        return sys.platform != "linux" and bool(object_file)
    (start,) = struct.unpack_from("<Q", object_file, 40)
    size, count = struct.unpack_from("<HH", object_file, 58)
    if size != _SECTION.size or not count > 0 or start + size * count > len(object_file):
        return False
    sections = _SECTION.iter_unpack(object_file[start : start + size * count])
    return all(
        kind == _NO_BITS or first + n_bytes <= len(object_file) for _, kind, _, _, first, n_bytes, *_ in sections
    )


# Compiling ahead: which kernels a fit uses, whether the cache has them, and filling the cache.

# About how long a first fit compiles, in seconds.
FIRST_FIT_SECONDS = 3


class _CompiledKernel(NamedTuple):
    """A kernel that was asked for."""

    name: str
    # How long compiling or loading it took.
    seconds: float
    # Whether the cache had it already.
    was_kept: bool
    # Whether the cache has it now; False if the folder cannot be written.
    is_kept: bool


def kernels_of_fit(*, with_rates: bool) -> tuple[str, ...]:
    """The names of the kernels that a default fit uses; `with_rates` for M-steps by LSR."""
    passes = "add_rows_and_rates" if with_rates else "add_rows"
    return ("fill_entries", "count_wins", passes, "add_batch", "take_logs", "fill_posteriors", "add_information")


def kernels_are_compiled(*, with_rates: bool) -> bool:
    """Whether a default fit will find all its kernels compiled, in this process or in the cache."""
    return all(Kernel.known[name].is_compiled for name in kernels_of_fit(with_rates=with_rates))


def compile_kernels(names: tuple[str, ...] | None = None) -> list[_CompiledKernel]:
    """Fill the cache with kernels, and load them; all kernels if no names are given."""
    compiled = []
    for name in names or tuple(Kernel.known):
        kernel = Kernel.known[name]
        was_kept, begun = kernel.is_kept, time.perf_counter()
        kernel.load(keep=True)
        compiled.append(_CompiledKernel(name, time.perf_counter() - begun, was_kept, kernel.is_kept))
    return compiled
