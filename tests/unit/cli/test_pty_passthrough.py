"""Lines of a command above the live view."""

import threading

from rich.console import Console

from blkreel.cli.ui.pty_passthrough import PtyPassthrough


class OtherThread(Console):
    """While it prints, the view is drawn by this thread and by another."""

    def print(self, text, **options):
        self.drawn = [text.plain, passthrough_of[self].pending()]
        thread = threading.Thread(target=lambda: self.drawn.append(passthrough_of[self].pending()))
        thread.start()
        thread.join()


passthrough_of = {}


def test_an_unfinished_line_never_stands_above_the_lines_before_it():
    console = OtherThread()
    passthrough = passthrough_of[console] = PtyPassthrough(console)
    passthrough._task = type("Task", (), {"refresh": lambda self: None})()
    passthrough._print("hea")
    passthrough._print("rd you\nno end of line")
    assert [str(each) for each in console.drawn] == ["heard you", "no end of line", "hea"]
    assert str(passthrough.pending()) == "no end of line"
    passthrough._print("", last=True)
    assert str(console.drawn[0]) == "no end of line" and passthrough.pending() is None
    passthrough.end()
