"""Writes a site. A file whose content would be the same stays; manifest.json says which files are of the site."""

import hashlib
import json
import os
import re
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal, TypedDict
from xml.sax.saxutils import escape, quoteattr

from blkreel.analysis.charts.model import Page
from blkreel.analysis.charts.theme import NO_BRAND, Brand
from blkreel.analysis.metrics.definitions.registry import metric_of
from blkreel.analysis.report.drives_file import DrivesFile
from blkreel.analysis.report.html import rendering
from blkreel.benchmarks.catalog import Catalog
from blkreel.benchmarks.catalog.stored import code_of
from blkreel.benchmarks.catalog.tables import checksum_of
from blkreel.common.errors import UsageError
from blkreel.common.files.output_lock import directory_locked
from blkreel.common.files.safe_files import directory_at, file_name, read_plain, unlink, write_file
from blkreel.common.files.typed_document import parse_typed
from blkreel.common.printable import printable, within_sentence
from blkreel.common.progress import Progress
from blkreel.traces.format.writer import output_error

from . import embed, pages
from .content import Content, content_of
from .pages import FEED, drive_path

MANIFEST = "manifest.json"
_FORMAT, _VERSION = "blkreel site", 1
_PART = re.compile(r"[a-z0-9][A-Za-z0-9@._-]*")
_DIRECTORIES = ("assets", "drives", "embed", "pairs", "results", "workloads")
_Make = Callable[[], Mapping[str, bytes]]


class _File(TypedDict):
    """inputs: hash of all that its content depends on. sha256, bytes: of its content."""

    inputs: str
    sha256: str
    bytes: int


class _Manifest(TypedDict):
    format: Literal["blkreel site"]
    version: int
    files: dict[str, _File]


@dataclass(frozen=True)
class Built:
    """files: of the site. written, removed: of these, by this build. edited: files that somebody changed, and that
    would have been removed. left_out: why -> number of results."""

    content: Content
    files: int
    written: int
    removed: int
    edited: tuple[str, ...]
    left_out: Mapping[str, int]


@dataclass(frozen=True)
class _Job:
    """Files that are made together. inputs: a hash of all that their content depends on."""

    names: tuple[str, ...]
    inputs: str
    make: _Make


def build(catalog: Catalog, directory: Path, *, title: str = "Drives", url: str = "", brand: Brand = NO_BRAND,
          drives_file: DrivesFile | None = None) -> Built:
    """Write the site of a catalog to a directory: a new one, an empty one, or an earlier site.

    url: where it will stand, for the feed. Raises UsageError for a directory with other content and for an empty
    catalog, OutputInUse while another command builds it, BlkreelError if it cannot be written. After a kill the next
    build completes the site.
    """
    content = content_of(catalog.result_table().to_pylist(), catalog.metric_table(), drives_file)
    if not content.results:
        raise UsageError(f"{catalog.directory} has no results", "add some: blkreel results add RUN")
    try:
        with directory_at(directory, create=True):
            pass
        with directory_locked(directory):
            return _build(content, directory, _jobs(catalog, content, title, url, brand), catalog.progress)
    except NotADirectoryError:
        raise _no_site(directory) from None
    except OSError as error:
        raise output_error(directory, error) from error


def _build(content: Content, directory: Path, jobs: list[_Job], progress: Progress) -> Built:
    before = _manifest(directory)
    planned = {name: job.inputs for job in jobs for name in job.names}
    done: dict[str, _File] = {
        name: entry for name, entry in before.items()
        if planned.get(name) == entry["inputs"] and _size(directory / name) == entry["bytes"]}
    missing = [job for job in jobs if not all(name in done for name in job.names)]
    written, removed, edited = 0, 0, []
    if missing or set(before) != set(planned):
        # Until the end it has the files of both sites, so that after a kill they are known to be of the site. Those
        # that will be written are of unknown content: an old checksum would make the next build pass them over.
        unknown: dict[str, _File] = {name: {"inputs": "", "sha256": "", "bytes": 0}
                                     for name in planned if name not in done}
        _write_manifest(directory, {**before, **unknown})
    with progress("making pages", len(missing)) as task:
        for number, job in enumerate(missing, 1):
            for name, file in job.make().items():
                checksum = hashlib.sha256(file).hexdigest()
                if name not in before or before[name]["sha256"] != checksum or _size(directory / name) != len(file):
                    write_file(directory / name, file, force=True, sync=False)
                    written += 1
                done[name] = {"inputs": job.inputs, "sha256": checksum, "bytes": len(file)}
            task.update(number)
    for name in sorted(set(before) - set(planned)):
        if before[name]["sha256"] and checksum_of(directory / name) not in ("", before[name]["sha256"]):
            edited.append(name)
        elif (directory / name).exists():
            unlink(directory / name)
            removed += 1
    if written or removed or done != before:
        _write_manifest(directory, done)
    return Built(content, len(planned), written, removed, tuple(edited), content.left_out)


