# SPDX-License-Identifier: Apache-2.0
"""Checks of paths that programs make before they read or write."""
import os
import shutil
from torch_npu._errors import refused


class PathManager:
    """RuntimeError, with the path and the reason, for what cannot be used. Links are refused."""

    MAX_PATH_LENGTH = 4096
    MAX_FILE_NAME_LENGTH = 255
    DATA_FILE_AUTHORITY = 0o640
    DATA_DIR_AUTHORITY = 0o750

    @classmethod
    def _check(cls, path):
        if not isinstance(path, str) or not path or "\0" in path:
            raise refused(RuntimeError(f"{path!r} is no path: it must be a text that is not empty"))
        if len(path) > cls.MAX_PATH_LENGTH or len(os.path.basename(path)) > cls.MAX_FILE_NAME_LENGTH:
            raise refused(RuntimeError(f"{path[:80]!r}... is too long for a path"))
        if os.path.islink(os.path.abspath(path)):
            raise refused(RuntimeError(f"{path} is a link; name what it leads to"))

    @classmethod
    def _check_access(cls, path, mode, what):
        cls._check(path)
        if not os.access(path, mode):
            raise refused(RuntimeError(f"{path} {'cannot be ' + what if os.path.exists(path) else 'does not exist'}"))

    @classmethod
    def check_input_directory_path(cls, path):
        cls._check(path)
        if os.path.isfile(path):
            raise refused(RuntimeError(f"{path} is a file, not a folder"))

    @classmethod
    def check_input_file_path(cls, path):
        cls._check(path)
        if os.path.isdir(path):
            raise refused(RuntimeError(f"{path} is a folder, not a file"))

    @classmethod
    def check_directory_path_writeable(cls, path):
        cls._check_access(path, os.W_OK, "written")

    @classmethod
    def check_directory_path_readable(cls, path):
        cls._check_access(path, os.R_OK, "read")

    check_path_is_readable = check_directory_path_readable
    check_path_is_writeable = check_directory_path_writeable

    @classmethod
    def remove_path_safety(cls, path):
        cls._check(path)
        if os.path.isdir(path):
            shutil.rmtree(path)

    @classmethod
    def remove_file_safety(cls, file):
        cls._check(file)
        if os.path.isfile(file):
            os.remove(file)

    @classmethod
    def make_dir_safety(cls, path):
        cls._check(path)
        os.makedirs(path, mode=cls.DATA_DIR_AUTHORITY, exist_ok=True)

    @classmethod
    def create_file_safety(cls, path):
        cls._check(path)
        if not os.path.exists(path):
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT, cls.DATA_FILE_AUTHORITY))
