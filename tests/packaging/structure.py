"""How the code hangs together, counted: ``python tests/packaging/structure.py [CHECKOUT]``.

Prints the files at lint's root, the rules that walk or read syntax trees, the import circles (imports for types
counted), the imports inside functions, and the files of each folder; of this checkout, or of another one
(``git worktree add ../before REVISION``).
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
#: What goes through the nodes of a syntax tree: functions of `ast`, and those of the linter itself.
WALKERS = frozenset(
    (
        *("walk", "iter_child_nodes", "iter_fields", "NodeVisitor", "NodeTransformer", "parse"),
        *("all_nodes", "inner_nodes", "binding_nodes", "parents_in", "holders"),
    )
)


def modules_of(wing: str, root: Path = ROOT) -> dict[tuple[str, ...], Path]:
    """Every module below ``wing`` (a folder of the repository), by its dotted name as a tuple."""
    found = {}
    for path in sorted((root / wing).rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        found[parts[:-1] if parts[-1] == "__init__" else parts] = path
    return found


def imports_of(wing: str, root: Path = ROOT) -> dict[tuple[str, ...], set[tuple[str, ...]]]:
    """For every module of ``wing`` the others of it that it imports, wherever the import stands."""
    modules = modules_of(wing, root)
    return {name: set(_imported(name, path, modules)) - {name} for name, path in modules.items()}


def _imported(name: tuple[str, ...], path: Path, modules: dict[tuple[str, ...], Path]):
    package = name if path.name == "__init__.py" else name[:-1]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and 0 < node.level <= len(package):
            base = (*package[: len(package) - node.level + 1], *(node.module or "").split(".") * bool(node.module))
            for alias in node.names:
                yield from [found for found in ((*base, alias.name), base) if found in modules][:1]


def modules_beside_lint() -> set[str]:
    """What the linter imports from the runtime: its modules, and names of the package itself."""
    found = set()
    for name, path in modules_of("lint").items():
        depth = len(name) if path.name == "__init__.py" else len(name) - 1
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.level > depth:
                found |= {node.module} if node.module else {alias.name for alias in node.names}
    return found


def outside_the_standard_library(module: str) -> set[str]:
    """The packages that ``module`` of the runtime imports, those of Python left out; "." is the project itself."""
    nodes = list(ast.walk(ast.parse((ROOT / "hf_ckpt" / f"{module}.py").read_text(encoding="utf-8"))))
    named = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    named |= {"." if node.level else node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
    return {name for name in named if name.partition(".")[0] not in sys.stdlib_module_names}


def circles(wing: str, root: Path = ROOT) -> list[list[str]]:
    """Groups of modules of ``wing`` that import each other, directly or by way of others, the largest first."""
    edges = imports_of(wing, root)
    reach = {name: _reachable(name, edges) for name in edges}
    groups = {
        frozenset(other for other in reach[name] if name in reach[other]) for name in edges if name in reach[name]
    }
    return sorted(
        (sorted(".".join(name) for name in group) for group in groups), key=lambda group: (-len(group), group)
    )


def _reachable(start: tuple[str, ...], edges: dict[tuple[str, ...], set[tuple[str, ...]]]) -> set[tuple[str, ...]]:
    found: set[tuple[str, ...]] = set()
    waiting = [*edges[start]]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += edges[name]
    return found


def imports_in_functions(wing: str, root: Path = ROOT) -> Counter[str]:
    """How many import statements stand inside functions, by file."""
    counts: Counter[str] = Counter()
    for path in modules_of(wing, root).values():
        for function in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                own = [node for node in _own_nodes(function) if isinstance(node, ast.Import | ast.ImportFrom)]
                counts[str(path.relative_to(root))] += len(own)
    return +counts


def _own_nodes(function: ast.AST):
    """The nodes of a function without those of the functions in it."""
    for node in ast.iter_child_nodes(function):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node
            yield from _own_nodes(node)


def files_by_folder(wing: str, root: Path = ROOT) -> Counter[str]:
    """How many modules each folder holds."""
    return Counter(str(path.parent.relative_to(root)) for path in modules_of(wing, root).values())


def rules_that_walk_syntax(root: Path = ROOT) -> list[str]:
    """The rules that go through the nodes of a syntax tree themselves, in place of asking the run."""
    return [path.stem for path, tree in _rules(root) if not WALKERS.isdisjoint(_names_used(tree))]


def rules_that_read_syntax(root: Path = ROOT) -> list[str]:
    """The rules that need `ast` when they run: they match single nodes, for a spelling or for a fix."""
    return [path.stem for path, tree in _rules(root) if any(_imports_ast(node) for node in tree.body)]


def _rules(root: Path = ROOT) -> list[tuple[Path, ast.Module]]:
    paths = sorted((root / "lint" / "rules").glob("ckpt*.py"))
    return [(path, ast.parse(path.read_text(encoding="utf-8"))) for path in paths]


def _names_used(tree: ast.Module) -> set[str]:
    """The names that a module imports from others, and what it takes of `ast`."""
    nodes = list(ast.walk(tree))
    imported = {alias.name for node in nodes if isinstance(node, ast.ImportFrom) for alias in node.names}
    return imported | {
        node.attr
        for node in nodes
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "ast"
    }


def _imports_ast(node: ast.stmt) -> bool:
    return isinstance(node, ast.Import) and any(alias.name == "ast" for alias in node.names)


def main(root: Path) -> None:
    """Print the figures of the checkout in ``root``."""
    print(f"files at lint's root: {files_by_folder('lint', root)['lint']}")
    for what, rules in (("walk", rules_that_walk_syntax(root)), ("read", rules_that_read_syntax(root))):
        print(f"rules that {what} syntax: {len(rules)}  {' '.join(rule[4:7] for rule in rules)}")
    for wing in ("lint", "hf_ckpt"):
        print(f"\n{wing}: {sum(imports_in_functions(wing, root).values())} imports inside functions")
        found = circles(wing, root)
        print(f"{wing}: circles of {', '.join(str(len(group)) for group in found) or 'no'} modules")
        for group in found:
            print(f"  {' '.join(group)}")
        for folder, count in sorted(files_by_folder(wing, root).items()):
            print(f"  {count:4} {folder}")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else ROOT)
