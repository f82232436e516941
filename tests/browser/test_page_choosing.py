"""What a reader chooses: drive under test, neighbors, classes, a stretch of time; and the link that keeps it."""

import pytest
from page_reader import settle, show

pytestmark = pytest.mark.browser

INK = {"light": {"accent": "#b8400e", "plain": "#4b6076"}}
NAMES = ["WD Black SN710", "Samsung SN720", "Crucial SN730", "Kioxia SN740", "Solidigm SN750", "Corsair SN760",
         "Sabrent SN770", "Micron SN780"]


def marked_rows(page):
    return page.locator("table[id]:not(.definitions) tr.marked").evaluate_all(
        "rows => [...new Set(rows.map((row) => row.dataset.entry))]")


def dots(page, chart="s0-wait"):
    """Colors of a ranking's dots, from the top."""
    return page.locator(f"[data-chart={chart}] .mark-symbol path").evaluate_all(
        "all => all.map((mark) => mark.getAttribute('fill'))")


def names_in(page, chart="s0-wait"):
    return page.locator(f"[data-chart={chart}] .role-axis-label text").evaluate_all(
        "all => all.map((text) => text.textContent).filter((text) => /[a-z]/.test(text))")


def listed(page):
    return page.locator("#drives-table tbody tr:visible").evaluate_all("rows => rows.map((row) => row.dataset.entry)")


def test_the_drive_under_test_is_marked_in_every_table_and_chart(eight):
    assert marked_rows(eight) == ["Crucial SN730"]
    eight.get_by_label("Drive under test").select_option("Kioxia SN740")
    settle(eight)
    assert marked_rows(eight) == ["Kioxia SN740"]
    for chart in ("s0-wait", "s0-read-throughput"):
        colors, names = dots(eight, chart), names_in(eight, chart)
        assert [name for name, color in zip(names, colors, strict=True) if color == INK["light"]["accent"]] == [
            "Kioxia SN740"]
    assert "highlight=Kioxia" in eight.url
    # None at all is a choice too.
    eight.get_by_label("Drive under test").select_option("")
    settle(eight)
    assert marked_rows(eight) == [] and set(dots(eight)) == {INK["light"]["plain"]}
    assert eight.get_by_role("button", name="Only its neighbors").is_disabled()


def test_a_click_on_a_name_in_a_table_or_on_a_mark_chooses_that_drive(eight):
    eight.locator("#drives-table").get_by_role("button", name="Micron SN780").click()
    settle(eight)
    assert marked_rows(eight) == ["Micron SN780"]
    chart = eight.locator("[data-chart=s0-wait]")
    chart.scroll_into_view_if_needed()
    chart.locator(".mark-symbol path").nth(3).click()
    settle(eight)
    assert marked_rows(eight) == [names_in(eight)[3]]
    chart.locator(".role-axis-label text", has_text="Sabrent SN770").click()
    settle(eight)
    assert marked_rows(eight) == ["Sabrent SN770"]


def test_the_list_collapses_to_neighbors_in_tables_and_charts_alike(eight):
    eight.get_by_label("Drive under test").select_option("Corsair SN760")
    eight.get_by_role("button", name="Only its neighbors").click()
    settle(eight)
    near = NAMES[3:7]  # the last has no rank
    assert listed(eight) == near
    assert names_in(eight) == near
    assert eight.locator("#s0-wait-table tbody tr:not([hidden])").count() == 4
    # Rows of the timeline go with their drives; the strip to drag in stays.
    titles = eight.locator("[data-chart=s0-timeline] .role-title-text text").all_text_contents()
    assert titles == NAMES[3:6]
    assert eight.locator("#status").inner_text() == "4 of 8 drives shown"
    # The first of all names the ninth as its predecessor, which is not here: only ranks are beside it.
    eight.get_by_label("Drive under test").select_option(NAMES[0])
    settle(eight)
    assert listed(eight) == NAMES[:3]
    eight.get_by_role("button", name="Show all 8").click()
    settle(eight)
    assert listed(eight) == NAMES and len(names_in(eight)) == 7


def test_filters_by_class_tell_counts_and_thin_tables_and_charts(eight):
    eight.locator(".filters > summary").click()
    box = eight.get_by_role("checkbox", name="TLC (3)")
    box.check()
    settle(eight)
    kept = [NAMES[0], NAMES[3], NAMES[6]]
    assert listed(eight) == kept and names_in(eight) == kept
    eight.get_by_role("checkbox", name="SATA (2)").check()
    settle(eight)
    assert listed(eight) == [NAMES[3]]
    assert eight.locator(".filters > summary").inner_text().startswith("Filters (2)")
    eight.keyboard.press("Escape")
    assert not eight.get_by_role("checkbox", name="TLC (3)").is_visible()
    # The second drive has no wait time: with it alone its chart has nothing to show, and says so.
    show(eight, "is.firmware=x&is.flash=QLC&is.interface=PCIe+4.0+x4&search=samsung")
    assert listed(eight) == ["Samsung SN720"]


def test_a_chart_without_any_of_the_shown_drives_says_so(eight):
    show(eight, "is.class=enterprise&is.flash=TLC")
    assert listed(eight) == []
    assert "None of the drives shown has data here." in eight.locator("[data-chart=s0-wait]").inner_text()
    assert eight.locator("#status").inner_text() == "0 of 8 drives shown"


