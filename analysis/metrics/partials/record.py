"""What all records of partials have."""

from dataclasses import fields
from typing import Any, ClassVar

import numpy as np


class Record:
    """A base of dataclasses: equal if all fields are, arrays too."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return False
        pairs = ((getattr(self, field.name), getattr(other, field.name)) for field in fields(self))
        return all(np.array_equal(a, b) if isinstance(a, np.ndarray) else a == b for a, b in pairs)
