"""Access to files and storage: errors that say what to do, whole files, requests that end."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import stat
import tempfile
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any

from plmix_dist import errors
from plmix_dist.threads import StoppableThreads

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_FORBIDDEN = (errno.EACCES, errno.EPERM, errno.EROFS)
_REMOTE_LIBRARIES = ("botocore", "aiobotocore", "aiohttp", "s3fs", "gcsfs", "google", "azure", "adlfs")
_IN_THE_WAY = (errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ELOOP, errno.ENAMETOOLONG)


@contextlib.contextmanager
def writing_explained(path: str, n_bytes: int | Callable[[], str]) -> Iterator[None]:
    """Turn errors of writing into errors that say where, what was found, and what to do.

    `n_bytes` is the number of bytes needed, or a function that describes it if it is not known before.
    """
    try:
        yield
    except errors.PlmixError:
        raise
    except FileNotFoundError as error:
        raise errors.StoreNotFoundError(
            f"cannot write {path}: {_reason(error)}; make the folder or bucket that is missing"
        ) from error
    except OSError as error:
        if error.errno in _FULL:
            needed = n_bytes() if callable(n_bytes) else f"{n_bytes:,} bytes"
            raise errors.StoreFullError(
                f"no room to write {path} ({needed}): {_reason(error)}. What was finished before is intact; "
                "free some space and run the same command again"
            ) from error
        if isinstance(error, PermissionError) or error.errno in _FORBIDDEN:
            raise errors.StoreAccessError(
                f"no permission to write {path}: {_reason(error)}; choose another place, or change its permissions"
            ) from error
        if error.errno in _IN_THE_WAY:
            raise errors.StoreAccessError(
                f"cannot write {path}: {_reason(error)}; choose another place, or remove what is there"
            ) from error
        raise _unreachable(path, error) from error
    except Exception as error:
        raise _unreachable(path, error) from error


@contextlib.contextmanager
def reading_permitted(path: str) -> Iterator[None]:
    """Turn "permission denied" into an error that says so, because such a file is not damaged."""
    try:
        yield
    except errors.PlmixError:
        raise
    except NotADirectoryError:
        raise FileNotFoundError(errno.ENOENT, "no such file", path) from None
    except OSError as error:
        if isinstance(error, PermissionError) or error.errno in _FORBIDDEN:
            raise errors.StoreAccessError(
                f"no permission to read {path}: {_reason(error)}; change its permissions, "
                "or run this as a user who may read it"
            ) from error
        if error.errno == errno.ELOOP:
            raise errors.DamagedStoreError(f"{path} is a symbolic link, and links are not followed") from error
        raise _unreachable(path, error) from error
    except Exception as error:
        raise _unreachable(path, error) from error


def read_file(path: Path, most: int | None = None, start: int = -1) -> bytes:
    """The bytes of a plain file, or its first `start` ones; an error for a pipe, or for more than `most` bytes."""
    with reading_permitted(str(path)):
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):  # a pipe would wait for a writer forever
            raise errors.DamagedStoreError(f"{path} is not a plain file")
        if most is not None and found.st_size > most:
            raise too_large(str(path), found.st_size, most)
        with path.open("rb") as file:
            return file.read(start)


class TooLargeError(errors.DamagedStoreError):
    """A file is larger than it can be, and was not read."""


def too_large(path: str, size: int, most: int) -> TooLargeError:
    """The error for a file that is larger than it can be."""
    return TooLargeError(f"{path} has {size:,} bytes, where at most {most:,} are expected")


def check_folder(path: str) -> None:
    """An error unless files can be written in this folder, which need not exist yet. Nothing is left behind."""
    with writing_explained(path, 0):
        nearest = Path(path)
        while not os.path.lexists(nearest):
            nearest = nearest.parent
        if not nearest.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, f"{nearest} is not a folder")
        with tempfile.TemporaryFile(dir=nearest):
            pass


def check_file(path: str) -> None:
    """An error unless a file can be written at this path."""
    with writing_explained(path, 0):
        if Path(path).is_dir():
            raise IsADirectoryError(errno.EISDIR, "it is a folder")
    check_folder(str(Path(path).absolute().parent))


@contextlib.contextmanager
def whole_file(
    path: Path, n_bytes: int | None = None, *, synced: bool = True, private: bool = False
) -> Iterator[IO[bytes]]:
    """A file that appears at `path`, complete, when the block ends; after an error nothing appears.

    It survives a power cut if it is `synced` to the disk. `n_bytes` is its size for messages, where that is known. A
    `private` file can be read by its owner alone.
    """
    draft = path.with_name(f"{path.name}.{uuid.uuid4().hex}.tmp")

    def more_than() -> str:
        return f"more than {draft.stat().st_size if draft.exists() else 0:,} bytes"

    try:
        with writing_explained(str(path), more_than if n_bytes is None else n_bytes):
            path.parent.mkdir(parents=True, exist_ok=True)
            if private:
                draft.touch(0o600)
            with draft.open("wb") as file:
                yield file
                if synced:
                    file.flush()
                    os.fsync(file.fileno())
            draft.replace(path)
            if synced:
                sync_folder(path.parent)
    finally:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)


def write_whole(path: Path, data: bytes, *, synced: bool = True, private: bool = False) -> None:
    """Write a file in one step: a reader finds the old bytes or the new ones, never a part."""
    with whole_file(path, len(data), synced=synced, private=private) as file:
        file.write(data)


def sync_folder(folder: Path) -> None:
    """Write renames in a folder to the disk, so that they survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _unreachable(path: str, error: Exception) -> Exception:
    """The error to raise for one of remote storage: no answer, connection or credentials. Others stay as they are."""
    from_library = type(error).__module__.split(".")[0] in _REMOTE_LIBRARIES
    of_connection = isinstance(error, OSError) and not isinstance(error, FileNotFoundError | FileExistsError)
    if "://" not in path or not (from_library or of_connection):
        return error
    return errors.StoreAccessError(
        f"{path} cannot be reached: {error or type(error).__name__}; check the URL, the credentials and the network, "
        "and run this again"
    )