def zoomed(page):
    """From and to of the timeline's fields, and the ticks of its first row."""
    fields = page.get_by_role("group", name="Zoom of Reads over writes").get_by_role("spinbutton")
    axis = page.locator("[data-chart=s0-timeline] .concat_0_group .role-axis[class*=role-axis] .role-axis-label text")
    ticks = [float(text) for text in axis.all_text_contents() if text.replace(".", "").isdigit() and float(text) < 60]
    return [float(fields.nth(index).input_value()) for index in range(2)], ticks


def test_zoom_by_dragging_and_by_keyboard_is_the_same(eight):
    group = eight.get_by_role("group", name="Zoom of Reads over writes")
    chart = eight.locator("[data-chart=s0-timeline]")
    chart.evaluate("node => node.scrollIntoView({ block: 'end' })")
    strip = chart.locator("svg g[class*=concat_6_group] path.background").first.bounding_box()
    y = strip["y"] + strip["height"] / 2
    eight.mouse.move(strip["x"] + strip["width"] * .25, y)
    eight.mouse.down()
    eight.mouse.move(strip["x"] + strip["width"] * .5, y, steps=6)
    eight.mouse.up()
    settle(eight)
    (low, high), ticks = zoomed(eight)
    assert 1.3 < low < 1.7 and 2.7 < high < 3.2
    assert "zoom.s0-timeline=" in eight.url
    group.get_by_role("spinbutton", name="From").fill("2")
    group.get_by_role("spinbutton", name="to").fill("4")
    eight.keyboard.press("Tab")
    settle(eight)
    assert zoomed(eight)[0] == [2, 4] and "zoom.s0-timeline=2~4" in eight.url.replace("%7E", "~")
    line = chart.locator(".concat_0_group .mark-area path").first.get_attribute("d")
    group.get_by_role("button", name="Zoom in").press("Enter")
    settle(eight)
    assert zoomed(eight)[0] == [2.5, 3.5]
    assert chart.locator(".concat_0_group .mark-area path").first.get_attribute("d") != line
    group.get_by_role("button", name="Later").press("Space")
    settle(eight)
    assert zoomed(eight)[0] == [3, 4]
    group.get_by_role("button", name="Show all").press("Enter")
    settle(eight)
    assert zoomed(eight)[0] == [0, 5.9] and "zoom" not in eight.url


def view_of(page):
    return page.evaluate("""() => ({
        rows: [...document.querySelectorAll("table[id]:not(.definitions) tbody tr:not([hidden])")]
            .map((row) => row.textContent),
        marked: document.querySelectorAll("tr.marked").length,
        open: [...document.querySelectorAll("details.behind[open]")].map((each) => each.id),
        fields: [...document.querySelectorAll("input, select")]
            .map((each) => (["checkbox", "radio"].includes(each.type) ? each.checked : each.value)),
        sorts: [...document.querySelectorAll("th[aria-sort]")].map((each) => each.getAttribute("aria-sort")),
        theme: document.documentElement.dataset.theme ?? "auto",
        marks: document.querySelectorAll("[data-chart] svg path").length,
        button: document.querySelector("#near").textContent,
    })""")


def test_a_link_brings_back_the_whole_view(eight, reader, made_pages):
    eight.get_by_label("Drive under test").select_option("Kioxia SN740")
    eight.get_by_role("button", name="Only its neighbors").click()
    eight.locator(".filters > summary").click()
    eight.get_by_role("checkbox", name="consumer (7)").check()
    eight.keyboard.press("Escape")
    eight.get_by_role("searchbox").fill("sn7")
    eight.locator("#s0-read-tail-behind > summary").click()
    eight.locator("#s0-read-tail-table th[data-key=p99_ns] button.sort").click()
    eight.get_by_role("group", name="Zoom of").get_by_role("spinbutton", name="From").fill("1.5")
    eight.keyboard.press("Tab")
    eight.get_by_text("Dark", exact=True).click()
    settle(eight)
    settle(eight)
    wanted = view_of(eight)
    assert wanted["theme"] == "dark" and wanted["open"] == ["s0-read-tail-behind"] and "ascending" in wanted["sorts"]
    again = reader.open(made_pages[8], view=eight.url.split("#", 1)[1])
    assert view_of(again) == wanted
    assert again.url == eight.url
    again.evaluate("() => { navigator.clipboard.writeText = async (text) => { window.copied = text; }; }")
    again.get_by_role("button", name="Copy link").click()
    again.wait_for_function("window.copied")
    assert again.evaluate("window.copied") == eight.url


def test_a_link_of_another_page_does_no_harm(eight):
    show(eight, "highlight=Nobody&is.color=red&sort.nothing=x.up&sort.s0-wait-table=gone.down&zoom.s0-timeline=9~1"
                "&zoom.x=a~b&open=nowhere&theme=pink&at=missing&%E0%A4%A=1")
    assert listed(eight) == NAMES and eight.locator("#status").inner_text() == "8 drives"


def test_contents_lead_to_headings_and_the_link_tells_where(eight):
    eight.get_by_role("navigation", name="Contents").get_by_role("link", name="Method", exact=True).click()
    assert eight.evaluate("document.activeElement.textContent") == "Method"
    assert eight.url.endswith("#method")
    show(eight, "drives")
    assert listed(eight) == NAMES
