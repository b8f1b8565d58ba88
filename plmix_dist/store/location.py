"""Location: a folder on local disk, or any fsspec URL, where bytes are stored under keys."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import time
import uuid
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plmix_dist.errors import DamagedStoreError, SettingsError, StoreExistsError
from plmix_dist.store.access import (
    check_folder,
    read_file,
    reading_permitted,
    sync_folder,
    too_large,
    writing_explained,
)
from plmix_dist.store.remote import RemoteFiles
from plmix_dist.values import shown

if TYPE_CHECKING:
    from zarr.abc.store import Store

_REMOVAL_ATTEMPTS = 20
_KEY = re.compile(r"[A-Za-z0-9_.\-]+(/[A-Za-z0-9_.\-]+)*")


@dataclass(frozen=True)
class Location:
    """A root folder or URL. Keys are relative paths of plain names, so they cannot leave the root.

    Examples
    --------
    >>> import tempfile
    >>> place = Location.of(tempfile.mkdtemp())
    >>> place.write_bytes("a/b.json", b"{}")
    >>> place.read_bytes("a/b.json"), place.listing()
    (b'{}', ['a/b.json'])
    """

    url: str
    storage_options: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(
        cls, path: str | os.PathLike[str] | Location, storage_options: dict[str, Any] | None = None
    ) -> Location:
        """A location from a path, a URL, or a location.

        Examples
        --------
        >>> Location.of("file:///data/store/").url, Location.of("s3://bucket/store").is_local
        ('/data/store', False)
        """
        if isinstance(path, Location):
            return path
        if not isinstance(path, str | os.PathLike):
            raise SettingsError(f"a store or model needs a path or a URL, but got {shown(path)}")
        text = os.fspath(path)
        if not text:
            raise SettingsError("a store needs a path or a URL, but got an empty one")
        if text.startswith("file://"):
            text = text.removeprefix("file://")
        if "://" not in text:
            try:
                text = str(Path(text).expanduser().absolute())
            except RuntimeError as error:  # there is no such user
                raise SettingsError(f"{text} is no path: {error}") from None
        return cls(text.rstrip("/"), dict(storage_options or {}))

    @property
    def is_local(self) -> bool:
        """Whether this is a folder on local disk."""
        return "://" not in self.url

    def child(self, key: str) -> Location:
        """The location of a key below this one.

        Examples
        --------
        >>> Location.of("/data").child("a/b").url
        '/data/a/b'
        """
        return Location(f"{self.url}/{checked_key(key)}", self.storage_options)

    def sibling(self, suffix: str) -> Location:
        """The location whose name has this suffix added.

        Examples
        --------
        >>> Location.of("/data/store").sibling(".truth").url
        '/data/store.truth'
        """
        return Location(self.url + suffix, self.storage_options)

    @cached_property
    def _remote(self) -> RemoteFiles:
        """The file system behind the URL, and the root within it."""
        import fsspec

        try:
            filesystem, root = fsspec.core.url_to_fs(
                self.url, use_listings_cache=False, **self.storage_options
            )
        except (
            ValueError,
            ImportError,
            TypeError,
        ) as error:  # of an unknown or missing kind, or with other options
            raise SettingsError(
                f"{self.url} cannot be reached: {error}; check the URL and its options"
            ) from error
        return RemoteFiles(filesystem, root.rstrip("/"))

    def read_bytes(self, key: str, most: int | None = None) -> bytes:
        """The bytes stored under a key; FileNotFoundError if there are none.

        If there are more than `most`, that is an error, and they are not read.

        Examples
        --------
        >>> import tempfile
        >>> place = Location.of(tempfile.mkdtemp())
        >>> place.write_bytes("a.txt", b"tea")
        >>> place.read_bytes("a.txt")
        b'tea'
        """
        if self.is_local:
            path = self.local_path(key)
            if os.path.realpath(path) != os.path.join(os.path.realpath(self.url), *key.split("/")):  # noqa: PTH118
                raise DamagedStoreError(f"{path} is a symbolic link, and links are not followed")
            return read_file(path, most)
        files = self._remote
        path_there = f"{files.root}/{checked_key(key)}"
        with reading_permitted(f"{self.url}/{key}"):
            size = None if most is None else files.call("size", path_there)
            if most is not None and size is not None and size > most:
                raise too_large(f"{self.url}/{key}", size, most)
            return bytes(files.call("cat_file", path_there, n_bytes=size or 0))

    def write_bytes(self, key: str, data: bytes, *, seconds: float | None = None) -> None:
        """Store bytes under a key. A reader finds the old bytes or the new ones, never a part.

        Behind a URL it is an error if that takes longer than so many seconds; by default see `remote.py`.

        Examples
        --------
        >>> import tempfile
        >>> place = Location.of(tempfile.mkdtemp())
        >>> place.write_bytes("a.txt", b"tea")
        >>> place.write_bytes("a.txt", b"coffee")
        >>> place.read_bytes("a.txt")
        b'coffee'
        """
        with writing_explained(f"{self.url}/{key}", len(data)):
            if not self.is_local:
                files = self._remote
                there = f"{files.root}/{checked_key(key)}"
                files.call("pipe_file", there, data, n_bytes=len(data), seconds=seconds)
                return
            path = self.local_path(key)
            path.parent.mkdir(parents=True, exist_ok=True)
            draft = path.with_name(f"{path.name}.{uuid.uuid4().hex}.tmp")
            try:
                with draft.open("wb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                draft.replace(path)
            finally:
                draft.unlink(missing_ok=True)
            sync_folder(path.parent)

    def create_bytes(self, key: str, data: bytes) -> None:
        """Store bytes under a key that must be new; an error if it is there.

        Behind a URL the storage decides, where it can: S3, Google and Azure refuse the second of two writers.

        Examples
        --------
        >>> place = Location.of("memory://create")
        >>> place.create_bytes("a.txt", b"tea")
        >>> place.create_bytes("a.txt", b"coffee")
        Traceback (most recent call last):
        ...
        plmix_dist.errors.StoreExistsError: memory://create/a.txt exists already
        """
        there = StoreExistsError(f"{self.url}/{key} exists already")
        if self.is_local:
            if self.exists(key):
                raise there
            self.write_bytes(key, data)
            return
        files = self._remote
        try:
            with writing_explained(f"{self.url}/{key}", len(data)):
                path_there = f"{files.root}/{checked_key(key)}"
                files.call("pipe_file", path_there, data, n_bytes=len(data), mode="create")
        except (TypeError, NotImplementedError):  # a file system that does not know the mode
            self.write_bytes(key, data)
        except FileExistsError:
            # A request that was sent again after its answer was lost finds what it wrote itself.
            if self.read_bytes(key) != data:
                raise there from None

    def check_writable(self) -> None:
        """An error unless files can be written here; to be called before long computations.

        Examples
        --------
        >>> Location.of("/dev/null/store").check_writable()
        Traceback (most recent call last):
        ...
        plmix_dist.errors.StoreAccessError: cannot write /dev/null/store: /dev/null is not a folder; ...
        """
        if self.is_local:
            check_folder(self.url)
            return
        probe = f"wip/probe-{uuid.uuid4().hex}"
        self.write_bytes(probe, b"")
        self.remove(probe)

    def exists(self, key: str, *, seconds: float | None = None) -> bool:
        """Whether something is stored under a key. `seconds` as in `write_bytes`.

        Examples
        --------
        >>> import tempfile
        >>> Location.of(tempfile.mkdtemp()).exists("a.txt")
        False
        """
        with reading_permitted(f"{self.url}/{key}"):
            if self.is_local:
                return self.local_path(key).is_file()
            files = self._remote
            # Not `isfile`, which says no to every error.
            try:
                found = files.call("info", f"{files.root}/{checked_key(key)}", seconds=seconds)
            except FileNotFoundError:
                return False
            return bool(found["type"] == "file")

    def listing(self, prefix: str = "") -> list[str]:
        """All keys below a prefix, sorted. Symbolic links are listed, but not followed.

        Examples
        --------
        >>> import tempfile
        >>> place = Location.of(tempfile.mkdtemp())
        >>> for key in ("b/2", "b/1", "c"):
        ...     place.write_bytes(key, b"")
        >>> place.listing("b")
        ['b/1', 'b/2']
        """
        if prefix:
            checked_key(prefix)
        if self.is_local:
            root = Path(self.url)
            with reading_permitted(str(root / prefix)):
                found = [
                    (Path(folder) / name).relative_to(root).as_posix()
                    for folder, folders, names in os.walk(root / prefix, onerror=_forbidden)
                    for name in [*names, *(name for name in folders if (Path(folder) / name).is_symlink())]
                ]
            return sorted(found)
        files = self._remote
        with contextlib.suppress(FileNotFoundError), reading_permitted(f"{self.url}/{prefix}"):
            below = files.call("find", f"{files.root}/{prefix}" if prefix else files.root)
            return sorted(path.removeprefix(f"{files.root}/") for path in below)
        return []

    def names(self, *, folders: bool = False) -> list[str]:
        """The names of the files directly at this location, sorted, and with `folders` also those of the folders.

        Examples
        --------
        >>> import tempfile
        >>> place = Location.of(tempfile.mkdtemp())
        >>> for key in ("b/1", "c"):
        ...     place.write_bytes(key, b"")
        >>> place.names()
        ['c']
        """
        with contextlib.suppress(FileNotFoundError), reading_permitted(self.url):
            if self.is_local:
                with os.scandir(self.url) as entries:
                    return sorted(entry.name for entry in entries if folders or not entry.is_dir())
            files = self._remote
            found = files.call("ls", files.root, detail=True)
            return sorted(
                entry["name"].rstrip("/").rsplit("/", 1)[-1]
                for entry in found
                if entry["name"].rstrip("/") != files.root and (folders or entry["type"] == "file")
            )
        return []

    def remove(self, prefix: str) -> None:
        """Delete a key, or everything below a prefix.

        Examples
        --------
        >>> import tempfile
        >>> place = Location.of(tempfile.mkdtemp())
        >>> place.write_bytes("b/1", b"")
        >>> place.remove("b")
        >>> place.listing()
        []
        """
        checked_key(prefix)
        with writing_explained(f"{self.url}/{prefix}", 0):
            if self.is_local:
                path = self.local_path(prefix)
                if path.is_dir() and not path.is_symlink():
                    _remove_folder(path)
                else:
                    path.unlink(missing_ok=True)
                return
            files = self._remote
            with contextlib.suppress(FileNotFoundError):
                files.call("rm", f"{files.root}/{prefix}", recursive=True)

    def publish(self, staged: str, final: str) -> None:
        """Move what was written under `staged` to `final` in one step.

        On local disk everything is synced and then renamed. Behind a URL there is no rename: `staging` gave
        the final place itself, and the last key that the caller writes marks it as complete.

        Examples
        --------
        >>> import tempfile
        >>> place = Location.of(tempfile.mkdtemp())
        >>> staged = place.staging("done")
        >>> place.write_bytes(f"{staged}/a", b"")
        >>> place.publish(staged, "done")
        >>> place.listing()
        ['done/a']
        """
        if staged == final:
            return
        source, target = self.local_path(staged), self.local_path(final)
        with writing_explained(str(target), 0):
            for path in sorted(source.rglob("*")):
                if path.is_file():
                    with path.open("rb") as file:
                        os.fsync(file.fileno())
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                source.rename(target)
            except OSError:
                if not target.exists():
                    raise
                shutil.rmtree(source)  # another worker published the same a moment earlier
            sync_folder(target.parent)

    def staging(self, final: str) -> str:
        """The key to write under until `publish` moves everything to `final`.

        Examples
        --------
        >>> Location.of("/data").staging("partitions/p000000")
        'wip/partitions-p000000...'
        >>> Location.of("s3://bucket/store").staging("partitions/p000000")
        'partitions/p000000'
        """
        if not self.is_local:
            return final
        return f"wip/{final.replace('/', '-')}.{uuid.uuid4().hex[:12]}"

    def local_path(self, key: str) -> Path:
        """The path of a key on local disk.

        Examples
        --------
        >>> Location.of("/data").local_path("a/b").as_posix()
        '/data/a/b'
        """
        return Path(self.url) / checked_key(key)

    def zarr_store(self, prefix: str, *, read_only: bool) -> Store:
        """The Zarr store below a prefix.

        Examples
        --------
        >>> Location.of("/data").zarr_store("partitions/p000000", read_only=True)
        LocalStore('file:///data/partitions/p000000')
        """
        return self._zarr_store(self.child(prefix).url, read_only=read_only)

    def _zarr_store(self, url: str, *, read_only: bool) -> Store:
        import zarr.storage

        if self.is_local:
            return zarr.storage.LocalStore(url, read_only=read_only)
        options = {"use_listings_cache": False, **self.storage_options}
        return zarr.storage.FsspecStore.from_url(url, storage_options=options, read_only=read_only)

    def zarr_root(self) -> Store:
        """The Zarr store at this location itself, for writing.

        Examples
        --------
        >>> Location.of("/data/out").zarr_root()
        LocalStore('file:///data/out')
        """
        return self._zarr_store(self.url, read_only=False)

    def __reduce__(self) -> tuple[Any, ...]:
        return Location, (self.url, self.storage_options)


def _forbidden(error: OSError) -> None:
    """Stop a listing at a folder that may not be read. One that is not there has no keys."""
    if isinstance(error, PermissionError):
        raise error


def _remove_folder(path: Path) -> None:
    """Delete a folder, even while a worker that is still running adds files to it or removes them."""
    for attempt in range(_REMOVAL_ATTEMPTS):
        try:
            shutil.rmtree(path)
        except FileNotFoundError:
            if not path.exists():
                return
        except OSError as error:
            if error.errno != errno.ENOTEMPTY or attempt == _REMOVAL_ATTEMPTS - 1:
                raise
        else:
            return
        time.sleep(0.05)


def checked_key(key: str) -> str:
    """The key itself if it consists of plain names; an error if it could leave its root.

    Examples
    --------
    >>> checked_key("partitions/p000000")
    'partitions/p000000'
    >>> checked_key("../etc")
    Traceback (most recent call last):
    ...
    plmix_dist.errors.SettingsError: '../etc' is not a key of a store: ...
    """
    if not _KEY.fullmatch(key) or ".." in key.split("/"):
        raise SettingsError(
            f"{key!r} is not a key of a store: use names of letters, digits, '_', '-' and '.' only"
        )
    return key
