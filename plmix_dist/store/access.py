"""Errors of the operating system in words: no room, no permission, a file where a folder should be."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from plmix_dist.errors import (
    DamagedStoreError,
    PlmixError,
    StoreAccessError,
    StoreFullError,
    StoreNotFoundError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_FORBIDDEN = (errno.EACCES, errno.EPERM, errno.EROFS)
_REMOTE_LIBRARIES = ("botocore", "aiobotocore", "aiohttp", "s3fs", "gcsfs", "google", "azure", "adlfs")
_IN_THE_WAY = (errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ELOOP, errno.ENAMETOOLONG)


@contextlib.contextmanager
def writing_explained(path: str, n_bytes: int | Callable[[], str]) -> Iterator[None]:
    """Turn errors of writing into errors that say where, what was found, and what to do.

    Parameters
    ----------
    path
        What is written.
    n_bytes
        The number of bytes needed, or a function that says it in words if it is not known before.

    Examples
    --------
    >>> with writing_explained("/data/store/a", 100):
    ...     raise OSError(errno.ENOSPC, "No space left on device")
    Traceback (most recent call last):
    ...
    plmix_dist.errors.StoreFullError: no room to write /data/store/a (100 bytes): No space left on device. ...
    """
    try:
        yield
    except PlmixError:
        raise
    except FileNotFoundError as error:
        raise StoreNotFoundError(
            f"cannot write {path}: {_reason(error)}; make the folder or bucket that is missing"
        ) from error
    except OSError as error:
        if error.errno in _FULL:
            needed = n_bytes() if callable(n_bytes) else f"{n_bytes:,} bytes"
            raise StoreFullError(
                f"no room to write {path} ({needed}): {_reason(error)}. What was finished before is intact; "
                "free some space and run the same command again"
            ) from error
        if isinstance(error, PermissionError) or error.errno in _FORBIDDEN:
            raise StoreAccessError(
                f"no permission to write {path}: {_reason(error)}; choose another place, or change its permissions"
            ) from error
        if error.errno in _IN_THE_WAY:
            raise StoreAccessError(
                f"cannot write {path}: {_reason(error)}; choose another place, or remove what is there"
            ) from error
        raise _unreachable(path, error) from error
    except Exception as error:
        raise _unreachable(path, error) from error


@contextlib.contextmanager
def reading_permitted(path: str) -> Iterator[None]:
    """Turn "permission denied" into an error that says so, because such a file is not damaged.

    Examples
    --------
    >>> with reading_permitted("/data/store/a"):
    ...     raise PermissionError(errno.EACCES, "Permission denied")
    Traceback (most recent call last):
    ...
    plmix_dist.errors.StoreAccessError: no permission to read /data/store/a: Permission denied; ...
    """
    try:
        yield
    except PlmixError:
        raise
    except NotADirectoryError:
        raise FileNotFoundError(errno.ENOENT, "there is no such file", path) from None
    except OSError as error:
        if isinstance(error, PermissionError) or error.errno in _FORBIDDEN:
            raise StoreAccessError(
                f"no permission to read {path}: {_reason(error)}; change its permissions, "
                "or run this as a user who may read it"
            ) from error
        if error.errno == errno.ELOOP:
            raise DamagedStoreError(f"{path} is a symbolic link, and links are not followed") from error
        raise _unreachable(path, error) from error
    except Exception as error:
        raise _unreachable(path, error) from error


def read_file(path: Path, most: int | None = None) -> bytes:
    """The bytes of a plain file; an error if it is a folder or a pipe, or has more than `most` bytes.

    Examples
    --------
    >>> read_file(Path(tempfile.mkdtemp()))
    Traceback (most recent call last):
    ...
    plmix_dist.errors.DamagedStoreError: ... is not a plain file
    """
    with reading_permitted(str(path)):
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):  # a pipe would wait for a writer forever
            raise DamagedStoreError(f"{path} is not a plain file")
        if most is not None and found.st_size > most:
            raise too_large(str(path), found.st_size, most)
        return path.read_bytes()


def too_large(path: str, size: int, most: int) -> DamagedStoreError:
    """The error for a file that is larger than it can be.

    Examples
    --------
    >>> print(too_large("model.json", 2_000, 1_000))
    model.json has 2,000 bytes, where at most 1,000 are expected
    """
    return DamagedStoreError(f"{path} has {size:,} bytes, where at most {most:,} are expected")


def check_folder(path: str) -> None:
    """An error unless files can be written in this folder, which need not exist yet. Nothing is left behind.

    Examples
    --------
    >>> check_folder(tempfile.mkdtemp() + "/new/folder")
    >>> check_folder("/dev/null/folder")
    Traceback (most recent call last):
    ...
    plmix_dist.errors.StoreAccessError: cannot write /dev/null/folder: /dev/null is not a folder; ...
    """
    with writing_explained(path, 0):
        nearest = Path(path)
        while not os.path.lexists(nearest):
            nearest = nearest.parent
        if not nearest.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, f"{nearest} is not a folder")
        with tempfile.TemporaryFile(dir=nearest):
            pass


def check_file(path: str) -> None:
    """An error unless a file can be written at this path.

    Examples
    --------
    >>> check_file(tempfile.mkdtemp())
    Traceback (most recent call last):
    ...
    plmix_dist.errors.StoreAccessError: cannot write ...: it is a folder; ...
    """
    with writing_explained(path, 0):
        if Path(path).is_dir():
            raise IsADirectoryError(errno.EISDIR, "it is a folder")
    check_folder(str(Path(path).absolute().parent))


def sync_folder(folder: Path) -> None:
    """Write renames in a folder to the disk, so that they survive a power cut.

    Examples
    --------
    >>> sync_folder(Path(tempfile.mkdtemp()))
    """
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _unreachable(path: str, error: Exception) -> Exception:
    """What to say of an error of remote storage: no answer, no connection, no credentials. Others stay as they are."""
    from_library = type(error).__module__.split(".")[0] in _REMOTE_LIBRARIES
    if "://" not in path or not (from_library or _is_of_connection(error)):
        return error
    return StoreAccessError(
        f"{path} cannot be reached: {error or type(error).__name__}; check the URL, the credentials and the network, "
        "and run this again"
    )


def _is_of_connection(error: Exception) -> bool:
    """Whether the operating system or fsspec says that the other side is away."""
    return isinstance(error, OSError) and not isinstance(error, FileNotFoundError | FileExistsError)


def _reason(error: OSError) -> str:
    return error.strerror or str(error) or type(error).__name__
