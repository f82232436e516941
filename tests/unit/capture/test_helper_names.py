"""Names of threads in the live view: the helper sends bytes as code points."""

from blkreel.capture.helper import Helper


class NamesOnly(Helper):
    """Takes notes without a helper."""

    def __init__(self):
        self.names = {}


def test_names_are_utf8_and_invalid_bytes_are_replaced():
    helper = NamesOnly()
    comm = "Überspiel".encode()[:15].decode("latin-1")
    helper._take({"note": "threads", "threads": [[7, 5, comm, "cut \xc3", "/cgroup"]]})
    assert helper.names == {7: (5, "Überspiel", "cut \ufffd")}
