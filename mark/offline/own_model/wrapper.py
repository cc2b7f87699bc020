"""The class that `mark init` writes around a function or a saved model: its Python text. Pure.

It is an ordinary model, in a file beside what it wraps: its owner edits it, and agents, versions and images load
it as any other.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from keyword import iskeyword
from pathlib import Path

from mark.domain.tensor import TensorSpec

TAKEN = ("Path", "TensorSpec")
"""Names that its module imports."""
WRITTEN = "Written by `mark init`; edit it."
"""Ends the first line of its file, by which a folder's own code is told from it."""


class Way(StrEnum):
    """How a function is called; the texts are for its owner."""

    BATCH = "one call for a whole batch"
    ITEM = "one call for each item of a batch"
    STREAM = "one call for one item, answered in parts"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wrapper:
    """A class by its parts; `load` and `predict` are the lines of `__init__` and `predict`.

    remark: what its owner should know of `predict`, which stands there as a comment.
    """

    about: str
    name: str
    imports: tuple[str, ...]
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    predict: tuple[str, ...]
    remark: str
    load: tuple[str, ...] = ()

    @property
    def file_text(self) -> str:
        """Text of the module."""
        imports = "\n".join((*self.imports, "from mark.domain.tensor import TensorSpec"))
        about = self.about.replace("\\", "\\\\").replace('"', '\\"')  # a file may have any name
        return f'"""{about} {WRITTEN}"""\n\n{imports}\n\n\n{self.class_text}'

    @property
    def class_text(self) -> str:
        """Text of the class alone; it needs what the module imports."""
        lines = [f"class {self.name}:"]
        for key, specs in (("inputs", self.inputs), ("outputs", self.outputs)):
            lines += [f"    {key} = (", *(f"        {_spec_text(spec)}," for spec in specs), "    )"]
        if self.load:
            lines += ["", "    def __init__(self):", *(f"        {line}" for line in self.load)]
        body = (f"# {self.remark[:1].upper()}{self.remark[1:]}.", *self.predict)
        lines += ["", "    def predict(self, tensors):", *(f"        {line}" for line in body)]
        return "\n".join(lines) + "\n"


def wrapper_path(source: Path, function: str = "") -> Path:
    """File of the class around a saved model or around a function of a file; the two never meet."""
    return source.with_name(f"{source.stem}_{function or source.suffix[1:].lower()}.py")


def wrapper_name(words: str) -> str:
    """A class's name for a file or function: `churn-v2` is ChurnV2."""
    name = "".join(part[:1].upper() + part[1:] for part in re.split(r"[^0-9A-Za-z]+", words))
    return f"Model{name}" if iskeyword(name) or name in TAKEN or not name.isidentifier() else name


def function_lines(inputs: Sequence[TensorSpec], way: Way, *, by_name: bool, scalars: bool) -> tuple[str, ...]:
    """Lines of a `predict` that calls the function `call`.

    by_name: it returns a mapping of outputs by name, else one value. scalars: it takes numbers of Python's own.
    """
    if way is Way.BATCH:
        asked = ", ".join(_values_text(spec, listed=False) for spec in inputs)
        answer = f"dict(call({asked}))" if by_name else f'{{"y": np.asarray(call({asked}))}}'
        return (f"return {answer}",)
    values = [_values_text(spec, listed=scalars) for spec in inputs]
    if way is Way.STREAM:
        asked = ", ".join(f"{value}[0]" for value in values)
        part = "{name: [value] for name, value in part.items()}" if by_name else '{"y": [part]}'
        return (f"for part in call({asked}):", f"    yield {part}")
    each = values[0] if len(values) == 1 else f"zip({', '.join(values)}, strict=True)"
    call = "call(item)" if len(values) == 1 else "call(*item)"
    answer = (
        "{name: np.asarray([one[name] for one in answers]) for name in answers[0]}"
        if by_name
        else '{"y": np.asarray(answers)}'
    )
    return (f"items = {each}", f"answers = [{call} for item in items]", f"return {answer}")


def literal(text: str) -> str:
    """Python's literal of a text, in double quotes where it holds none."""
    found = repr(text)
    return f'"{found[1:-1]}"' if found[0] == "'" and '"' not in text else found


def _spec_text(spec: TensorSpec) -> str:
    return f'TensorSpec(name={literal(spec.name)}, datatype="{spec.datatype}", shape={spec.shape})'


def _values_text(spec: TensorSpec, *, listed: bool) -> str:
    """Expression for an input's values: texts as `str`, others as they are or as a list."""
    tensor = f'tensors["{spec.name}"]'
    if spec.datatype == "BYTES":
        return f"[text.decode() for text in {tensor}]"
    return f"{tensor}.tolist()" if listed else tensor
