"""botocore's descriptions of AWS's services, without what they say for people: that is half of their memory.

They are read once a process: each session by itself would read and keep them again.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import botocore.session
from botocore.loaders import JSONFileLoader, Loader


class _Undocumented(JSONFileLoader):
    """Reads botocore's files, as dicts in place of OrderedDicts, which are larger."""

    def load_file(self, file_path: str) -> Any:
        """The file's document; None where there is none. file_path: without its suffix."""
        for path, opened in ((Path(f"{file_path}.json"), open), (Path(f"{file_path}.json.gz"), gzip.open)):
            if path.is_file():
                with opened(path, "rb") as file:
                    return json.load(file, object_pairs_hook=_undocumented)
        return None


def _undocumented(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """The pairs as a dict, texts for people left empty; a shape's member of that name is no text."""
    return {key: "" if key == "documentation" and isinstance(value, str) else value for key, value in pairs}


_LOADER = Loader(file_loader=_Undocumented())


def light_session() -> botocore.session.Session:
    """A session of botocore whose clients take half of the memory."""
    made = botocore.session.Session()
    made.register_component("data_loader", _LOADER)
    return made
