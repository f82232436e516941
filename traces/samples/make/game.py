"""SuperTuxKart, whose demo mode goes from the menu into a race by itself."""

from scratch import HOME, Root

ROOT = Root("game", ("supertuxkart", "libgl1-mesa-dri", "libegl1", "libgl1"))
DRIVE_BYTES = 3 << 30
# What ends a game here: it does not listen to SIGTERM. timeout and a shell give this for SIGKILL.
ENDS_WITH = (137,)
_SETTINGS = f"{HOME}/.config/supertuxkart/config-0.10"

# As a player leaves it who has played before: nothing is asked, the network is not used. The effects that cost a
# processor without graphics too much are off; textures and models are loaded in full.
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


def put_game(scratch, environment) -> None:
    """The game with its settings, played once, so that it finds what it keeps between two evenings."""
    scratch.install(ROOT)
    _put_settings(scratch)
    scratch.run(*play(60), environment=environment, ends_with=ENDS_WITH)
    # Killed, it may leave them half written.
    _put_settings(scratch)
    scratch.settle()


def _put_settings(scratch):
    scratch.write(f"{_SETTINGS}/config.xml", _CONFIG)
    scratch.write(f"{_SETTINGS}/players.xml", _PLAYERS)


def play(seconds: int) -> list[str]:
    """Menu, five seconds later a race; killed after so many seconds."""
    return ["timeout", "--signal=KILL", str(seconds), "supertuxkart", "--windowed", "--screensize=640x480",
            "--demo-mode=5", "--demo-tracks=zengarden", "--demo-laps=1", "--demo-karts=8"]
