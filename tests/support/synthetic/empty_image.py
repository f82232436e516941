"""Image files without data, to replay on."""

import os


def empty_image(path, size_bytes):
    path.touch()
    os.truncate(path, 0)
    os.truncate(path, size_bytes)
    return path
