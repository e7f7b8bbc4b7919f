"""The same program in functions and files of its own."""

from __future__ import annotations

import ast
import copy

from .spellings import in_files, is_definition, names_bound, names_in, spelling, statements


@spelling
def in_a_main_function(tree: ast.Module) -> bool:
    """`def main():` with the statements of the module, under `if __name__ == "__main__"`."""
    rest = [part for part in tree.body if not is_definition(part)]
    definitions = [part for part in tree.body if is_definition(part)]
    if not rest or not names_bound(rest).isdisjoint(names_in(definitions)):
        return False
    (main,) = statements("def main():\n    pass")
    main.body = rest
    tree.body = [*definitions, main, *statements('if __name__ == "__main__":\n    main()')]
    return True


@in_files
def definitions_in_another_file(tree: ast.Module) -> dict[str, ast.Module] | None:
    """`from models_part import Net, train`."""
    moved = [part for part in tree.body if isinstance(part, ast.FunctionDef | ast.ClassDef)]
    imports = [part for part in tree.body if isinstance(part, ast.Import | ast.ImportFrom)]
    rest = [part for part in tree.body if part not in moved and part not in imports]
    if not moved or not rest or not names_bound(rest).isdisjoint(names_in(moved)):
        return None
    taken = statements(f"from models_part import {', '.join(part.name for part in moved)}")
    return {
        "models_part.py": ast.Module([*copy.deepcopy(imports), *moved], []),
        "example.py": ast.Module([*imports, *taken, *rest], []),
    }


@in_files
def classes_in_another_file(tree: ast.Module) -> dict[str, ast.Module] | None:
    """`import models_part` and `models_part.Net`."""
    moved = [part for part in tree.body if isinstance(part, ast.ClassDef)]
    imports = [part for part in tree.body if isinstance(part, ast.Import | ast.ImportFrom)]
    rest = [part for part in tree.body if part not in moved and part not in imports]
    own = names_bound(rest) | {part.name for part in rest if isinstance(part, ast.FunctionDef)}
    if not moved or not rest or not own.isdisjoint(names_in(moved)):
        return None
    names = {part.name for part in moved}

    class Moved(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> ast.expr:
            held = ast.Name("models_part", ast.Load())
            return ast.Attribute(held, node.id, ast.Load()) if node.id in names else node

    main = ast.Module([*imports, *statements("import models_part"), *rest], [])
    return {"models_part.py": ast.Module([*copy.deepcopy(imports), *moved], []), "example.py": Moved().visit(main)}
