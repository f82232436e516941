"""Metrics of one benchmark step."""

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
