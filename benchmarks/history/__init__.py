"""How a metric of one workload on one drive changed: by date, firmware or kernel, from the results of a catalog."""

from .document import document_of
from .selection import Selected, Selection, selected
from .series import AXES, By, History, history_of

__all__ = ["AXES", "By", "History", "Selected", "Selection", "document_of", "history_of", "selected"]
