"""Where a page of this repository is. Pure, no torch.

The address of the repository is that of the package's metadata (``[project.urls] Repository``); as long as it has none,
a page is named by its path in the repository.
"""

from __future__ import annotations

from functools import cache


def in_repository(path: str) -> str:
    """The address of ``path``, a path in the repository."""
    repository = _repository()
    return path if repository is None else f"{repository}/blob/main/{path}"


@cache
def _repository() -> str | None:
    from importlib.metadata import PackageNotFoundError, metadata  # start-up: only reports with links come here

    try:
        entries = metadata("hf-ckpt").get_all("Project-URL") or []
    except PackageNotFoundError:
        return None
    named = dict(entry.split(", ", 1) for entry in entries if ", " in entry)
    return named["Repository"].rstrip("/") if "Repository" in named else None


def rule_page(code: str, name: str) -> str:
    """Where the page of a rule of ckpt-lint is.

    Args:
        code: The rule's code, such as ``CKPT105``.
        name: Its name, in words joined by hyphens.
    """
    return in_repository(f"lint/rules/{code.lower()}_{name.replace('-', '_')}.py")


def explained_at(code: str, name: str) -> str:
    """Where a rule is explained, as messages say it; the arguments of :func:`rule_page`."""
    return f"{rule_page(code, name)}, or `ckpt-lint rule {code}`"
