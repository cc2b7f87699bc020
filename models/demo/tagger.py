"""Tags of a support ticket, by keywords."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from mark.domain.tensor import TensorSpec

KEYWORDS = {
    "billing": {"invoice", "refund", "charge", "price", "paid"},
    "delivery": {"parcel", "late", "courier", "address", "tracking"},
    "account": {"password", "login", "email", "locked"},
}


class Tagger:
    """A 1 for each tag of which the text has a keyword, in the order of KEYWORDS."""

    inputs = (TensorSpec(name="text", datatype="BYTES", shape=(-1,)),)
    outputs = (TensorSpec(name="tags", datatype="INT64", shape=(-1, len(KEYWORDS))),)

    def predict(self, tensors: Mapping[str, Any]) -> Mapping[str, Any]:
        """Answer a batch of texts."""
        texts = [text.decode() if isinstance(text, bytes) else text for text in tensors["text"]]
        words = [set(text.lower().split()) for text in texts]
        return {
            "tags": np.array([[bool(found & some) for some in KEYWORDS.values()] for found in words], np.int64)
        }
