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
from typing import IO, TYPE_CHECKING, Any, TypeAlias

from plmix_dist.errors import DamagedStoreError, SettingsError, StoreExistsError
from plmix_dist.settings import shown
from plmix_dist.store import access, sealed

if TYPE_CHECKING:
    from zarr.abc.store import Store

AnyPath: TypeAlias = str | os.PathLike[str]
_REMOVAL_ATTEMPTS = 20
_KEY = re.compile(r"[A-Za-z0-9_.\-]+(/[A-Za-z0-9_.\-]+)*")


@dataclass(frozen=True)
class Location:
    """A root folder or URL. Keys are relative paths of plain names, so they cannot leave the root."""

    url: str
    storage_options: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, path: AnyPath | Location, storage_options: dict[str, Any] | None = None) -> Location:
        """A location from a path, a URL, or a location."""
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
            except RuntimeError as error:  # the user does not exist
                raise SettingsError(f"{text} is not a path: {error}") from None
        return cls(text.rstrip("/"), dict(storage_options or {}))

    @property
    def is_local(self) -> bool:
        """Whether this is a folder on local disk."""
        return "://" not in self.url

    def child(self, key: str) -> Location:
        """The location of a key below this one."""
        return Location(f"{self.url}/{_checked_key(key)}", self.storage_options)

    def sibling(self, suffix: str) -> Location:
        """The location whose name has this suffix added."""
        return Location(self.url + suffix, self.storage_options)

    @cached_property
    def _remote(self) -> access.RemoteFiles:
        """The file system behind the URL, and the root within it."""
        return access.remote_files(self.url, use_listings_cache=False, **self.storage_options)

    def _remote_path(self, key: str) -> str:
        """The path of a key in the file system behind the URL."""
        return f"{self._remote.root}/{_checked_key(key)}"

    def read_bytes(self, key: str, most: int = sealed.LARGEST_JSON) -> bytes:
        """The bytes stored under a key; FileNotFoundError if there are none.

        If there are more than `most`, that is an error, and they are not read. Records of JSON are never larger.
        """
        if self.is_local:
            return access.read_file(self._unlinked(key), most)
        files = self._remote
        path_there = self._remote_path(key)
        with access.reading_permitted(f"{self.url}/{key}"):
            size = files.call("size", path_there)
            if size is not None and size > most:
                raise access.too_large(f"{self.url}/{key}", size, most)
            return bytes(files.call("cat_file", path_there, n_bytes=size or 0))

    def read_start(self, key: str, n_bytes: int) -> bytes:
        """The first bytes stored under a key, at most `n_bytes`; FileNotFoundError if there are none."""
        if self.is_local:
            return access.read_file(self._unlinked(key), start=n_bytes)
        with access.reading_permitted(f"{self.url}/{key}"):
            return bytes(self._remote.call("cat_file", self._remote_path(key), n_bytes=n_bytes, start=0, end=n_bytes))

    def open_file(self, key: str) -> IO[bytes]:
        """A file behind a URL opened for reading parts of it, each of which takes a limited time."""
        return self._remote.open(self._remote_path(key))

    def _unlinked(self, key: str) -> Path:
        """The path of a key on local disk; an error if it leads through a symbolic link."""
        path = self.local_path(key)
        if os.path.realpath(path) != os.path.join(os.path.realpath(self.url), *key.split("/")):  # noqa: PTH118
            raise DamagedStoreError(f"{path} is a symbolic link, and links are not followed")
        return path

    def write_bytes(self, key: str, data: bytes, *, seconds: float | None = None) -> None:
        """Store bytes under a key. A reader finds the old bytes or the new ones, never a part.

        Behind a URL it is an error if that takes longer than `seconds`; by default see `storage_seconds`.
        """
        if self.is_local:
            access.write_whole(self.local_path(key), data)
            return
        with access.writing_explained(f"{self.url}/{key}", len(data)):
            self._remote.call("pipe_file", self._remote_path(key), data, n_bytes=len(data), seconds=seconds)

    def create_bytes(self, key: str, data: bytes) -> None:
        """Store bytes under a key that must be new; an error if it is there.

        Behind a URL the storage decides, where it can: S3, Google and Azure refuse the second of two writers.
        """
        there = StoreExistsError(f"{self.url}/{key} exists already")
        if self.is_local:
            if self.exists(key):
                raise there
            self.write_bytes(key, data)
            return
        try:
            with access.writing_explained(f"{self.url}/{key}", len(data)):
                self._remote.call("pipe_file", self._remote_path(key), data, n_bytes=len(data), mode="create")
        except (TypeError, NotImplementedError):  # a file system that does not know the mode
            self.write_bytes(key, data)
        except FileExistsError:
            # A request that was sent again after its answer was lost finds what it wrote itself.
            if self.read_bytes(key, max(len(data), sealed.LARGEST_JSON)) != data:
                raise there from None

    def check_writable(self) -> None:
        """An error unless files can be written here; to be called before long computations."""
        if self.is_local:
            access.check_folder(self.url)
            return
        probe = f"wip/probe-{uuid.uuid4().hex}"
        self.write_bytes(probe, b"")
        self.remove(probe)

    def exists(self, key: str, *, seconds: float | None = None) -> bool:
        """Whether something is stored under a key. `seconds` as in `write_bytes`."""
        with access.reading_permitted(f"{self.url}/{key}"):
            if self.is_local:
                return self.local_path(key).is_file()
            return self._remote.is_file(self._remote_path(key), seconds)

    def listing(self, prefix: str = "") -> list[str]:
        """All keys below a prefix, sorted. Symbolic links are listed, but not followed."""
        if prefix:
            _checked_key(prefix)
        if self.is_local:
            root = Path(self.url)
            with access.reading_permitted(str(root / prefix)):
                found = [
                    (Path(folder) / name).relative_to(root).as_posix()
                    for folder, folders, names in os.walk(root / prefix, onerror=_forbidden)
                    for name in [*names, *(name for name in folders if (Path(folder) / name).is_symlink())]
                ]
            return sorted(found)
        files = self._remote
        with contextlib.suppress(FileNotFoundError), access.reading_permitted(f"{self.url}/{prefix}"):
            below = files.call("find", f"{files.root}/{prefix}" if prefix else files.root)
            return sorted(path.removeprefix(f"{files.root}/") for path in below)
        return []

    def names(self, *, folders: bool = False) -> list[str]:
        """The names of the files directly at this location, sorted, and with `folders` also those of the folders."""
        with contextlib.suppress(FileNotFoundError), access.reading_permitted(self.url):
            if self.is_local:
                with os.scandir(self.url) as entries:
                    return sorted(entry.name for entry in entries if folders or not entry.is_dir())
            files = self._remote
            found = {entry["name"].rstrip("/"): entry["type"] for entry in files.call("ls", files.root, detail=True)}
            wanted = (path for path, kind in found.items() if path != files.root and (folders or kind == "file"))
            return sorted(path.rsplit("/", 1)[-1] for path in wanted)
        return []

    def remove(self, prefix: str, *, seconds: float | None = None) -> None:
        """Delete a key, or everything below a prefix. `seconds` as in `write_bytes`."""
        _checked_key(prefix)
        with access.writing_explained(f"{self.url}/{prefix}", 0):
            if self.is_local:
                path = self.local_path(prefix)
                if path.is_dir() and not path.is_symlink():
                    _remove_folder(path)
                else:
                    path.unlink(missing_ok=True)
                return
            with contextlib.suppress(FileNotFoundError):
                self._remote.call("rm", self._remote_path(prefix), recursive=True, seconds=seconds)

    def publish(self, staged: str, final: str) -> None:
        """Move what was written under `staged` to `final` in one step.

        On local disk everything is synced and then renamed. Behind a URL nothing can be renamed: `staging` gave
        the final place itself, and the last key that the caller writes marks it as complete.
        """
        if staged == final:
            return
        source, target = self.local_path(staged), self.local_path(final)
        with access.writing_explained(str(target), 0):
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
            access.sync_folder(target.parent)

    def staging(self, final: str) -> str:
        """The key to write under until `publish` moves everything to `final`."""
        if not self.is_local:
            return final
        return f"wip/{final.replace('/', '-')}.{uuid.uuid4().hex[:12]}"

    def local_path(self, key: str) -> Path:
        """The path of a key on local disk."""
        return Path(self.url) / _checked_key(key)

    def zarr_store(self, prefix: str, *, read_only: bool) -> Store:
        """The Zarr store below a prefix."""
        import zarr.storage

        url = self.child(prefix).url
        if self.is_local:
            return zarr.storage.LocalStore(url, read_only=read_only)
        options = {"use_listings_cache": False, **self.storage_options}
        return zarr.storage.FsspecStore.from_url(url, storage_options=options, read_only=read_only)

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


def _checked_key(key: str) -> str:
    """The key itself if it consists of plain names; an error if it could leave its root."""
    if not _KEY.fullmatch(key) or ".." in key.split("/"):
        raise SettingsError(f"{key!r} is not a key of a store: use names of letters, digits, '_', '-' and '.' only")
    return key
