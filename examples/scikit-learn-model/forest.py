from pathlib import Path

import joblib
from mark.domain.tensor import TensorSpec


class Forest:
    inputs = (TensorSpec(name="flower", datatype="FP32", shape=(-1, 4)),)
    outputs = (
        TensorSpec(name="probabilities", datatype="FP64", shape=(-1, 3)),
        TensorSpec(name="label", datatype="INT64", shape=(-1,)),
    )

    def __init__(self):
        self.forest = joblib.load(Path(__file__).with_name("forest.joblib"))

    def predict(self, tensors):
        probabilities = self.forest.predict_proba(tensors["flower"])
        return {"probabilities": probabilities, "label": probabilities.argmax(axis=1)}
