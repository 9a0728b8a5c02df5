import errno
import os
from pathlib import Path

import pytest

from layerscope.atomic import new_file, replace_files


def files(folder: Path) -> dict[str, bytes]:
    """Every file of a folder and its content."""
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_files_replace_older_ones(tmp_path: Path) -> None:
    """All new files are in place afterwards, and nothing else is."""
    (tmp_path / "a").write_bytes(b"old")
    replace_files(tmp_path, {"a": b"new", "b": b"other"})
    assert files(tmp_path) == {"a": b"new", "b": b"other"}


def test_a_failed_write_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the second file cannot be written, the first stays the old one as well."""
    (tmp_path / "a").write_bytes(b"old")
    synced: list[int] = []

    def fsync(descriptor: int) -> None:
        synced.append(descriptor)
        if len(synced) == 2:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(OSError, match="No space left"):
        replace_files(tmp_path, {"a": b"new", "b": b"other"})
    assert files(tmp_path) == {"a": b"old"}


def test_a_new_file_is_there_once_it_is_whole(tmp_path: Path) -> None:
    """Until the block ends there is the old one, and after it nothing but the new."""
    path = tmp_path / "a"
    path.write_bytes(b"old")
    with new_file(path) as file:
        file.write(b"new")
        assert path.read_bytes() == b"old"
    assert files(tmp_path) == {"a": b"new"}


def test_a_file_that_failed_is_not_there(tmp_path: Path) -> None:
    """Whatever the block raises leaves things as they were."""
    path = tmp_path / "a"

    def fail() -> None:
        with new_file(path) as file:
            file.write(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert files(tmp_path) == {}
