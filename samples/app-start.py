"""An application starts from a cold cache: LibreOffice Writer, with a letter."""

from scratch import HOME, RECORDINGS, SATA, Root, emulated_drive, make_sample
from screen import screen

_ROOT = Root("office", ("libreoffice-writer", "fonts-dejavu-core"))
_LETTER = f"{HOME}/letter.odt"
_SECONDS = 30


def make(name: str) -> None:
    with emulated_drive(2 << 30, SATA) as scratch, screen(scratch.workspace.environment) as environment:
        scratch.install(_ROOT)
        # The letter, and by the way the settings that Writer makes at its very first start.
        scratch.write(f"{HOME}/letter.txt", "Dear reader,\n\n" + "this is a line of a letter. " * 2000 + "\n")
        scratch.run("soffice", "--headless", "--convert-to", "odt", "--outdir", HOME, f"{HOME}/letter.txt")
        # It would wait for its window to be closed.
        command = ["timeout", "--signal=KILL", str(_SECONDS), "soffice", "--writer", "--norestore", _LETTER]
        for _ in range(RECORDINGS):
            scratch.settle()
            scratch.record_best(name, ["chroot", scratch.mount, *command], environment, ends_with=(137,))


make_sample("app-start", make)
