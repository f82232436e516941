"""SuperTuxKart, whose demo mode goes from the menu into a race by itself."""

from collections.abc import Mapping

from scratch import HOME, Root, Scratch

ROOT = Root("game", ("supertuxkart", "libgl1-mesa-dri", "libegl1", "libgl1"))
DRIVE_BYTES = 3 << 30
# Exit code after SIGKILL: the game ignores SIGTERM.
ENDS_WITH = (137,)
_SETTINGS = f"{HOME}/.config/supertuxkart/config-0.10"

# The settings of a second session: no questions, no network. Effects that are too slow without a graphics processor
# are off; textures and models are loaded in full.
_CONFIG = """<?xml version="1.0"?>
<stkconfig version="8">
    <enable_internet value="2" />
    <Video old_driver_popup="false" enable_dynamic_lights="false" max_fps="30" enable_high_definition_textures="1" />
    <GFX particles-effecs="0" anisotropic="0" light_scatter="false" shadows_resolution="0" />
</stkconfig>
"""
_PLAYERS = """<?xml version="1.0"?>
<players version="1">
    <current player="Player" />
    <player name="Player" guest="false" use-frequency="1" unique-id="1" icon-filename="tux.png" />
</players>
"""


def put_game(scratch: Scratch, environment: Mapping[str, str]) -> None:
    """Install the game with its settings, and play it once, so that the files it stores between sessions exist."""
    scratch.install(ROOT)
    _put_settings(scratch)
    scratch.run(*play(60), environment=environment, ends_with=ENDS_WITH)
    # The killed game may have written them in part.
    _put_settings(scratch)
    scratch.settle()


def _put_settings(scratch: Scratch) -> None:
    scratch.write(f"{_SETTINGS}/config.xml", _CONFIG)
    scratch.write(f"{_SETTINGS}/players.xml", _PLAYERS)


def play(seconds: int) -> list[str]:
    """Menu, five seconds later a race; killed after so many seconds."""
    return ["timeout", "--signal=KILL", str(seconds), "supertuxkart", "--windowed", "--screensize=640x480",
            "--demo-mode=5", "--demo-tracks=zengarden", "--demo-laps=1", "--demo-karts=8"]
