"""Language of a text, by its pairs of letters."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from mark.domain.tensor import TensorSpec

SAMPLES = {
    "en": "the quick brown fox jumps over the lazy dog and then they think that this is the end of the thing",
    "de": "der schnelle braune fuchs springt ueber den faulen hund und dann denken sie dass dies das ende ist",
    "fr": "le vif renard brun saute par dessus le chien paresseux et puis ils pensent que ceci est la fin",
}


def pairs(text: bytes) -> Any:
    """How often each pair of bytes occurs, over the length of that vector."""
    letters = np.frombuffer(text, np.uint8).astype(np.int64)
    counts = np.bincount(256 * letters[:-1] + letters[1:], minlength=65536).astype(np.float32)
    return counts / max(float(np.linalg.norm(counts)), 1.0)


class Language:
    """The language whose sample is most like the text."""

    inputs = (TensorSpec(name="text", datatype="BYTES", shape=(-1,)),)
    outputs = (TensorSpec(name="language", datatype="BYTES", shape=(-1,)),)

    def __init__(self) -> None:
        """Count the samples' pairs."""
        self.samples = np.stack([pairs(text.encode()) for text in SAMPLES.values()])

    def predict(self, tensors: Mapping[str, Any]) -> Mapping[str, Any]:
        """Answer a batch of texts."""
        texts = [text if isinstance(text, bytes) else text.encode() for text in tensors["text"]]
        scores = np.stack([pairs(text.lower()) for text in texts]) @ self.samples.T
        names = [name.encode() for name in SAMPLES]
        return {"language": np.array([names[best] for best in scores.argmax(axis=1)], dtype=object)}