def _reason(error: OSError) -> str:
    return error.strerror or str(error) or type(error).__name__


# Requests to storage behind a URL. Each has a time limit: an endpoint that accepts and does not answer is an error.

_VARIABLE = "PLMIX_STORAGE_TIMEOUT"
_SECONDS = 60.0
_BYTES_PER_SECOND = 1e6
_READ_BYTES = 1 << 20


def storage_seconds(n_bytes: int = 0) -> float:
    """How many seconds a request that moves `n_bytes` may take."""
    given = os.environ.get(_VARIABLE, _SECONDS)
    try:
        seconds = float(given)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise errors.SettingsError(f"{_VARIABLE} must be a number of seconds above 0, but is {given!r}")
    return seconds + n_bytes / _BYTES_PER_SECOND


@dataclass(frozen=True)
class RemoteFiles:
    """The file system behind a URL, and the root within it."""

    filesystem: Any
    root: str

    def call(self, method: str, *arguments: Any, n_bytes: int = 0, seconds: float | None = None, **options: Any) -> Any:
        """What a method of the file system gives; a TimeoutError if it takes longer than it may."""
        if not getattr(self.filesystem, "async_impl", False):
            return getattr(self.filesystem, method)(*arguments, **options)
        from fsspec.asyn import sync

        request = getattr(self.filesystem, f"_{method}")
        limit = seconds or storage_seconds(n_bytes)
        try:
            return sync(self.filesystem.loop, request, *arguments, timeout=limit, **options)
        except TimeoutError as error:
            raise _no_answer(limit) from error

    def is_file(self, path: str, seconds: float | None = None) -> bool:
        """Whether there is a file. Not the method `isfile`, which returns False for every error."""
        with contextlib.suppress(FileNotFoundError):
            return bool(self.call("info", path, seconds=seconds)["type"] == "file")
        return False

    def open(self, path: str) -> IO[bytes]:
        """A file opened for reading; opening it, or a read, is a TimeoutError if it takes longer than it may."""
        return io.BufferedReader(_LimitedReads(within(0, self.filesystem.open, path, "rb")), _READ_BYTES)


def remote_files(url: str, **options: Any) -> RemoteFiles:
    """What is behind a URL."""
    import fsspec

    try:
        filesystem, root = fsspec.core.url_to_fs(url, **options)
    except (ValueError, ImportError, TypeError) as error:  # of an unknown or missing kind, or with other options
        raise errors.SettingsError(f"{url} cannot be reached: {error}; check the URL and its options") from error
    return RemoteFiles(filesystem, root.rstrip("/"))


def _no_answer(limit: float) -> TimeoutError:
    return TimeoutError(f"no answer within {limit:.0f} s ({_VARIABLE})")


def within(n_bytes: int, function: Callable[..., Any], *arguments: Any, **how: Any) -> Any:
    """What a function gives, called in a thread of its own: open files have no limits. A thread that waits is left."""
    limit = storage_seconds(n_bytes)
    try:
        return StoppableThreads(1, "storage").submit(partial(function, *arguments, **how)).result(limit)
    except TimeoutError as error:
        raise _no_answer(limit) from error


class _LimitedReads(io.RawIOBase):
    """An open file of any file system, whose reads end."""

    def __init__(self, file: Any) -> None:
        self.file = file
        for name in ("readable", "seekable", "seek", "tell"):
            setattr(self, name, getattr(file, name))

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer as far as there are bytes."""
        data = within(len(buffer), self.file.read, len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        """Close the file."""
        self.file.close()
        super().close()
