"""The house is in order: import rules that import-linter does not have."""

from __future__ import annotations

import graphlib

import grimp


def test_no_module_imports_itself_by_way_of_others() -> None:
    """Imports for type checkers count."""
    graph = grimp.build_graph("mark", cache_dir=None)
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}

    graphlib.TopologicalSorter(imports).prepare()