def _jobs(catalog: Catalog, content: Content, title: str, url: str, brand: Brand) -> list[_Job]:
    shared = {name: text.encode() for name, text in rendering.shared_files().items()}
    suffixes = {"styles": "css", "library": "js", "program": "js"}
    names = {name: f"assets/{name}-{hashlib.sha256(text).hexdigest()[:12]}.{suffixes[name]}"
             for name, text in shared.items()}
    made_by = _hash(sorted(names.values()), code_of("analysis/charts", "analysis/report", "benchmarks/site"))
    jobs: list[_Job] = []

    def add(name: str, inputs: str, content_of_file: Callable[[], bytes]) -> None:
        jobs.append(_Job((name,), inputs, lambda: {name: content_of_file()}))

    def add_page(name: str, page: Page) -> None:
        up = "../" * name.count("/")
        assets = rendering.Assets(*(up + names[asset] for asset in ("styles", "library", "program")))
        add(name, _hash(made_by, page), lambda: rendering.render_page(page, assets).encode())

    def add_charted(name: str, stem: str, page: Page) -> None:
        """A page, and the chart of its first section as files to embed."""
        add_page(name, page)
        chart = page.sections[0].charts[0]
        make = embed.files_of(page, chart)
        jobs.append(_Job(tuple(stem + suffix for suffix in embed.forms_of(chart)),
                         _hash(made_by, page.sections[0], page.brand),
                         lambda: {stem + suffix: file for suffix, file in make().items()}))

    for name, text in shared.items():
        add(names[name], "asset", partial(bytes, text))
    maker = pages.Maker(content, title, brand)
    if content.columns:
        add_charted(pages.INDEX, pages.OVERVIEW_STEM, maker.index())
    else:
        add_page(pages.INDEX, maker.index())
    for drive in content.drives:
        add_page(pages.drive_path(drive), maker.drive(drive))
    for condition in content.conditions:
        add_charted(pages.condition_path(condition), pages.condition_stem(condition), maker.condition(condition))
    for base, other_drive in maker.pairs:
        add_page(pages.pair_path(base, other_drive), maker.pair(base, other_drive))
    feed = feed_of(content, title, url).encode()
    add(FEED, hashlib.sha256(feed).hexdigest(), partial(bytes, feed))
    for id_, row in content.results.items():
        add(pages.result_path(id_), row["file_sha256"], partial(read_plain, catalog.path_of(id_)))
    return jobs


def _hash(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def _no_site(directory: Path) -> UsageError:
    return UsageError(f"{directory} exists and is not a site", "name another output")


def _manifest(directory: Path) -> dict[str, _File]:
    """The files of an earlier site; empty of a new one. Raises UsageError for other content and a damaged manifest."""
    path = directory / MANIFEST
    try:
        text = read_plain(path)
    except FileNotFoundError:
        if any(directory.iterdir()):
            raise _no_site(directory) from None
        return {}
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}", f"ls -l {path}") from None
    try:
        document = parse_typed(text, _Manifest)
        if link := next((name for name in _DIRECTORIES if (directory / name).is_symlink()), None):
            raise ValueError(f"{link} is a symbolic link, which could lead elsewhere")
        if document["version"] != _VERSION:
            raise ValueError(f"version {document['version']}, not {_VERSION}")
        if stray := next((name for name in document["files"] if not _is_of_a_site(name)), None):
            raise ValueError(f"files.{stray} is not of a site")
    except ValueError as error:
        raise UsageError(f"{path} is damaged: {error}", f"remove the site and build it again: rm -r {directory}"
                         ) from None
    return document["files"]


def _is_of_a_site(name: str) -> bool:
    """Whether a name can be of a site, so that an edited manifest removes nothing else. May raise ValueError."""
    if name in (pages.INDEX, pages.FEED):
        return True
    directory, _, file = name.partition("/")
    return directory in _DIRECTORIES and file_name(file, _PART) == file


def _write_manifest(directory: Path, files: Mapping[str, _File]) -> None:
    text = json.dumps({"format": _FORMAT, "version": _VERSION, "files": dict(sorted(files.items()))}, indent=0)
    write_file(directory / MANIFEST, text + "\n", force=True)


def _size(path: Path) -> int:
    """-1 for no plain file."""
    try:
        return os.lstat(path).st_size
    except OSError:
        return -1


MOST_ENTRIES = 50
_SINCE_EVER = "1970-01-01T00:00:00Z"
_DATE_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")


def feed_of(content: Content, title: str, url: str) -> str:
    """url: where the site will stand, with a slash behind it; "" if unknown: then links are relative to the feed.

    The newest first. Results without a date are left out. Ids are those of the results, so that a reader sees each of
    them once.
    """
    drives = {drive.label: drive for drive in content.drives}
    rows = [row for row in content.results.values() if _DATE_TIME.fullmatch(row["started_at"] or "")]
    # Without an address, what makes sites of one title differ and stays when results are added.
    identity = url or " ".join([title, *(row["id"] for row in rows[:1])])
    rows = rows[:-MOST_ENTRIES - 1:-1]
    entries = []
    for row in rows:
        metric = metric_of(row["headline"] or "", row["headline_unit"] or "", "")
        value = row["headline_value"]
        value = f", {metric.unit.text(value)} ({within_sentence(metric.title)})" if value else ""
        what = f"{row['label']}: {row['workload_title'] or row['workload_name']}{value}"
        detail = " · ".join(filter(None, (row["pace"], row["state"], row["verdict"], row["firmware"])))
        entries.append(f"""<entry>
<id>urn:blkreel:result:{escape(row["id"])}</id>
<title>{escape(printable(what))}</title>
<updated>{row["started_at"]}</updated>
<link href={quoteattr(url + drive_path(drives[row["label"]]))}/>
<summary>{escape(printable(detail))}</summary>
</entry>""")
    links = f"<link href={quoteattr(url or './')}/>"
    if url:
        links += f'\n<link rel="self" href={quoteattr(url + FEED)}/>'
    updated = rows[0]["started_at"] if rows else _SINCE_EVER
    return "\n".join((
        '<?xml version="1.0" encoding="utf-8"?>', '<feed xmlns="http://www.w3.org/2005/Atom">',
        f"<id>urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, identity)}</id>",
        f"<title>{escape(printable(title))}</title>", f"<updated>{updated}</updated>",
        "<author><name>blkreel</name></author>", links, *entries, "</feed>", ""))
