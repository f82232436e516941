"""The Atom feed of a site (RFC 4287): its newest results."""

import re
import uuid
from xml.sax.saxutils import escape, quoteattr

from blkreel.analysis.metrics.definitions.registry import metric_of
from blkreel.common.printable import printable, within_sentence

from .content import Content
from .pages import FEED, drive_path

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
