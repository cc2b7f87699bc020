"""A fitted scikit-learn estimator in a file of joblib or pickle, whose loading runs what code is in it."""

from __future__ import annotations

import warnings
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

from mark.domain.errors import Misconfigured, failure_words
from mark.domain.tensor import TensorSpec
from mark.offline.own_model.example import read_example, specs_of
from mark.offline.own_model.try_wrapper import output_specs, written_model
from mark.offline.own_model.wrapper import Way, Wrapper, literal, wrapper_name
from mark.protocols.exchange import row_count, zeros
from mark.protocols.oip.bodies import Tensors
from mark.report.terminal import note

INPUT = "features"
CALLS = (
    (
        "predict_proba",
        (
            "probabilities = self.model.predict_proba({values})",
            "label = self.model.classes_[probabilities.argmax(axis=1)]",
            'return {{"probabilities": probabilities, "label": label}}',
        ),
    ),
    ("predict", ('return {{"prediction": self.model.predict({values})}}',)),
)
"""Methods by preference, and the lines that call them."""


def estimator_wrapper(path: Path, data: str | None, file: Path | None) -> tuple[Wrapper, Tensors | None]:
    """The class around the file, and the example, where one is given. Misconfigured where it is no estimator."""
    estimator = _loaded(path)
    if not any(hasattr(estimator, method) for method, _lines in CALLS):
        raise Misconfigured(
            f"{path} holds a {type(estimator).__name__}, which is not a model: it has neither predict_proba nor "
            "predict"
        )
    example = None if data is None and file is None else read_example(data or "", file, (INPUT,))
    inputs = _inputs(estimator, path, example)
    tried = zeros(inputs, 2) if example is None else example
    values = f'tensors["{INPUT}"]'
    imports = ["from pathlib import Path\n", "import joblib"]
    if inputs[0].datatype == "BYTES":
        values = f"[text.decode() for text in {values}]"
    elif hasattr(estimator, "feature_names_in_"):
        imports.append("import pandas")
        values = f"pandas.DataFrame({values}, columns=self.model.feature_names_in_)"
    draft = Wrapper(
        about=f"The scikit-learn model in {path.name}, a {type(estimator).__name__}.",
        name=wrapper_name(path.stem),
        imports=tuple(imports),
        inputs=inputs,
        outputs=(),
        predict=(),
        remark=Way.BATCH,
        load=(f"self.model = joblib.load(Path(__file__).with_name({literal(path.name)}))",),
    )
    failures = []
    for method, lines in CALLS:
        if hasattr(estimator, method):
            wrapper = replace(draft, predict=tuple(line.format(values=values) for line in lines))
            try:
                model = written_model(wrapper, path)
                return replace(wrapper, outputs=output_specs(model, tried, row_count(tried))), example
            except Misconfigured as error:
                failures.append(f"{method}: {error}")
    raise Misconfigured(f"{path}: {'; '.join(failures)}")


def _loaded(path: Path) -> Any:
    note(f"loading {path} runs code that is in it: name only files that you trust")
    try:
        joblib: Any = import_module("joblib")
        import_module("sklearn")
    except ModuleNotFoundError as error:
        raise Misconfigured(
            f"{path} needs scikit-learn, in the version that saved it: pip install scikit-learn"
        ) from error
    if not path.is_file():
        raise Misconfigured(f"model file {path} does not exist")
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            found = joblib.load(path)
        except (Exception, SystemExit) as error:  # what is in the file may raise anything; the cause is chained
            raise Misconfigured(f"{path} does not load: {failure_words(error)[:300]}") from error
    if older := next((one for one in told if "InconsistentVersion" in one.category.__name__), None):
        note(f"{path}: {str(older.message).partition('. ')[0]}; its answers may differ: install that version")
    return found


def _inputs(estimator: Any, path: Path, example: Tensors | None) -> tuple[TensorSpec, ...]:
    if example is not None:
        return specs_of(example, "input")
    count = getattr(estimator, "n_features_in_", None)
    if not isinstance(count, int):
        what = f"{path} holds a {type(estimator).__name__}"
        if not _is_fitted(estimator):
            raise Misconfigured(f"{what} that is not fitted: fit it before you save it")
        raise Misconfigured(
            f"{what} that does not say what it takes (n_features_in_): give an example with its batch first, such "
            "as --data '[\"a text\"]'"
        )
    return (TensorSpec(name=INPUT, datatype="FP64", shape=(-1, count)),)


def _is_fitted(estimator: Any) -> bool:
    """False where scikit-learn takes it as not fitted; what is no estimator of its kind may be."""
    try:
        import_module("sklearn.utils.validation").check_is_fitted(estimator)
    except Exception as error:  # noqa: BLE001 - a foreign class may fail in any way
        return type(error).__name__ != "NotFittedError"
    return True
